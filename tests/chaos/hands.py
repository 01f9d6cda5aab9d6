"""Does to a running stack what was planned."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import redis

from tests.chaos.plan import Burst, Fault
from tests.chaos.proxy import Proxy
from tests.e2e.stack import Stack, alive
from tests.support import Valkey, wait_until

TARGET_SECONDS = 60.0
"""How long a part may be away before there is one to hurt."""
OUTLAST_TRIES = 5
"""A child whose batch ended as it was frozen has no lease to lose."""
BALLAST_BYTES = 2**20


class Hands:
    """They reach every process of a stack, its server, the wire to that, and its disk."""

    def __init__(self, stack: Stack, server: Valkey, wire: Proxy, disk: Path) -> None:
        self._stack = stack
        self._server = server
        self._wire = wire
        self._ballast = disk / "ballast"
        self._thawing: list[threading.Timer] = []

    def do(self, burst: Burst) -> None:
        """One fault after another."""
        for fault, pause in zip(burst.faults, burst.pauses, strict=True):
            self._do(fault)
            time.sleep(pause)

    def rest(self) -> None:
        """What was frozen thaws."""
        for timer in self._thawing:
            timer.join()
        self._thawing.clear()

    def _do(self, fault: Fault) -> None:
        match fault.deed:
            case "cut":
                self._wire.cut()
            case "stall":
                self._wire.stall(fault.seconds)
            case "slow":
                self._wire.slow(fault.seconds)
            case "fill":
                self._fill(fault.seconds)
            case "outlast":
                self._outlast(fault)
            case "freeze":
                process = self._hurt(fault, self._processes, psutil.Process.suspend)
                self._thaw_later(process, fault.seconds)
            case "kill" | "term" if fault.part == "redis":
                self._end_server(fault)
            case "kill":
                self._hurt(fault, self._processes, psutil.Process.kill)
            case "term":
                self._hurt(fault, self._processes, psutil.Process.terminate)

    def _fill(self, seconds: float) -> None:
        try:
            with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(BALLAST_BYTES))
            time.sleep(seconds)
        finally:
            self._ballast.unlink()

    def _outlast(self, fault: Fault) -> None:
        """Freeze a child in mid-batch until others have what it held, with nobody else hurt."""
        self.rest()
        before = self._reaped()
        for _ in range(OUTLAST_TRIES):
            process = self._hurt(fault, self._children_at_work, psutil.Process.suspend)
            self._thaw_later(process, fault.seconds)
            self.rest()
            if self._reaped() > before:
                return
        raise AssertionError(f"no lease ran out: {fault}")

    def _reaped(self) -> float:
        return self._stack.counter("voicemill_leases_reaped_total")

    def _thaw_later(self, process: psutil.Process, seconds: float) -> None:
        timer = threading.Timer(seconds, thaw, [process])
        timer.start()
        self._thawing.append(timer)

    def _end_server(self, fault: Fault) -> None:
        process = self._server.process
        assert process is not None
        if fault.deed == "term":
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        self._server.stop()
        time.sleep(fault.seconds)
        self._server.start()

    def _hurt(
        self,
        fault: Fault,
        processes: Callable[[str], list[psutil.Process]],
        deed: Callable[[psutil.Process], None],
    ) -> psutil.Process:
        """Do it to one process of the part, which may have to come up first; gives that."""
        hurt: list[psutil.Process] = []

        def do() -> bool:
            with suppress(psutil.NoSuchProcess, KeyError, FileNotFoundError):
                found = [one for one in processes(fault.part) if can_be_hurt(one)]
                if found:
                    chosen = found[fault.pick % len(found)]
                    deed(chosen)
                    hurt.append(chosen)
            return bool(hurt)

        wait_until(do, TARGET_SECONDS, f"somebody to {fault}")
        return hurt[0]

    def _processes(self, part: str) -> list[psutil.Process]:
        if part == "redis":
            assert self._server.process is not None
            return [psutil.Process(self._server.process.pid)]
        if part == "child":
            return children_of(self._stack.pid("worker"))
        return [psutil.Process(self._stack.pid(part))]

    def _children_at_work(self, part: str) -> list[psutil.Process]:
        """Those that hold a task, which no process but the store knows for sure."""
        try:
            with redis.Redis.from_url(self._server.url) as client:
                holders = client.hkeys("voicemill:child_tasks")
        except redis.RedisError:
            return []
        pids = {int(name.rpartition(b":")[2]) for name in holders}
        return [one for one in self._processes(part) if one.pid in pids]


def children_of(worker: int) -> list[psutil.Process]:
    """The processes that a worker has for its engine."""
    return [
        one
        for one in psutil.Process(worker).children()
        if alive(one) and "spawn_main" in " ".join(one.cmdline())
    ]


def can_be_hurt(process: psutil.Process) -> bool:
    """True for a process that is there and not frozen."""
    return alive(process) and process.status() != psutil.STATUS_STOPPED


def thaw(process: psutil.Process) -> None:
    """Let it go on, if it is still there."""
    with suppress(psutil.NoSuchProcess):
        process.resume()

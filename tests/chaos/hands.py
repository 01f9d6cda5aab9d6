"""Does to a running stack what was planned."""

from __future__ import annotations

import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.plan import Burst, Fault
from tests.chaos.proxy import Proxy
from tests.e2e.stack import Stack, alive
from tests.support import Valkey, wait_until

AWAY_SECONDS = (0.0, 1.5)
"""How long a server that was ended stays so."""
BALLAST_BYTES = 2**20


class Hands:
    """They reach every process of a stack, its server, the wire to that, and its disk."""

    def __init__(self, stack: Stack, server: Valkey, wire: Proxy, disk: Path, seed: int) -> None:
        self._stack = stack
        self._server = server
        self._wire = wire
        self._ballast = disk / "ballast"
        self._chance = random.Random(seed)
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
            case "freeze":
                self._freeze(fault)
            case "kill" | "term":
                self._end(fault)

    def _fill(self, seconds: float) -> None:
        try:
            with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(BALLAST_BYTES))
            time.sleep(seconds)
        finally:
            self._ballast.unlink()

    def _freeze(self, fault: Fault) -> None:
        def freeze() -> bool:
            process = self._pick(fault.part)
            if process is None:
                return False
            with suppress(psutil.NoSuchProcess):
                process.suspend()
                timer = threading.Timer(fault.seconds, thaw, [process])
                timer.start()
                self._thawing.append(timer)
                return True
            return False

        wait_until(freeze, 60, f"somebody to {fault}")

    def _end(self, fault: Fault) -> None:
        if fault.part == "redis":
            self._end_server(fault)
            return
        sign = signal.SIGKILL if fault.deed == "kill" else signal.SIGTERM

        def end() -> bool:
            process = self._pick(fault.part)
            if process is None:
                return False
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sign)
                return True
            return False

        wait_until(end, 60, f"somebody to {fault}")

    def _end_server(self, fault: Fault) -> None:
        process = self._server.process
        assert process is not None
        if fault.deed == "term":
            process.terminate()
            process.wait(30)
        self._server.stop()
        time.sleep(self._chance.uniform(*AWAY_SECONDS))
        self._server.start()

    def _pick(self, part: str) -> psutil.Process | None:
        """A process of this part that is there and not frozen."""
        with suppress(psutil.NoSuchProcess, KeyError, FileNotFoundError):
            if part == "redis":
                assert self._server.process is not None
                found = [psutil.Process(self._server.process.pid)]
            elif part == "child":
                found = children_of(self._stack.pid("worker"))
            else:
                found = [psutil.Process(self._stack.pid(part))]
            able = [one for one in found if alive(one) and one.status() != psutil.STATUS_STOPPED]
            return self._chance.choice(able) if able else None
        return None


def children_of(worker: int) -> list[psutil.Process]:
    """The processes that a worker has for its engine."""
    return [
        one
        for one in psutil.Process(worker).children()
        if alive(one) and "spawn_main" in " ".join(one.cmdline())
    ]


def thaw(process: psutil.Process) -> None:
    """Let it go on, if it is still there."""
    with suppress(psutil.NoSuchProcess):
        process.resume()

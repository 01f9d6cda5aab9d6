"""The device to be checked, and processes that hold some of its memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.stack.parts import ROOT
from voicemill.settings import PREFIX

CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
MIB = 2**20
SMALL_BYTES = 64 * MIB
BACK_SECONDS = 20.0
POLL_SECONDS = 0.001


class CheckError(Exception):
    """A check could not be carried out, or did not show what it should."""


class NoDeviceError(Exception):
    """There is nothing to check."""


class Probe:
    """A ``worker.probe``: it looks, and holds what it was told to take until the block ends."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=env,
        )

    def take(self, size: int) -> None:
        """Take device memory."""
        code = self._ask("take", size)
        if code is not None:
            raise CheckError(f"{size // MIB} MiB could not be taken: {code}")

    def device(self) -> dict[str, Any]:
        """The first device as this process sees it now."""
        reading = self._ask("look", None)
        if not reading["devices"]:
            raise NoDeviceError(reading["reason"])
        device: dict[str, Any] = reading["devices"][0]
        return device

    def used(self) -> int:
        """What all processes use of it."""
        used: int = self.device()["used_bytes"]
        return used

    def wait_for(self, most: int) -> None:
        """Wait until no more than this is used; raises ``CheckError`` when that takes too long."""
        give_up = time.monotonic() + BACK_SECONDS
        while (used := self.used()) > most:
            if time.monotonic() > give_up:
                raise CheckError(f"{(used - most) // MIB} MiB not back in {BACK_SECONDS:g} s")
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """End it by SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def _ask(self, *command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise CheckError("a probe ended; what it said is above") from error

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@dataclass(frozen=True, slots=True)
class Machine:
    """The device and how processes come to it; figures in bytes."""

    env: Mapping[str, str]
    name: str
    free: int
    context: int
    """What a CUDA context takes."""

    @property
    def small(self) -> int:
        """A piece of memory of which many fit."""
        return min(SMALL_BYTES, self.free // 40)


def survey(environ: Mapping[str, str]) -> Machine:
    """The first device that this environment shows; raises ``NoDeviceError``."""
    env = {name: value for name, value in environ.items() if not name.startswith(PREFIX)}
    env["PYTHONPATH"] = str(ROOT)
    with Probe(env) as probe:
        env[CUDA_DEVICES] = probe.device()["uuid"]
    with Probe(env) as observer, Probe(env) as holder:
        before = observer.device()
        holder.take(MIB)
        context = observer.used() - before["used_bytes"]
        free = before["total_bytes"] - before["used_bytes"]
        return Machine(env, before["name"], free, context)

"""A real stack whose children leak device memory and are replaced for it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from scripts.gpu.machine import MIB, CheckError, Machine, Probe
from scripts.stack.parts import ROOT
from scripts.stack.stopping import stop
from voicemill.answers import Item
from voicemill.client import Client
from voicemill.settings import PREFIX

EAGER = {
    "BATCH_SECONDS": "0.001",
    "HOST_MEMORY_LIMIT": "off",
    "LOAD_TIMEOUT_SECONDS": "60",
    "MAX_SLOWDOWN": "off",
    "MEMORY_CHECK_SECONDS": "0.001",
    "MIN_AGE_SECONDS": "0.001",
}
"""Settings of a child that looks at itself after each item, and leaves for GPU memory alone."""
SECONDS_PER_SEGMENT = 0.2
MOST_SECONDS = 200.0
LINES = 24
READY = "ready "
ENDED = {"completed", "failed", "cancelled", "expired"}


@dataclass(frozen=True, slots=True)
class Recycled:
    """What became of the children and of what they were given."""

    recycles: list[dict[str, Any]]
    items: int

    @property
    def handover_seconds(self) -> list[float]:
        """How long each successor took to come up beside the old child."""
        return [one["handover_seconds"] for one in self.recycles if one["successor"] is not None]

    @property
    def breaks(self) -> int:
        """Children that left before their successors were started."""
        return len(self.recycles) - len(self.handover_seconds)


def recycle(machine: Machine, observer: Probe, *, leak: int, limit: int, count: int) -> Recycled:
    """Speak until so many children were replaced: those that hold more bytes than ``limit``.

    Raises ``CheckError`` unless each item was spoken once and the memory came back at the end.
    """
    before = observer.used()
    settings = {**EAGER, "GPU_MEMORY_LIMIT": f"{limit / MIB:.2f}MiB"}
    env = {**machine.env, **{PREFIX + name: value for name, value in settings.items()}}
    options = {"seconds_per_segment": SECONDS_PER_SEGMENT, "leak_device_mb": leak / MIB}
    recycles: dict[int, dict[str, Any]] = {}
    items: list[Item] = []
    give_up = time.monotonic() + MOST_SECONDS
    with tempfile.TemporaryDirectory(prefix="voicemill-gpu-") as folder:
        with running_stack(env, Path(folder), "tone", options) as url, Client(url) as client:
            while len(recycles) < count:
                items += speak(client, recycles, give_up)
        check_spoken(items)
    observer.wait_for(before + machine.small)
    return Recycled(list(recycles.values()), len(items))


def speak(client: Client, recycles: dict[int, dict[str, Any]], give_up: float) -> list[Item]:
    """A job to its end; who was replaced meanwhile enters ``recycles``, by pid."""
    job = client.create_job([{"input": f"Line {number}."} for number in range(LINES)])
    while job["status"] not in ENDED:
        if time.monotonic() > give_up:
            raise CheckError(f"only {len(recycles)} children were replaced in {MOST_SECONDS:g} s")
        job = client.job(job["id"], wait_seconds=1)
        answer = httpx.get(f"{client.url}/v1/workers", timeout=10, trust_env=False)
        for worker in answer.raise_for_status().json()["data"]:
            recycles |= {one["pid"]: one for one in worker["recycles"]}
            if worker["alerts"]:
                raise CheckError("; ".join(worker["alerts"]))
    return list(client.items(job["id"]))


def check_spoken(items: list[Item]) -> None:
    """Each item succeeded at its first attempt and has a file of its own."""
    wrong = [item for item in items if (item["status"], item["attempts"]) != ("succeeded", 1)]
    if wrong:
        raise CheckError(f"{len(wrong)} items not spoken at once, such as {wrong[0]}")
    files = {item["audio_path"] for item in items if item["audio_path"] is not None}
    if len(files) != len(items) or not all(Path(one).stat().st_size for one in files):
        raise CheckError(f"{len(items)} items have {len(files)} files, or empty ones")


@contextmanager
def running_stack(
    env: Mapping[str, str], folder: Path, engine: str, options: Mapping[str, Any]
) -> Iterator[str]:
    """The URL of a stack with one child of an engine, as long as the block lasts."""
    command = [sys.executable, str(ROOT / "scripts" / "up.py"), "--home", str(folder / "home")]
    command += ["--port", "0", "--flower-port", "0", "--workers", "1"]
    command += ["--engine", engine, "--engine-options", json.dumps(options)]
    log = folder / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=output, start_new_session=True
        )
        try:
            assert up.stdout is not None
            line = up.stdout.readline().decode()
            if not line.startswith(READY):
                raise CheckError(f"the stack did not start:\n{log_tail(log)}")
            yield line.removeprefix(READY).strip()
        finally:
            stop(up)
    if up.returncode != 0:
        raise CheckError(f"the stack did not stop cleanly (exit {up.returncode})")


def log_tail(log: Path) -> str:
    """Its last lines."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])

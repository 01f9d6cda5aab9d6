"""A real engine on this machine's device: what every engine keeps to, and children replaced."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from scripts.gpu.machine import CheckError, Machine, Probe
from scripts.gpu.recycling import Recycled, check_spoken, running_stack, speak
from scripts.stack.parts import ROOT
from voicemill.answers import Item
from voicemill.client import Client
from voicemill.settings import PREFIX

EAGER = {
    "BATCH_SECONDS": "0.001",
    "HOST_MEMORY_LIMIT": "off",
    "LOAD_TIMEOUT_SECONDS": "600",
    "MAX_ITEMS_PER_CHILD": "8",
    "MAX_SLOWDOWN": "off",
    "MIN_AGE_SECONDS": "0.001",
}
"""Settings of a child that leaves after a few items."""
RECYCLES = 2
MOST_SECONDS = 1200.0
SUITE = ("-m", "pytest", "-q", "--no-header", "-m", "", "-p", "no:cacheprovider", "--timeout=600")
OUTCOMES = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


@dataclass(frozen=True, slots=True)
class Subject:
    """The engine that is tried."""

    name: str
    options: Mapping[str, Any]
    python: Path | None = None
    """The interpreter that it runs in, where that is not this one."""


def conform(machine: Machine, subject: Subject) -> dict[str, int]:
    """How many tests of the conformance suite ended in which way; what failed is printed."""
    flags = ["--engine", subject.name, "--engine-options", json.dumps(subject.options)]
    if subject.python is not None:
        flags += ["--engine-python", str(subject.python)]
    ended = subprocess.run(
        [sys.executable, *SUITE, *flags, "tests/conformance/test_conformance.py"],
        env=machine.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    lines = ended.stdout.splitlines()
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(f"       {line}", file=sys.stderr)
    counts = {kind.rstrip("s"): int(count) for count, kind in OUTCOMES.findall(lines[-1])}
    if not counts:
        raise CheckError(f"the suite did not run: {' / '.join(lines[-3:])}")
    return counts


@dataclass(frozen=True, slots=True)
class Work:
    """What a stack with the engine did."""

    recycled: Recycled
    start_seconds: float
    """From the command to readiness."""
    audio_seconds: float
    device_seconds: float

    @property
    def real_time(self) -> float:
        """Seconds of audio for one of the device."""
        return self.audio_seconds / self.device_seconds if self.device_seconds else 0.0

    @property
    def warmup_seconds(self) -> float:
        """Of the successors, in the middle."""
        return statistics.median(one["warmup_seconds"] or 0.0 for one in self.recycled.recycles)


def work(machine: Machine, observer: Probe, subject: Subject) -> Work:
    """Speak until a few children were replaced.

    Raises ``CheckError`` unless each item was spoken once and the memory came back at the end.
    """
    before = observer.used()
    own = {} if subject.python is None else {"ENGINE_PYTHON": str(subject.python)}
    settings = {**EAGER, **own}
    env = {**machine.env, **{PREFIX + name: value for name, value in settings.items()}}
    recycles: dict[int, dict[str, Any]] = {}
    items: list[Item] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="voicemill-gpu-") as folder:
        with running_stack(env, Path(folder), subject.name, subject.options) as url:
            start_seconds = time.monotonic() - began
            with Client(url) as client:
                while len(recycles) < RECYCLES:
                    items += speak(client, recycles, began + MOST_SECONDS)
            audio, device = (seconds_of(url, kind) for kind in ("audio", "device"))
        check_spoken(items)
    observer.wait_for(before + machine.small)
    done = Recycled(list(recycles.values()), len(items))
    return Work(done, start_seconds, audio, device)


def seconds_of(url: str, kind: str) -> float:
    """What a counter of ``/metrics`` has come to."""
    answer = httpx.get(f"{url}/metrics", timeout=10, trust_env=False).raise_for_status()
    name = rf"^voicemill_{kind}_seconds_total(?:{{[^}}]*}})? (\S+)$"
    return sum(map(float, re.findall(name, answer.text, re.MULTILINE)))

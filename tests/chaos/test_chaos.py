"""Everything that can go wrong does, while items run; from outside, each item ends once.

The seed is logged first, with the plan that follows from it; ``CHAOS_SEED`` in the environment
repeats a run's plan. After each round the stack is stopped and started again on its home: the
supervisor waits longer before each further start of a part that keeps dying, up to half a minute,
and nothing is proved by waiting for that.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.auditor import ClientLog, audit
from tests.chaos.hands import Hands
from tests.chaos.plan import Burst, count, plan
from tests.chaos.proxy import Proxy
from tests.chaos.trace import check
from tests.e2e.stack import Stack
from tests.e2e.watch import Watcher
from tests.support import Valkey, wait_until

logger = logging.getLogger(__name__)

ROUNDS = 3 if os.environ.get("CI") else 20
FAULTS_PER_ROUND = 10
PLAIN, NOW, STOPPED, BROKEN = 430, 10, 40, 20
"""Items of a round: plain ones, some that somebody waits for, a job that is cancelled, and one
half of which fails whatever is done."""
MOST_ATTEMPTS = 12
SECONDS_PER_ITEM = 0.05
OPTIONS = json.dumps({"seconds_per_segment": SECONDS_PER_ITEM})
DISK = "size=1g"
ENVIRON = {
    "VOICEMILL_LEASE_SECONDS": "5",
    "VOICEMILL_MAX_ATTEMPTS": str(MOST_ATTEMPTS),
    "VOICEMILL_RETRY_SECONDS": "off",
    "VOICEMILL_SWEEP_SECONDS": "15",
    "VOICEMILL_FREE_SPACE_FLOOR_MB": "16",
}
WHOLE_HISTORY = ("--auto-aof-rewrite-percentage", "0")
FAILS = "{tone:fail} Fails."


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_item_ends_once_whatever_goes_wrong(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
    (tmp_path / "valkey").mkdir()
    server = Valkey(tmp_path / "valkey", *WHOLE_HISTORY)
    server.start()
    with small_disk(tmp_path / "disk") as (disk, can_fill), Proxy(server.port) as wire:
        outputs = disk / "outputs"
        where = {"VOICEMILL_REDIS_URL": wire.url, "VOICEMILL_OUTPUT_DIR": str(outputs)}
        stack = Stack(
            tmp_path / "home",
            *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
            env={**ENVIRON, **where},
        )
        try:
            run = Run(stack, server, Hands(stack, server, wire, disk, seed), tmp_path)
            stack.start()
            rounds = plan(seed, ROUNDS, FAULTS_PER_ROUND, can_fill=can_fill)
            logger.warning("seed %d: %d rounds of %d faults", seed, ROUNDS, FAULTS_PER_ROUND)
            for number, bursts in enumerate(rounds, 1):
                run.round(number, bursts)
            run.end()
            ends = audit(stack, run.log, outputs, MOST_ATTEMPTS)
        finally:
            assert stack.stop() == 0
            server.stop()
    trace = check(server.folder)
    logger.warning("%s; %d moves, %d attempts at most", ends, trace.moves, trace.most_attempts)
    assert run.faults == ROUNDS * FAULTS_PER_ROUND
    assert ends["succeeded"] >= ROUNDS * (PLAIN + NOW + BROKEN // 2)
    assert ends["failed"] == ROUNDS * BROKEN // 2


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A file system of its own that can be filled, or just a folder where none may be mounted."""
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(folder))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        logger.warning("no file system may be mounted here: the disk does not fill up")
        yield folder, False
        return
    try:
        yield folder, True
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True)


class Run:
    """Jobs of a client, round after round, under faults."""

    def __init__(self, stack: Stack, server: Valkey, hands: Hands, folder: Path) -> None:
        self.log = ClientLog(folder / "client.jsonl")
        self.faults = 0
        """That fell while items ran."""
        self._stack = stack
        self._server = server
        self._hands = hands
        self._jobs: list[str] = []
        self._broken: list[str] = []
        self._began = time.monotonic()

    def round(self, number: int, bursts: list[Burst]) -> None:
        """One round of jobs and faults; the stack is new after it."""
        stopped = self._submit(
            [f"Stop {number}.{n}." for n in range(STOPPED)], "succeeded", "cancelled"
        )
        plain = self._submit([f"Line {number}.{n}." for n in range(PLAIN)], "succeeded")
        self._submit(
            [f"Now {number}.{n}." for n in range(NOW)], "succeeded", job_class="interactive"
        )
        # Half of them can never be spoken.
        half = BROKEN // 2
        texts = [f"Half {number}.{n}." for n in range(half)]
        broken = self._stack.submit([*texts, *[FAILS] * half])
        self.log.write(broken, texts, "succeeded")
        self.log.write(broken, [FAILS] * half, "failed", first=half)
        self._jobs.append(broken)
        self._broken.append(broken)
        with Watcher(self._server.url, plain) as watcher:
            done = 0
            for burst in bursts:
                self._wait_for_some(plain, done)
                logger.warning("  %s", ", ".join(map(str, burst.faults)))
                self._hands.do(burst)
                done += len(burst.faults) * PLAIN // (FAULTS_PER_ROUND + 2)
                assert self._stack.job(plain)["status"] in {"queued", "in_progress"}
                self.faults += len(burst.faults)
                self._stack.request("POST", f"/v1/jobs/{stopped}/cancel")
        self._hands.rest()
        logger.warning(
            "round %d of %d: %d faults, %d items of %d ended, %.0f s",
            *(number, ROUNDS, count(bursts), watcher.looks[-1], PLAIN),
            time.monotonic() - self._began,
        )
        assert self._stack.stop() == 0
        self._stack.start()

    def end(self) -> None:
        """All comes to its end; what failed runs again, and fails again."""
        for job in self._jobs:
            self._stack.wait_for(job, 600)
        for job in self._broken:
            assert self._stack.request("POST", f"/v1/jobs/{job}/retry").status_code == 202
        for job in self._broken:
            assert self._stack.wait_for(job, 120)["run"] == 2

    def _submit(self, texts: list[str], *may_end: str, job_class: str | None = None) -> str:
        fields = {} if job_class is None else {"class": job_class}
        job = self._stack.submit(texts, **fields)
        self.log.write(job, texts, *may_end)
        self._jobs.append(job)
        return job

    def _wait_for_some(self, job: str, least: int) -> None:
        wait_until(
            lambda: self._stack.job(job)["request_counts"]["completed"] >= least,
            120,
            f"{least} items of {job}",
        )

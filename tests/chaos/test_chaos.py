"""Everything that can go wrong does, while items run; from outside, each item ends once.

The seed is logged first, then each burst of the plan that follows from it; ``CHAOS_SEED`` in the
environment repeats a run's plan. After each round the stack is stopped and started again on its
home: the supervisor waits longer before each further start of a part that keeps dying, up to half a
minute, and nothing is proved by waiting for that.
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

from tests.chaos.auditor import audit
from tests.chaos.client import read_log
from tests.chaos.hands import Hands
from tests.chaos.plan import LEASE_SECONDS, plan
from tests.chaos.proxy import Proxy
from tests.chaos.run import DELETED, FAILING, STOPPED, Run, Size
from tests.chaos.trace import check
from tests.e2e.stack import Stack
from tests.support import Valkey

logger = logging.getLogger(__name__)

IS_CI = bool(os.environ.get("CI"))
SIZE = Size(rounds=3, faults=10, items=1500) if IS_CI else Size(rounds=20, faults=10, items=10_000)
MOST_ATTEMPTS = 5
OPTIONS = json.dumps({"seconds_per_segment": 0.05})
CACHE_MB = 4
"""Room for a few hundred items: most of what is kept has to go again."""
DISK_MB = 96 + SIZE.items // 20
"""Room for the audio of all items and what waits for the sweep, above the floor below."""
ENVIRON = {
    "VOICEMILL_REQUIRE_API_KEY": "on",
    "VOICEMILL_LEASE_SECONDS": str(LEASE_SECONDS),
    "VOICEMILL_MAX_ATTEMPTS": str(MOST_ATTEMPTS),
    "VOICEMILL_RETRY_SECONDS": "off",
    "VOICEMILL_SWEEP_SECONDS": "12",
    "VOICEMILL_FREE_SPACE_FLOOR_MB": "16",
    "VOICEMILL_CACHE_MB": str(CACHE_MB),
}
WHOLE_HISTORY = ("--auto-aof-rewrite-percentage", "0")
"""Nor is it rewritten for what was deleted: that has an hour, which no run takes."""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_item_ends_once_whatever_goes_wrong(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
    logger.warning("seed %d: %d rounds of %d faults", seed, SIZE.rounds, SIZE.faults)
    (tmp_path / "valkey").mkdir()
    server = Valkey(tmp_path / "valkey", *WHOLE_HISTORY)
    server.start()
    log = tmp_path / "client.jsonl"
    with small_disk(tmp_path / "disk") as (disk, can_fill), Proxy(server.port) as wire:
        outputs = disk / "outputs"
        where = {"VOICEMILL_REDIS_URL": wire.url, "VOICEMILL_OUTPUT_DIR": str(outputs)}
        stack = Stack(
            tmp_path / "home",
            *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
            env={**ENVIRON, **where},
        )
        stack.start()
        try:
            run = Run(SIZE, stack, server, Hands(stack, server, wire, disk), log)
            rounds = plan(seed, SIZE.rounds, SIZE.faults, can_fill=can_fill)
            for number, bursts in enumerate(rounds, 1):
                run.round(number, bursts)
            run.end()
            found = audit(run.tenants, read_log(log), outputs, MOST_ATTEMPTS, CACHE_MB * 2**20)
        finally:
            assert stack.stop() == 0
            server.stop()
    trace = check(server.folder)
    logger.warning("%s; %d moves, %d attempts at most", found, trace.moves, trace.most_attempts)
    ends = found.ends
    assert run.faults == SIZE.rounds * SIZE.faults
    assert sum(ends.values()) == SIZE.items
    assert ends["failed"] == SIZE.rounds * FAILING
    assert ends["deleted"] == SIZE.rounds * DELETED
    assert found.shared > 0
    assert found.cached_bytes <= CACHE_MB * 2**20 < found.spoken_bytes
    # The job of a round that is retried is joined after each of its runs.
    assert trace.joined == 2 * SIZE.rounds
    assert 0 < ends["cancelled"] < SIZE.rounds * STOPPED


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, bool]]:
    """A file system of its own that can be filled, or just a folder where none may be mounted."""
    folder.mkdir()
    size = f"size={DISK_MB}m"
    mount = ("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        assert not IS_CI, "no file system may be mounted here, and CI leaves no fault out"
        logger.warning("no file system may be mounted here: the disk does not fill up")
        yield folder, False
        return
    try:
        yield folder, True
    finally:
        subprocess.run(("umount", "-l", str(folder)), check=True)

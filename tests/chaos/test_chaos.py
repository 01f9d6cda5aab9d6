"""Random parts are killed while items run; from outside, each item is seen to end once.

The seed is logged first, then each round; ``CHAOS_SEED`` in the environment repeats a run's
choices. Kills come in bursts, so that some fall on a stack that is still getting up. After each
round the stack itself is stopped and started again on its home: the supervisor waits longer
before each further start of a part that keeps dying, up to half a minute, and nothing is proved
by waiting for that.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from pathlib import Path

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.e2e.watch import Watcher
from tests.support import wait_until

logger = logging.getLogger(__name__)

ROUNDS = 2 if os.environ.get("CI") else 20
FAULTS_PER_ROUND = 5
ITEMS_PER_ROUND = 300
PARTS = ("child", "child", "worker", "redis", "api", "clerk")
BURST = 3
PAUSE_SECONDS = (0.0, 1.5)
SECONDS_PER_ITEM = 0.05
"""Two children then need a good second for the items that belong to one fault."""
OPTIONS = json.dumps({"seconds_per_segment": SECONDS_PER_ITEM})
ENVIRON = {
    "VOICEMILL_LEASE_SECONDS": "5",
    "VOICEMILL_MAX_ATTEMPTS": "20",
}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_item_ends_once_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
    # As many again as a round needs, so that the last kill falls while items run.
    items, faults = (ROUNDS + 1) * ITEMS_PER_ROUND, ROUNDS * FAULTS_PER_ROUND
    logger.warning("seed %d: %d items, %d faults", seed, items, faults)
    choose = random.Random(seed)
    began = time.monotonic()
    stack = Stack(
        tmp_path / "home",
        *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
        env=ENVIRON,
    )
    stack.start()
    try:
        job_id = stack.submit([f"Line number {number}." for number in range(items)])
        watcher = Watcher(stack.home, job_id)
        for number in range(ROUNDS):
            with watcher:
                hurt(stack, job_id, number * ITEMS_PER_ROUND, choose)
            logger.warning(
                "round %d of %d: %d items ended, %d s",
                *(number + 1, ROUNDS, watcher.looks[-1], time.monotonic() - began),
            )
            assert stack.stop() == 0
            stack.start()
        with watcher:
            ended = audit(stack, job_id, items, seconds=600)
        assert {item["status"] for item in ended} == {"succeeded"}
    finally:
        assert stack.stop() == 0


def hurt(stack: Stack, job_id: str, done: int, choose: random.Random) -> None:
    """Kill parts, in bursts, the first once ``done`` items are done; the job must not end."""
    killed = 0
    while killed < FAULTS_PER_ROUND:
        wait_for_some(stack, job_id, done + killed * ITEMS_PER_ROUND // FAULTS_PER_ROUND)
        for _ in range(min(choose.randint(1, BURST), FAULTS_PER_ROUND - killed)):
            kill_one(stack, choose)
            killed += 1
            time.sleep(choose.uniform(*PAUSE_SECONDS))
    assert stack.job(job_id)["status"] == "in_progress"


def wait_for_some(stack: Stack, job_id: str, least: int) -> None:
    """Wait until so many items are done."""
    wait_until(
        lambda: stack.job(job_id)["request_counts"]["completed"] >= least,
        120,
        f"{least} items of {job_id}",
    )


def kill_one(stack: Stack, choose: random.Random) -> None:
    """Kill one part that is there to be killed."""

    def kill() -> bool:
        part = choose.choice(PARTS)
        if part != "child":
            return stack.kill_part(part)
        children = stack.children()
        return bool(children) and stack.kill_pid(choose.choice(children))

    wait_until(kill, 60, "a part to kill")

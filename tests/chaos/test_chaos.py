"""Random parts are killed while items run; an audit from outside finds each item once.

The seed is logged; ``CHAOS_SEED`` in the environment repeats a run's choices.
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

logger = logging.getLogger(__name__)

ITEMS, FAULTS = (1000, 10) if os.environ.get("CI") else (6000, 100)
PARTS = ("child", "child", "worker", "redis", "api", "clerk")
PAUSE_SECONDS = (0.5, 2.5)
OPTIONS = json.dumps({"seconds_per_segment": 0.05})


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_item_ends_once_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
    logger.warning("seed %d: %d items, %d faults", seed, ITEMS, FAULTS)
    choose = random.Random(seed)
    stack = Stack(
        tmp_path / "home",
        *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
        env={"VOICEMILL_LEASE_SECONDS": "5", "VOICEMILL_MAX_ATTEMPTS": "20"},
    )
    stack.start()
    try:
        job_id = stack.submit([f"Line number {number}." for number in range(ITEMS)])
        faults = 0
        while faults < FAULTS and stack.job(job_id)["status"] != "completed":
            time.sleep(choose.uniform(*PAUSE_SECONDS))
            faults += hurt(stack, choose.choice(PARTS), choose)
        assert faults >= FAULTS, f"the items were done after {faults} faults (seed {seed})"
        items = audit(stack, job_id, ITEMS, seconds=600)
        assert {item["status"] for item in items} == {"succeeded"}
    finally:
        assert stack.stop() == 0


def hurt(stack: Stack, part: str, choose: random.Random) -> int:
    """Kill a part; 0 when it was not there to be killed."""
    if part != "child":
        return int(stack.kill_part(part))
    children = stack.children()
    return int(bool(children) and stack.kill_pid(choose.choice(children)))

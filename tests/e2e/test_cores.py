"""A child, and its engine's own process, run on the cores beside its device."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once


@pytest.mark.full
@pytest.mark.parametrize(
    "python", [None, sys.executable], ids=["in the child", "in its own Python"]
)
def test_a_child_keeps_to_its_cores_and_its_parent_does_not(
    python: str | None, tmp_path: Path, redis_url: str
) -> None:
    allowed = os.sched_getaffinity(0)
    own = {} if python is None else {"VOICEMILL_ENGINE_PYTHON": python}
    with SoloWorker(redis_url, tmp_path, VOICEMILL_CORES=str(min(allowed)), **own) as worker:
        assert_each_spoken_once(worker.wait_for(worker.submit("One.")))
        child = worker.the_child()["pid"]
        started = [int(pid) for pid in children_of(child)]
        assert bool(started) is (python is not None)
        assert {frozenset(os.sched_getaffinity(pid)) for pid in (child, *started)} == {
            frozenset({min(allowed)})
        }
        assert os.sched_getaffinity(worker.pid) == allowed
        assert worker.stop() == 0


def children_of(pid: int) -> list[str]:
    """Pids of the processes that one of its threads started."""
    return [
        pid
        for task in Path(f"/proc/{pid}/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]

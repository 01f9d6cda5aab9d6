"""Sessions of a real worker: none is open once nothing runs, whatever happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker
from voicemill.jobs import ItemStatus


def sessions_of(worker: SoloWorker) -> list[tuple[int, int]]:
    """Opened and destroyed, of each child that is heard of."""
    return [
        (one["sessions"]["opened"], one["sessions"]["destroyed"])
        for one in worker.store.snapshot().children
    ]


def counted(worker: SoloWorker) -> dict[str, int]:
    """What the counters say."""
    name = "voicemill_sessions_total"
    return {labels["event"]: int(n) for one, labels, n in worker.store.metrics() if one == name}


@pytest.mark.full
def test_no_session_is_open_at_idle_after_items_that_ended_well_badly_or_by_a_kill(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        worker.wait_for(worker.submit("One.", "Two.{tone:silence}", "Three."))
        worker.wait_until("the counters", lambda: counted(worker).get("destroyed", 0) >= 5)
        assert sessions_of(worker) == [(5, 5)], "a silent one has three attempts"

        job_id = worker.submit("Slow.{tone:seconds=2}")
        worker.wait_until("an open one", lambda: sessions_of(worker) == [(6, 5)])
        (child,) = worker.processes("ready", "busy")
        os.kill(child.pid, signal.SIGKILL)
        (item,) = worker.wait_for(job_id)
        assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 2)
        worker.wait_until("the next child's", lambda: sessions_of(worker) == [(1, 1)])
        assert counted(worker) == {"opened": 7, "destroyed": 6}, "one went with its child"
        assert worker.stop() == 0

"""Nodes whose clocks are off agree, since only the server's clock counts."""

from __future__ import annotations

import time

import pytest

from tests.core.device import CENT_A_CHARACTER
from tests.support import TONE, inputs
from voicemill.jobs import ItemAudio, JobRules, JobStatus
from voicemill.store import Store
from voicemill.workers import ChildRecord

SPOKEN = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.0, 24000, 1.0, "tone", "1")
HOURS_OFF = 2 * 3600.0
LEASE_SECONDS, DEADLINE_SECONDS = 60.0, 600.0


@pytest.mark.parametrize("off", [-HOURS_OFF, HOURS_OFF])
def test_a_node_whose_clock_is_off_takes_no_lease_and_stops_no_job_too_early_or_late(
    store: Store, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    began, clock = time.time(), time.time
    monkeypatch.setattr(time, "time", lambda: clock() + off)
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job(
        "job_1", "ann", inputs("a"), {}, rules=JobRules(deadline_seconds=DEADLINE_SECONDS)
    )
    (admitted,) = store.admit("tone", CENT_A_CHARACTER, 1.0, most=1)
    task = store.start_task(admitted.id, "c", LEASE_SECONDS)
    assert task is not None
    store.start_items(task, [0], LEASE_SECONDS)
    monkeypatch.undo()

    assert store.reap(max_attempts=3) == 0
    assert store.expire_jobs() == 0
    due = store._redis.zscore("voicemill:deadlines", "job_1")
    assert float(due or 0) == pytest.approx(began + DEADLINE_SECONDS, abs=5)

    monkeypatch.setattr(time, "time", lambda: clock() + off)
    assert store.succeed_item(task, 0, SPOKEN)
    store.end_task(task, max_attempts=3)
    job, (item,) = store.job("job_1"), store.items("job_1")
    assert job.status is JobStatus.COMPLETED
    for at in (job.created_at, job.completed_at, item.started_at, item.completed_at):
        assert at == pytest.approx(began, abs=5)

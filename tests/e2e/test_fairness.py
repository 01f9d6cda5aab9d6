"""Three tenants on real children: one with far too much, one with much, one that is waited for."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.solo import SoloWorker, tone
from tests.support import inputs
from voicemill.fairness import JobClass, Standing
from voicemill.jobs import Item, ItemStatus, JobStatus, new_job_id

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

SECONDS_PER_CHARACTER = 0.001
LONG, SHORT, NOW = "x" * 50, "x" * 20, "Now."
BATCH_SECONDS = 1.0
JOBS, JOB_ITEMS, SHORT_ITEMS = 10, 10_000, 2000
BACKLOGGED = range(200, 1800)
"""Short rows that are done while shares are measured: after the first batches, before the last."""
PAUSE_SECONDS = 1.1
"""Between two that are waited for; no multiple of a batch."""
MOST_WAIT_BATCHES = 1.5
CANCEL_SECONDS = 2.0


class Tenants(SoloWorker):
    """One worker with two children, and what its tenants have."""

    def add(self, tenant: str, text: str, count: int, standing: Standing | None = None) -> str:
        """A job of a tenant; gives its id."""
        job_id = new_job_id()
        items = inputs(*[text] * count)
        standing = standing or Standing()
        self.store.create_job(job_id, tenant, items, {}, standing=standing, reuse=False)
        return job_id

    def device_seconds(self, job_ids: list[str]) -> float:
        """Of all these jobs."""
        return sum(self.store.job(job_id).device_seconds for job_id in job_ids)


def test_a_hundred_thousand_long_rows_leave_half_to_short_ones_and_nobody_waits_who_is_waited_for(
    tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_WORKERS": "2", "VOICEMILL_BATCH_SECONDS": str(BATCH_SECONDS)}
    env |= tone(seconds_per_character=SECONDS_PER_CHARACTER)
    with Tenants(redis_url, tmp_path, **env) as worker:
        worker.wait_until("two children", lambda: len(worker.processes("ready")) == 2)
        store = worker.store
        large = [worker.add("large", LONG, JOB_ITEMS) for _ in range(JOBS)]
        short = worker.add("short", SHORT, SHORT_ITEMS)
        sent: list[str] = []
        marks: list[tuple[float, float]] = []
        for done in (BACKLOGGED.start, BACKLOGGED.stop):
            while store.job(short).counts.succeeded < done:
                sent.append(worker.add("now", NOW, 1, Standing(JobClass.INTERACTIVE)))
                worker.tick()
                time.sleep(PAUSE_SECONDS)
            marks.append((worker.device_seconds(large), worker.device_seconds([short])))
        of_large, of_short = (after - before for before, after in zip(*marks, strict=True))
        assert of_short / (of_large + of_short) == pytest.approx(0.5, abs=0.05)

        waits = []
        for job_id in sent:
            (item,) = worker.wait_for(job_id)
            assert item.started_at is not None
            waits.append((item.started_at - store.job(job_id).created_at) / BATCH_SECONDS)
        assert len(waits) >= 20
        assert float(np.percentile(waits, 95)) <= MOST_WAIT_BATCHES
        worker.wait_for(short)
        assert store.job(short).counts.succeeded == SHORT_ITEMS

        spoken = sum(store.job(job_id).counts.succeeded for job_id in large)
        assert 0 < spoken < JOBS * JOB_ITEMS // 10
        assert_cancelled_at_once(worker, large)
        assert worker.stop() == 0


def assert_cancelled_at_once(worker: Tenants, job_ids: list[str]) -> None:
    """What waits ends in no time, however much it is, and all is counted."""
    store = worker.store
    began = time.monotonic()
    for job_id in job_ids:
        store.cancel(job_id)
    assert time.monotonic() - began < CANCEL_SECONDS
    assert store.snapshot().queued == {"tone": 0}
    worker.wait_until("their end", lambda: all(map(worker.has_ended, job_ids)))
    for job_id in job_ids:
        job = store.job(job_id)
        assert job.status is JobStatus.CANCELLED
        assert (job.counts.queued, job.counts.in_progress, job.counts.failed) == (0, 0, 0)
        assert job.counts.succeeded + job.counts.cancelled == JOB_ITEMS
        ends = Counter(item.status for item in all_items(worker, job_id))
        assert ends[ItemStatus.SUCCEEDED] == job.counts.succeeded
        assert ends[ItemStatus.CANCELLED] == job.counts.cancelled


def all_items(worker: Tenants, job_id: str) -> list[Item]:
    """Page by page."""
    items: list[Item] = []
    while page := worker.store.items(job_id, after=len(items) - 1, limit=1000):
        items += page
    return items

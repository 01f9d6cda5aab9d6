"""A running item of a cancelled job: let go after its segment, or its child is ended."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.stack import Worker
from tests.support import inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.jobs import ItemStatus, JobStatus
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store

pytestmark = pytest.mark.full

CALL_SECONDS = 0.2 * 4
"""That the engine speaks on: the longest segments of one call, below."""
CANCEL_SECONDS = 1.0


def submit(store: Store, url: str, job_id: str, *texts: str) -> None:
    store.create_job(job_id, "default", inputs(*texts), {})
    settings = Settings(redis_url=url, engine="tone")
    Dispatcher(store, Queue(settings), settings).admit()


def wait_for(store: Store, job_id: str, status: ItemStatus | JobStatus) -> None:
    wait_until(
        lambda: status in {store.job(job_id).status, store.item(job_id, "row-000001").status},
        15,
        f"{status} of {job_id}",
    )


def test_an_item_that_hangs_ends_with_its_child_and_the_next_one_works(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    with Worker(redis_url, tmp_path, VOICEMILL_CANCEL_GRACE_SECONDS="1") as worker:
        submit(store, redis_url, "job_1", "It hangs {tone:hang} here.")
        wait_for(store, "job_1", ItemStatus.IN_PROGRESS)

        store.cancel("job_1")

        wait_for(store, "job_1", JobStatus.CANCELLED)
        item = store.item("job_1", "row-000001")
        assert (item.status, item.attempts) == (ItemStatus.CANCELLED, 1)
        assert "holds on to a stopped job and is killed" in worker.log
        submit(store, redis_url, "job_2", "The next one.")
        wait_for(store, "job_2", JobStatus.COMPLETED)


def test_an_item_of_many_segments_ends_after_the_one_in_hand_and_its_child_stays(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    with Worker(redis_url, tmp_path, VOICEMILL_CANCEL_GRACE_SECONDS="14") as worker:
        submit(store, redis_url, "job_1", "A sentence {tone:seconds=0.2} of some length. " * 200)
        wait_for(store, "job_1", ItemStatus.IN_PROGRESS)
        (child,) = store.snapshot().children

        store.cancel("job_1")

        began = time.monotonic()
        wait_for(store, "job_1", JobStatus.CANCELLED)
        assert time.monotonic() - began < CALL_SECONDS + CANCEL_SECONDS
        assert [one["pid"] for one in store.snapshot().children] == [child["pid"]]
        assert "is killed" not in worker.log
        assert [path for path in tmp_path.rglob("*.wav")] == []

"""Children leave for each reason, between batches, and nothing is lost by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.stack import Worker
from tests.support import inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.jobs import ItemStatus, JobStatus, new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store

REASONS = {
    "tasks": {"VOICEMILL_MAX_TASKS_PER_CHILD": "2"},
    "items": {"VOICEMILL_MAX_ITEMS_PER_CHILD": "2"},
    "age": {"VOICEMILL_MAX_AGE_SECONDS": "0.01"},
    "host_memory": {
        "VOICEMILL_HOST_MEMORY_LIMIT": "1.3x",
        "VOICEMILL_MEMORY_CHECK_SECONDS": "0.01",
        "VOICEMILL_ENGINE_OPTIONS": json.dumps({"leak_host_mb": 20}),
    },
    "celery_max_memory": {
        "VOICEMILL_HOST_MEMORY_LIMIT": "10MiB",
        "VOICEMILL_MEMORY_CHECK_SECONDS": "0.01",
    },
}
COUNTED = {"items": "tasks", "celery_max_memory": "host_memory"}


@pytest.mark.parametrize("cause", REASONS)
def test_a_child_leaves_between_batches_and_each_item_is_spoken_once(
    cause: str, tmp_path: Path, redis_url: str, store: Store
) -> None:
    settings = Settings.from_env({"VOICEMILL_REDIS_URL": redis_url, "VOICEMILL_ENGINE": "tone"})
    with Worker(redis_url, tmp_path, **REASONS[cause]) as worker:
        job_id = new_job_id()
        store.create_job(job_id, "default", inputs(*(f"Line {n}." for n in range(6))), {})
        dispatcher = Dispatcher(store, Queue(settings), settings)

        def has_completed() -> bool:
            dispatcher.resend()
            dispatcher.admit()
            return store.job(job_id).status is JobStatus.COMPLETED

        wait_until(has_completed, 60, "the end of the job")
        assert worker.stop() == 0
    items = store.items(job_id)
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    assert {item.attempts for item in items} == {1}
    reason = COUNTED.get(cause, cause)
    recycles = {labels["reason"]: n for name, labels, n in store.metrics() if "recycles" in name}
    assert list(recycles) == [reason]
    assert f"recycles: {reason}" in worker.log


def test_an_engine_that_cannot_load_ends_the_worker_and_says_why(
    tmp_path: Path, redis_url: str
) -> None:
    options = json.dumps({"no_such_option": 1})
    with Worker(redis_url, tmp_path, VOICEMILL_ENGINE_OPTIONS=options) as worker:
        wait_until(lambda: worker.exit_status is not None, 30, "the end of the worker")
        assert worker.exit_status == 4
        assert "no_such_option" in worker.log

"""The output folder goes away under a worker and comes back: nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.stack import Worker
from tests.support import inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.health import observe
from voicemill.jobs import JobStatus
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store

pytestmark = pytest.mark.full


def test_an_empty_mount_point_is_not_written_to_and_all_goes_on_once_it_is_mounted(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    outputs = tmp_path / "outputs"
    settings = Settings(redis_url=redis_url, engine="tone", home=tmp_path, output_dir=outputs)
    dispatcher = Dispatcher(store, Queue(settings), settings)
    with Worker(redis_url, tmp_path):
        store.create_job(
            "job_1", "default", inputs(*(f"Line {n} {{tone:seconds=0.5}}." for n in range(8))), {}
        )
        dispatcher.admit()
        wait_until(lambda: store.job("job_1").counts.succeeded >= 1, what="a first item")
        outputs.rename(tmp_path / "unmounted")
        outputs.mkdir()

        wait_until(lambda: store.snapshot().slots == {"tone": 0}, what="dispatch to pause")
        store.create_job("job_2", "default", inputs("Two."), {})
        assert dispatcher.admit() == 0
        wait_until(lambda: store.job("job_1").counts.in_progress == 0, what="the batch in hand")
        health = observe(store, settings)
        (lack,) = [check for check in health.checks if check.name == "children"]
        assert "is not the folder that audio was written to" in lack.detail
        assert not health.ready
        assert list(outputs.iterdir()) == []
        waiting = [item for item in store.items("job_1") if item.status == "queued"]
        assert waiting
        assert {item.attempts for item in waiting} == {0}

        outputs.rmdir()
        (tmp_path / "unmounted").rename(outputs)

        wait_until(lambda: store.snapshot().slots == {"tone": 1}, what="dispatch to go on")
        for job_id in ("job_1", "job_2"):

            def ended(job_id: str = job_id) -> bool:
                dispatcher.admit()
                return store.job(job_id).status is JobStatus.COMPLETED

            wait_until(ended, 20, f"the end of {job_id}")
            assert {item.attempts for item in store.items(job_id)} == {1}

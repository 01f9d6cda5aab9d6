"""A worker that takes no more work notices, and leaves to be started anew; nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from celery import Celery

from tests.e2e import tampering
from tests.e2e.solo import SoloWorker, assert_each_spoken_once
from voicemill.jobs import ItemStatus
from worker.exits import EXIT_STUCK

pytestmark = pytest.mark.full

STUCK_SECONDS = 5.0
LONG = "{tone:seconds=14} Longer than the worker looks on."


def broken(redis_url: str, folder: Path, **env: str) -> SoloWorker:
    """A worker that can be broken."""
    folder.mkdir(exist_ok=True)
    limits = {"VOICEMILL_STUCK_SECONDS": str(STUCK_SECONDS), **env}
    return SoloWorker(redis_url, folder, "-I", tampering.MODULE, "-l", "INFO", **limits)


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[SoloWorker]:
    """One that is to be broken."""
    with broken(redis_url, tmp_path / "broken") as worker:
        yield worker


def tell(worker: SoloWorker, redis_url: str, command: str) -> None:
    """Send a command of ``tampering``."""
    with Celery(broker=redis_url, set_as_current=False) as app:
        app.control.broadcast(command, destination=[worker.node])


def wait_for_its_end(worker: SoloWorker) -> None:
    """Until it has left by itself, with all its children."""
    children = psutil.Process(worker.pid).children()
    worker.wait_until("its end", lambda: worker.exit_status is not None, 60)
    assert worker.exit_status == EXIT_STUCK
    assert psutil.wait_procs(children, 5)[1] == []
    assert f"the worker leaves with status {EXIT_STUCK}" in worker.log


def begin(worker: SoloWorker, *texts: str) -> str:
    """Submit, and wait until the first text is being spoken; gives the job."""
    job_id = worker.submit(*texts)
    worker.wait_until(
        "its start", lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
    )
    return job_id


def test_a_worker_whose_loop_hangs_leaves_when_its_child_has_finished(
    worker: SoloWorker, redis_url: str
) -> None:
    job_id = begin(worker, LONG, "And another.")
    tell(worker, redis_url, "hang_the_loop")
    worker.wait_until("what it says", lambda: "It leaves: " in " ".join(worker.record.alerts))
    assert "event loop has not gone round for 5 s" in worker.record.alerts[-1]
    worker.wait_until("no slot", lambda: worker.store.snapshot().slots == {"tone": 0})
    assert worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
    wait_for_its_end(worker)
    assert "in hang_the_loop" in worker.log, "where it hangs"
    long, waiting = worker.store.items(job_id)
    assert (long.status, long.attempts) == (ItemStatus.SUCCEEDED, 1)
    assert (waiting.status, waiting.attempts) == (ItemStatus.QUEUED, 0)
    assert worker.store.snapshot().slots == {"tone": 0}
    assert worker.store.snapshot().workers == ()
    worker.start()
    assert_each_spoken_once(worker.wait_for(job_id))


def test_a_child_that_has_no_end_is_not_waited_for_longer_than_a_stop_may_take(
    redis_url: str, tmp_path: Path
) -> None:
    with broken(redis_url, tmp_path / "broken", VOICEMILL_STOP_SECONDS="2") as worker:
        job_id = begin(worker, "{tone:seconds=600} Endless.")
        tell(worker, redis_url, "hang_the_loop")
        wait_for_its_end(worker)
        assert "did not finish in time and are killed" in worker.log
        (item,) = worker.store.items(job_id)
        assert (item.status, item.attempts) == (ItemStatus.QUEUED, 1)


def test_what_a_hung_worker_would_have_taken_goes_to_another(
    worker: SoloWorker, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with SoloWorker(redis_url, tmp_path / "other") as other:
        tell(worker, redis_url, "hang_the_loop")
        jobs = [other.submit("Short.") for _ in range(6)]
        wait_for_its_end(worker)
        for job_id in jobs:
            assert_each_spoken_once(other.wait_for(job_id))


def test_a_lost_subscription_is_renewed(worker: SoloWorker, redis_url: str) -> None:
    tell(worker, redis_url, "lose_the_subscription")
    worker.wait_for(worker.submit("The last one that was on its way."))
    job_id = worker.submit("Nobody listens.")
    assert_each_spoken_once(worker.wait_for(job_id))
    assert "it subscribes again" in worker.log
    assert worker.exit_status is None


def test_a_worker_that_hears_no_message_leaves(worker: SoloWorker, redis_url: str) -> None:
    tell(worker, redis_url, "ask_no_more")
    worker.wait_for(worker.submit("The last one that it has asked for."))
    job_id = worker.submit("Nobody listens.", "Nor to this.")
    wait_for_its_end(worker)
    assert "did not reach this worker, for 5 s" in worker.log
    worker.start()
    items = worker.wait_for(job_id)
    assert_each_spoken_once(items)


def test_a_worker_that_is_busy_all_the_time_is_not_called_stuck(worker: SoloWorker) -> None:
    pid = worker.record.pid
    job_id = worker.submit(*(f"{{tone:seconds=1}} Line {number}." for number in range(12)))
    assert_each_spoken_once(worker.wait_for(job_id))
    assert worker.record.pid == pid
    assert "it subscribes again" not in worker.log

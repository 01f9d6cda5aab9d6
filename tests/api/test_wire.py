"""What is worked out on the way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.wire import percentage, retry_after, status_reason
from voicemill.health import Snapshot
from voicemill.jobs import Counts, Job, JobStatus


def job(status: JobStatus = JobStatus.IN_PROGRESS, *, done: int = 0, characters: int = 100) -> Job:
    """A job that began at second 10."""
    return Job(
        id="job_1",
        tenant="default",
        status=status,
        counts=Counts(),
        created_at=5.0,
        in_progress_at=10.0,
        input_characters=characters,
        done_characters=done,
        engines=("tone",),
    )


def with_slots(**slots: int) -> Snapshot:
    """A fleet of so many children that take work, by engine."""
    return Snapshot(at=20.0, clerks=1, children=(), slots=slots)


@pytest.mark.parametrize(
    ("done", "now", "seconds"),
    [(0, 500.0, 1), (50, 20.0, 10), (99, 20.0, 1), (1, 1000.0, 120), (50, 0.0, 1)],
)
def test_a_client_is_told_to_come_back_when_the_job_should_be_done(
    done: int, now: float, seconds: int
) -> None:
    assert retry_after(job(done=done), None, now) == seconds


@pytest.mark.parametrize(
    "status",
    [JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED],
)
def test_nobody_needs_to_come_back_to_a_job_that_ended(status: JobStatus) -> None:
    assert retry_after(job(status), None, 20.0) is None
    assert status_reason(job(status), with_slots()) is None


def test_a_job_that_is_stuck_is_looked_at_less_often() -> None:
    assert retry_after(job(JobStatus.QUEUED), "no_workers", 20.0) == 30


def test_a_job_lacks_workers_when_one_of_its_models_does() -> None:
    assert status_reason(job(), with_slots(tone=0, other=3)) == "no_workers"
    assert status_reason(job(), with_slots(tone=1)) is None


def test_a_job_waits_while_the_queue_is_paused() -> None:
    assert status_reason(job(), replace(with_slots(), paused=True)) == "queue_paused"


@pytest.mark.parametrize(("done", "characters", "share"), [(0, 0, 0.0), (1, 3, 33.3), (3, 3, 100)])
def test_progress_is_the_share_of_characters(done: int, characters: int, share: float) -> None:
    assert percentage(job(done=done, characters=characters)) == share

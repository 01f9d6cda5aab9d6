"""TERM finishes the batch in hand if it can, QUIT gives it back at once; nothing is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.solo import SoloWorker, tone
from tests.e2e.stack import alive
from tests.support import Valkey, wait_until
from voicemill.jobs import ItemStatus
from worker.exits import EXIT_ENDED

pytestmark = pytest.mark.full


def begin(worker: SoloWorker, *texts: str) -> str:
    """Submit, and wait until the first item is being spoken; gives the job."""
    job_id = worker.submit(*texts)
    worker.wait_until(
        "an item in hand",
        lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS,
    )
    return job_id


def end(worker: SoloWorker, number: signal.Signals) -> int | None:
    """Send a signal; gives the exit status once no process is left."""
    children = psutil.Process(worker.pid).children()
    os.kill(worker.pid, number)
    wait_until(lambda: worker.exit_status is not None, 25, f"the end of the worker\n{worker.log}")
    wait_until(lambda: not any(alive(child) for child in children), 10, "the end of its children")
    return worker.exit_status


def test_term_finishes_the_batch_in_hand_and_leaves_the_rest(
    tmp_path: Path, redis_url: str
) -> None:
    # Longer than this test waits: a stop that sleeps its whole time would not end.
    env = {"VOICEMILL_STOP_SECONDS": "600"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        job_id = begin(worker, "{tone:seconds=2} One.", *(f"Line {n}." for n in range(20)))
        assert end(worker, signal.SIGTERM) == 0
        first, *rest = worker.store.items(job_id)
        assert (first.status, first.attempts) == (ItemStatus.SUCCEEDED, 1)
        assert {(one.status, one.attempts) for one in rest} >= {(ItemStatus.QUEUED, 0)}
    with SoloWorker(redis_url, tmp_path, **env) as successor:
        assert {one.attempts for one in successor.wait_for(job_id)} == {1}
        assert end(successor, signal.SIGTERM) == 0


def test_term_gives_back_what_there_is_no_time_for(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path, VOICEMILL_STOP_SECONDS="1") as worker:
        job_id = begin(worker, "{tone:seconds=600} One.")
        assert end(worker, signal.SIGTERM) == 0
        (item,) = worker.store.items(job_id)
        assert (item.status, item.attempts) == (ItemStatus.QUEUED, 1)
        assert item.error is not None
        assert item.error.code == "worker_lost"


def test_quit_gives_back_at_once(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path, VOICEMILL_STOP_SECONDS="600") as worker:
        job_id = begin(worker, "{tone:seconds=600} One.")
        end(worker, signal.SIGQUIT)
        (item,) = worker.store.items(job_id)
        assert (item.status, item.attempts) == (ItemStatus.QUEUED, 1)


def test_term_ends_a_worker_whose_redis_hangs(tmp_path: Path, own_valkey: Valkey) -> None:
    env = {"VOICEMILL_STOP_SECONDS": "2", **tone(seconds_per_segment=0.5)}
    with SoloWorker(own_valkey.url, tmp_path, **env) as worker:
        begin(worker, *(f"Line {number}." for number in range(20)))
        assert own_valkey.process is not None
        own_valkey.process.send_signal(signal.SIGSTOP)
        try:
            children = psutil.Process(worker.pid).children()
            os.kill(worker.pid, signal.SIGTERM)
            wait_until(lambda: worker.exit_status is not None, 40, f"its end\n{worker.log}")
            assert worker.exit_status == EXIT_ENDED
            wait_until(lambda: not any(alive(child) for child in children), 10, "its children")
        finally:
            own_valkey.process.send_signal(signal.SIGCONT)

"""How work gets lost or comes twice elsewhere."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.support import Valkey, wait_until
from voicemill.dispatch import RECALL_SECONDS
from voicemill.jobs import Item, ItemStatus, JobStatus
from voicemill.queue import MESSAGE_PRIORITIES, UNACKED_PREFIX, list_name

pytestmark = pytest.mark.full

LONG, LONGER = "{tone:seconds=2} Long.", "{tone:seconds=8} Longer."
ATTEMPTS = 3


def begin(worker: SoloWorker, *texts: str) -> str:
    """Submit, and wait until the first item is being spoken; gives the job."""
    job_id = worker.submit(*texts)
    worker.wait_until(
        "its start", lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
    )
    return job_id


def messages_left(url: str) -> int:
    """What waits in the queue, and what some worker holds."""
    with redis.Redis.from_url(url) as client:
        waiting = sum(
            client.llen(list_name("tone", priority)) for priority in MESSAGE_PRIORITIES.values()
        )
        held = [key for key in client.keys(f"{UNACKED_PREFIX}*") if client.type(key) == b"hash"]
        return waiting + sum(client.hlen(key) for key in held)


def test_a_long_batch_runs_once_and_the_visibility_timeout_is_beyond_the_longest_one(
    tmp_path: Path, redis_url: str
) -> None:
    longest = 20_000
    limit = {"VOICEMILL_MAX_BATCH_LIMIT_SECONDS": str(longest)}
    with SoloWorker(redis_url, tmp_path, **limit, VOICEMILL_WORKERS="2") as worker:
        assert_each_spoken_once(worker.wait_for(worker.submit("{tone:seconds=8} Very long.")))
        stats = worker.inspect("stats")
        assert stats["broker"]["transport_options"]["visibility_timeout"] >= 2 * longest
        assert sum(stats["total"].values()) == 1


def test_a_text_without_memory_fails_by_name_keeps_no_message_and_ends_no_worker(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **tone(memory_characters=60)) as worker:
        parent = worker.pid
        # No segment of it gets short enough.
        large, *others = worker.wait_for(worker.submit("a" * 400, "One.", "Two.", "Three."))
        assert large.error is not None
        assert (large.error.code, large.attempts) == ("out_of_memory", ATTEMPTS)
        assert {one.status for one in others} == {ItemStatus.SUCCEEDED}
        assert (worker.exit_status, worker.record.pid) == (None, parent)
        wait_until(lambda: messages_left(redis_url) == 0, 10, "the end of the messages")


def test_what_kills_each_child_fails_after_its_attempts_and_keeps_no_message(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, VOICEMILL_WORKERS="2") as worker:
        deadly, *good = [worker.submit(text) for text in ("{tone:crash} Die.", *"abcdefghij")]
        assert_each_spoken_once([one for job_id in good for one in worker.wait_for(job_id)])
        worker.wait_until("its end", lambda: worker.has_ended(deadly))
        assert_lost(worker, deadly)
        wait_until(lambda: messages_left(redis_url) == 0, 10, "the end of the messages")


def test_what_each_worker_dies_of_fails_after_its_attempts(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        deadly = begin(worker, LONG)
        for attempt in range(1, ATTEMPTS + 1):
            worker.wait_until(
                f"attempt {attempt}",
                lambda attempt=attempt: worker.store.items(deadly)[0].attempts == attempt,
            )
            kill_all(worker)
            worker.start()
        worker.wait_until("its end", lambda: worker.has_ended(deadly))
        assert_lost(worker, deadly)
        assert_each_spoken_once(worker.wait_for(worker.submit("Next.")))


def kill_all(worker: SoloWorker) -> None:
    """Kill -9 a worker with its children, as one does who kills its container."""
    for process in (psutil.Process(worker.pid), *psutil.Process(worker.pid).children()):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: worker.exit_status is not None, 10, "its end")


def assert_lost(worker: SoloWorker, job_id: str) -> None:
    """The only item has failed for want of a worker that survives it."""
    assert worker.store.job(job_id).status is JobStatus.FAILED
    (item,) = worker.store.items(job_id)
    assert item.error is not None
    assert (item.error.code, item.attempts) == ("worker_lost", ATTEMPTS)


def test_what_a_killed_worker_held_goes_on_as_soon_as_another_takes_its_name(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        job_id = begin(worker, LONG)
        kill_all(worker)
        worker.start()
        ready = time.monotonic()

        def again() -> bool:
            return worker.store.items(job_id)[0].attempts == 2

        worker.wait_until("the second start", again)
        assert time.monotonic() - ready < RECALL_SECONDS + 5
        (item,) = worker.wait_for(job_id)
        assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 2)


def test_what_a_lost_node_held_goes_on_elsewhere_once_its_lease_has_run_out(
    tmp_path: Path, redis_url: str
) -> None:
    lease = {"VOICEMILL_LEASE_SECONDS": "3"}
    folders = [tmp_path / name for name in ("lost", "other")]
    for folder in folders:
        folder.mkdir()
    same = {"VOICEMILL_OUTPUT_DIR": str(tmp_path / "outputs")}
    with SoloWorker(redis_url, folders[0], **lease, **same) as lost:
        job_id = begin(lost, LONGER)
        with SoloWorker(redis_url, folders[1], **lease, **same) as other:
            kill_all(lost)
            (item,) = other.wait_for(job_id)
            assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 2)
            other.wait_until("one slot", lambda: other.store.snapshot().slots == {"tone": 1})
            assert other.stop() == 0


@pytest.mark.parametrize("at_work", [False, True])
def test_a_worker_takes_work_again_after_its_connections_broke_thrice(
    at_work: bool, tmp_path: Path, own_valkey: Valkey
) -> None:
    with SoloWorker(own_valkey.url, tmp_path) as worker:
        held = [begin(worker, LONG)] if at_work else []
        for _ in range(3):
            own_valkey.stop()
            own_valkey.start()
        with redis.Redis.from_url(own_valkey.url) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        pid = worker.pid
        jobs = [*held, *(worker.submit(f"Line {number}.") for number in range(5))]
        items: list[Item] = [one for job_id in jobs for one in worker.wait_for(job_id, 30)]
        assert_each_spoken_once(items)
        assert worker.record.pid == pid


def test_a_cancel_that_no_worker_heard_holds(tmp_path: Path, redis_url: str) -> None:
    worker = SoloWorker(redis_url, tmp_path)
    with worker:
        assert worker.stop() == 0
    first, second = worker.submit("Not wanted."), worker.submit("Wanted.")
    assert worker.store.cancel(first).status is JobStatus.CANCELLED
    with worker:
        assert_each_spoken_once(worker.wait_for(second))
        (item,) = worker.store.items(first)
        assert (item.status, item.attempts, item.audio) == (ItemStatus.CANCELLED, 0, None)
        running = begin(worker, "{tone:seconds=1} a. " * 20)
        worker.store.cancel(running)
        worker.wait_until("its end", lambda: worker.has_ended(running), 5)
        assert worker.store.cancel(running).status is JobStatus.CANCELLED
        assert worker.store.cancel(second).status is JobStatus.COMPLETED
        assert not list(tmp_path.rglob(f"*{running}*/*.wav"))

"""No work waits while a child is free, whatever happens to the others."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from threading import Thread

import psutil
import pytest
from celery import Celery

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.support import Valkey
from voicemill.jobs import ItemStatus
from voicemill.workers import child_id

pytestmark = pytest.mark.full

LONG = "{tone:seconds=30} Long."


def statuses(worker: SoloWorker, job_id: str) -> set[ItemStatus]:
    return {one.status for one in worker.store.items(job_id)}


def are_in_progress(worker: SoloWorker, job_id: str) -> bool:
    return statuses(worker, job_id) == {ItemStatus.IN_PROGRESS}


def test_a_worker_that_still_loads_takes_no_message_from_a_free_one(
    tmp_path: Path, redis_url: str
) -> None:
    for name in ("free", "late"):
        (tmp_path / name).mkdir()
    with SoloWorker(redis_url, tmp_path / "free") as free:
        late = SoloWorker(redis_url, tmp_path / "late", **tone(load_seconds=12))
        try:
            starting = Thread(target=late.start)
            starting.start()
            # Every job while the other one starts: its first second is the one that counts.
            while starting.is_alive():
                free.wait_for(free.submit("Short."), 6)
        finally:
            starting.join()
            late.__exit__()


def test_what_drained_children_still_speak_takes_no_slot_of_others(
    tmp_path: Path, redis_url: str
) -> None:
    for name in ("drained", "free"):
        (tmp_path / name).mkdir()
    with (
        SoloWorker(redis_url, tmp_path / "drained", VOICEMILL_WORKERS="2") as drained,
        SoloWorker(redis_url, tmp_path / "free") as free,
    ):
        assert free.store.order(free.node, "drain")
        free.wait_until("a drained one", lambda: free.processes("draining"))
        drained.wait_until("both", lambda: len(drained.processes("ready")) == 2)
        long = drained.submit(LONG, f"{LONG} Another.")
        drained.wait_until("two in hand", lambda: are_in_progress(drained, long))
        assert drained.store.order(drained.node, "drain")
        assert free.store.order(free.node, "resume")
        free.wait_until("one slot", lambda: free.store.snapshot().slots == {"tone": 1})
        free.wait_for(free.submit("Short."))
        assert are_in_progress(drained, long)


def test_a_worker_with_a_drained_child_takes_no_more_than_the_others_can_do(
    tmp_path: Path, redis_url: str
) -> None:
    for name in ("half", "free"):
        (tmp_path / name).mkdir()
    with (
        SoloWorker(redis_url, tmp_path / "half", VOICEMILL_WORKERS="2") as half,
        SoloWorker(redis_url, tmp_path / "free") as free,
    ):
        half.wait_until("both", lambda: len(half.processes("ready")) == 2)
        assert free.store.order(free.node, "drain")
        free.wait_until("no slot", lambda: free.processes("draining"))
        drained = next(c["id"] for c in half.store.snapshot().children if c["node"] == half.node)
        assert half.store.order(drained, "drain")
        half.wait_until("a drained child", lambda: half.processes("draining"))
        long = half.submit(LONG)
        half.wait_until("it in hand", lambda: are_in_progress(half, long))
        assert free.store.order(free.node, "resume")
        free.wait_until("a free child", lambda: free.processes("ready"))
        for _ in range(8):
            free.wait_for(free.submit("Short."), 10)
        assert are_in_progress(half, long)
        assert half.inspect("stats")["prefetch_count"] == 1


def test_a_successor_works_while_the_old_child_finishes_its_batch(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **tone(load_seconds=2)) as worker:
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        long = worker.submit(LONG)
        worker.wait_until("the hand-over", lambda: worker.processes("leaving"))
        for _ in range(3):
            worker.wait_for(worker.submit("Short."))
        assert are_in_progress(worker, long)
        assert worker.inspect("stats")["prefetch_count"] == 2
        worker.wait_for(long)
        worker.wait_until(
            "one message at a time", lambda: worker.inspect("stats")["prefetch_count"] == 1
        )
        assert worker.stop() == 0


@pytest.mark.parametrize("when", ["idle", "leaving"])
def test_a_child_that_hangs_outside_a_batch_is_killed(
    when: str, tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_LEASE_SECONDS": "5", **tone(load_seconds=3)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        (hung,) = worker.processes("ready")
        if when == "leaving":
            assert worker.store.order(worker.node, "recycle")
            worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        os.kill(hung.pid, signal.SIGSTOP)
        job_id = worker.submit("Short.")
        worker.wait_until("its end", lambda: not psutil.pid_exists(hung.pid), 50)
        (item,) = worker.wait_for(job_id)
        assert item.attempts == 1
        assert f"child {hung.pid} does not answer" in worker.log
        assert worker.stop() == 0


def test_a_pool_that_is_told_to_grow_during_a_hand_over_grows(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **tone(load_seconds=3)) as worker:
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        with Celery(broker=redis_url, set_as_current=False) as app:
            app.control.pool_grow(1, destination=[worker.node], reply=True, timeout=5)
        worker.wait_until("two", lambda: {one.slot for one in worker.processes("ready")} == {0, 1})
        worker.wait_until("the hand-over", lambda: worker.record.recycles)
        assert "StopIteration" not in worker.log
        assert worker.stop() == 0


def test_a_pool_that_is_told_to_shrink_during_a_hand_over_shrinks_when_the_work_is_done(
    tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_WORKERS": "2", **tone(load_seconds=8, seconds_per_segment=3)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_until("two", lambda: len(worker.processes("ready")) == 2)
        stays, goes = (one.pid for one in sorted(worker.processes(), key=lambda one: one.slot))
        assert worker.store.order(child_id(worker.node, worker.pid, goes), "recycle")
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        jobs = [worker.submit("Short."), worker.submit("Short.")]
        worker.wait_until("both at work", lambda: len(worker.processes("busy")) == 2)
        with Celery(broker=redis_url, set_as_current=False) as app:
            where = {"destination": [worker.node], "reply": True, "timeout": 5}
            shrink = partial(app.control.pool_shrink, **where)
            assert "will shrink" in str(shrink(1))
            assert "keeps one child" in str(shrink(1))
            assert "keeps one child" in str(shrink(-1))
        for job in jobs:
            assert_each_spoken_once(worker.wait_for(job))
        worker.wait_until("one child", lambda: [one.pid for one in worker.processes()] == [stays])
        assert worker.record.failure is None
        assert worker.recycles() == {}, "nobody was replaced"
        assert worker.stop() == 0


def test_a_stop_that_runs_out_of_time_kills_children_alone(
    tmp_path: Path, own_valkey: Valkey
) -> None:
    with SoloWorker(own_valkey.url, tmp_path, VOICEMILL_STOP_SECONDS="1") as worker:
        job_id = worker.submit("{tone:hang} One.")
        worker.wait_until("an item in hand", lambda: are_in_progress(worker, job_id))
        worker.wait_until("a busy child", lambda: worker.processes("busy"))
        assert worker.stop() == 0
        assert worker.log.count("did not finish in time") == 1
        assert "BrokenPipeError" not in worker.log


def test_a_task_that_is_revoked_goes_out_in_another(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path, **tone(seconds_per_segment=1)) as worker:
        job_id = worker.submit(*(f"Line {number}." for number in range(4)))
        worker.wait_until("one in hand", lambda: ItemStatus.IN_PROGRESS in statuses(worker, job_id))
        worker.wait_until("a task that waits", lambda: worker.store.stale_admitted(0))
        (waiting, *_) = worker.store.stale_admitted(0)
        with Celery(broker=redis_url, set_as_current=False) as app:
            app.control.revoke(waiting.id, destination=[worker.node], reply=True, timeout=5)
        items = worker.wait_for(job_id)
        assert_each_spoken_once(items)
        assert waiting.id not in {item.task_id for item in items}

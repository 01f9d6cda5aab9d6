"""The lease of a running task, kept alive from a thread of its own."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.costs import UNMEASURED
from voicemill.errors import WorkerLostError
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord
from worker.lease import LeaseKeeper

LEASE_SECONDS = 0.6


def running(store: Store) -> StartedTask:
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job("job_1", "default", inputs("one", "two"), {})
    (admitted, *_) = store.admit("tone", UNMEASURED, 100.0)
    task = store.start_task(admitted.id, "c1", LEASE_SECONDS)
    assert task is not None
    store.start_items(task, [0], LEASE_SECONDS)
    return task


def keeper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lease"]


@pytest.mark.full
def test_a_kept_lease_outlives_its_seconds_and_is_over_with_its_keeper(store: Store) -> None:
    task = running(store)
    with LeaseKeeper(store, task, LEASE_SECONDS) as lease:
        began = time.monotonic()
        while time.monotonic() - began < 3 * LEASE_SECONDS:
            assert store.reap(max_attempts=3) == 0
            time.sleep(0.05)
        assert not lease.is_over
    assert keeper_threads() == []
    wait_until(lambda: store.reap(max_attempts=3) == 1, what="the end of the lease")


def test_a_cancelled_job_is_noticed_within_about_a_second(store: Store) -> None:
    task = running(store)
    with LeaseKeeper(store, task, 60) as lease:
        store.cancel("job_1")
        began = time.monotonic()
        wait_until(lambda: lease.is_over)
        assert time.monotonic() - began < 2
    assert keeper_threads() == []


def test_a_lease_that_was_lost_is_over(store: Store) -> None:
    task = running(store)
    with LeaseKeeper(store, task, LEASE_SECONDS) as lease:
        assert store.release_child(
            "c1", "tone", max_attempts=3, error=WorkerLostError("It was taken for dead.")
        )
        wait_until(lambda: lease.is_over)


def test_a_store_that_is_away_for_a_moment_does_not_end_the_work(
    own_valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.connect(own_valkey.url)
    task = running(store)
    with LeaseKeeper(store, task, 6) as lease:
        own_valkey.stop()
        wait_until(lambda: "lease not renewed" in caplog.text, what="a renewal that fails")
        own_valkey.start()
        assert not lease.is_over
        assert store.renew(task, 6) == "held"
    store.close()

"""The store when Redis is frozen, gone, restarted, or holds what we don't know."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
import redis

from tests.support import TONE, Valkey, inputs
from voicemill.costs import UNMEASURED
from voicemill.errors import JobNotFoundError, StoreRefusedError, StoreUnavailableError
from voicemill.jobs import ItemAudio, ItemError, ItemStatus, JobStatus
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord

CALLS: dict[str, Callable[[Store], object]] = {
    "ping": lambda store: store.ping(),
    "create_job": lambda store: store.create_job("job_1", "default", inputs("one"), {}),
    "job": lambda store: store.job("job_1"),
    "jobs": lambda store: store.jobs("default"),
    "items": lambda store: store.items("job_1"),
    "cancel": lambda store: store.cancel("job_1"),
    "engines": lambda store: store.engines(),
    "admit": lambda store: store.admit("tone", UNMEASURED, 1.0),
    "start_task": lambda store: store.start_task("t1", "c1", 60),
    "snapshot": lambda store: store.snapshot(),
    "metrics": lambda store: store.metrics(),
    "cost": lambda store: store.cost("tone"),
    "children_of": lambda store: store.children_of("node"),
}


def running(store: Store, *texts: str) -> StartedTask:
    """A task in hand, with nothing of it begun."""
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job("job_1", "default", inputs(*texts), {})
    (admitted, *_) = store.admit("tone", UNMEASURED, 100.0, most=1)
    task = store.start_task(admitted.id, "c1", 60)
    assert task is not None
    return task


def audio(path: str) -> ItemAudio:
    return ItemAudio(path, "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")


@pytest.mark.full
def test_a_frozen_redis_is_unavailable_in_under_two_seconds(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    store.ping()
    assert own_valkey.process is not None
    own_valkey.process.send_signal(signal.SIGSTOP)
    try:
        for name in ("create_job", "job", "snapshot"):
            began = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="Redis can't be reached"):
                CALLS[name](store)
            assert time.monotonic() - began < 2, name
    finally:
        own_valkey.process.send_signal(signal.SIGCONT)
    store.ping()
    store.close()


@pytest.mark.parametrize("name", CALLS)
def test_no_call_lets_an_error_of_redis_through(name: str) -> None:
    store = Store.connect("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailableError):
        CALLS[name](store)


def test_a_restart_keeps_everything_and_the_scripts_come_back(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    task = running(store, "one", "two")
    own_valkey.stop()
    own_valkey.start()
    assert store.start_items(task, task.indexes, 60) == dict.fromkeys(task.indexes, 1)
    assert store.job("job_1").status is JobStatus.IN_PROGRESS
    store.close()


def test_scripts_survive_being_flushed(store: Store, redis_url: str) -> None:
    task = running(store, "one", "two")
    client = redis.Redis.from_url(redis_url)
    client.script_flush()
    assert store.renew(task, 60) == "held"
    client.close()


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ],
    ids=["out of memory", "too few replicas", "read-only"],
)
def test_a_redis_that_takes_no_writes_says_so(own_valkey: Valkey, begin: str, end: str) -> None:
    store = Store.connect(own_valkey.url)
    client = redis.Redis.from_url(own_valkey.url)
    store.publish_engine(TONE)
    client.execute_command(*begin.split())
    with pytest.raises(StoreRefusedError, match="Redis takes no writes"):
        CALLS["create_job"](store)
    with pytest.raises(StoreRefusedError):
        store.publish_engine(TONE)
    assert list(store.engines()) == ["tone"], "reading still works"
    client.execute_command(*end.split())
    assert store.create_job("job_2", "default", inputs("one"), {}).status is JobStatus.QUEUED
    client.close()
    store.close()


def test_a_record_of_a_schema_we_do_not_know_is_left_alone(store: Store, redis_url: str) -> None:
    store.create_job("job_1", "default", inputs("one"), {})
    client = redis.Redis.from_url(redis_url)
    client.hset("voicemill:job:job_1", "schema", 2)
    before = client.hgetall("voicemill:job:job_1")
    with pytest.raises(JobNotFoundError):
        store.job("job_1")
    assert store.jobs("default").jobs == []
    with pytest.raises(JobNotFoundError):
        store.cancel("job_1")
    assert client.hgetall("voicemill:job:job_1") == before
    client.close()


def test_a_task_of_a_schema_we_do_not_know_is_not_started(store: Store, redis_url: str) -> None:
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job("job_1", "default", inputs("one"), {})
    (admitted,) = store.admit("tone", UNMEASURED, 1.0)
    client = redis.Redis.from_url(redis_url)
    client.hset(f"voicemill:task:{admitted.id}", "schema", 2)
    assert store.start_task(admitted.id, "c1", 60) is None
    client.close()


def test_a_published_item_may_be_published_again_by_a_call_whose_answer_was_lost(
    store: Store,
) -> None:
    task = running(store, "one", "two")
    store.start_items(task, [0], 60)
    assert store.succeed_item(task, 0, audio("/out/a.wav"))
    assert store.succeed_item(task, 0, audio("/out/a.wav")), "a refusal would remove the file"
    job = store.job("job_1")
    assert (job.counts.succeeded, job.audio_seconds, job.done_characters) == (1, 1.5, 3)


def test_items_that_were_begun_are_still_ours_when_the_answer_was_lost(store: Store) -> None:
    task = running(store, "one", "two")
    assert store.start_items(task, [0], 60) == {0: 1}
    assert store.start_items(task, [0], 60) == {0: 1}
    assert store.item("job_1", "row-000001").attempts == 1


def test_a_retry_that_failed_elsewhere_goes_back_once_when_its_first_task_ends(
    store: Store,
) -> None:
    first = running(store, *"abcd")
    assert first.indexes == (0, 1)
    failure = ItemError("synthesis_failed", "It failed.", True)
    store.start_items(first, [0, 1], 60)
    store.fail_item(first, 0, failure, max_attempts=3)
    (again, *_) = store.admit("tone", UNMEASURED, 100.0)
    second = store.start_task(again.id, "c2", 60)
    assert second is not None
    assert second.indexes == (0,)
    store.start_items(second, [0], 60)
    store.fail_item(second, 0, failure, max_attempts=3)
    store.end_task(second, max_attempts=3)
    store.end_task(first, max_attempts=3)
    assert store.job("job_1").counts.queued == 4
    assert store.snapshot().queued == {"tone": 4}
    assert store.cancel("job_1").counts.cancelled == 4
    assert store.item("job_1", "row-000001").status is ItemStatus.CANCELLED

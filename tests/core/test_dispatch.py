"""Letting work in, and seeing to it that it arrives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.dispatch import RECALL_SECONDS, Dispatcher, time_limit
from voicemill.fairness import JobClass, Standing
from voicemill.queue import UNACKED_PREFIX, Queue, list_name
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import ChildRecord, WorkerRecord

BULK_LIST = list_name("tone", 9)
NODE = f"{UNACKED_PREFIX}w@host:1"
WORKER = WorkerRecord("node", 1, "tone", 0.0)


class Bench:
    """A dispatcher on a real broker, and hands to meddle with its messages."""

    def __init__(self, url: str) -> None:
        settings = Settings(redis_url=url, engine="tone")
        self.store = Store.connect(url)
        self.dispatcher = Dispatcher(self.store, Queue(settings), settings)
        self.redis: Any = redis.Redis.from_url(url)
        self.store.publish_engine(TONE)

    def add_child(self, name: str = "c1") -> None:
        child = ChildRecord(name, "w@host", 1, "tone", "1", ready_at=0.0)
        self.store.beat_child(child, 60, takes_work=True)

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(raw) for raw in self.redis.lrange(BULK_LIST, 0, -1)]

    def waiting(self) -> list[str]:
        """Task ids in the queue."""
        return sorted(message["headers"]["id"] for message in self.messages())

    def take(self, node: str) -> str:
        """A worker takes the next message and has not acknowledged it."""
        message = json.loads(self.redis.rpop(BULK_LIST))
        self.redis.hset(node, "tag-1", json.dumps([message, "", "synthesis.tone"]))
        task_id: str = message["headers"]["id"]
        return task_id

    def worker_dies(self) -> None:
        """The worker is heard of once and then no more, for longer than its lease."""
        self.store.beat_worker(NODE, WORKER, 0.001)
        wait_until(lambda: self.store.live_nodes() == set())

    def goes_out_anew(self, task_id: str) -> bool:
        """Whether one task under another id carries what waits."""
        return self.dispatcher.admit() == 1 and self.waiting() not in ([task_id], [])

    def let_time_pass(self, seconds: float = RECALL_SECONDS) -> None:
        """Make every admitted task one that was sent so long ago, and a second."""
        for task_id, sent_at in self.redis.zrange("voicemill:admitted", 0, -1, withscores=True):
            self.redis.zadd("voicemill:admitted", {task_id: sent_at - seconds - 1})

    def close(self) -> None:
        self.store.close()
        self.redis.close()


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    bench = Bench(redis_url)
    yield bench
    bench.close()


@pytest.fixture
def admitted(bench: Bench) -> str:
    """The id of the one task that was sent and not started."""
    bench.add_child()
    bench.store.create_job("job_1", "default", inputs("hello"), {})
    assert bench.dispatcher.admit() == 1
    (task_id,) = bench.waiting()
    return task_id


def test_as_many_batches_are_sent_as_there_are_slots_and_one_more(bench: Bench) -> None:
    bench.store.create_job("job_1", "default", inputs(*["hello"] * 50), {})
    assert bench.dispatcher.admit() == 0, "no child, no slot"
    bench.add_child("c1")
    bench.add_child("c2")
    assert bench.dispatcher.admit() == 3
    assert bench.dispatcher.admit() == 0
    assert len(bench.waiting()) == 3


def test_only_the_engines_that_are_asked_for_are_admitted(bench: Bench) -> None:
    bench.add_child()
    bench.store.create_job("job_1", "default", inputs("hello"), {})
    assert bench.dispatcher.admit(["hibari"]) == 0
    assert bench.dispatcher.admit(["tone"]) == 1


def test_a_long_batch_gets_a_time_limit_far_above_its_estimate(bench: Bench) -> None:
    bench.add_child()
    for _ in range(3):
        bench.store.observe_cost("tone", 1000, 30.0)
    bench.store.create_job("job_1", "default", inputs("a" * 1000, "hi"), {})
    bench.dispatcher.admit()
    limits = sorted(message["headers"]["timelimit"][0] for message in bench.messages())
    assert limits == [120, pytest.approx(600.0)]


@pytest.mark.parametrize(
    ("estimate", "limit"), [(0.0, 120), (6.0, 120), (6.01, 121), (100.0, 2000), (1e9, 3600)]
)
def test_a_batch_may_take_twenty_times_its_estimate_between_a_floor_and_a_ceiling(
    estimate: float, limit: int
) -> None:
    assert time_limit(estimate, Settings()) == limit


def test_what_a_message_carried_that_is_gone_goes_out_in_another(
    bench: Bench, admitted: str
) -> None:
    bench.redis.delete(BULK_LIST)
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.goes_out_anew(admitted)


def test_a_late_copy_of_a_recalled_message_finds_nothing_to_start(
    bench: Bench, admitted: str
) -> None:
    bench.redis.delete(BULK_LIST)
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.store.start_task(admitted, "c1", 60) is None
    assert bench.goes_out_anew(admitted)
    (again,) = bench.waiting()
    task = bench.store.start_task(again, "c1", 60)
    assert task is not None
    assert bench.store.start_items(task, task.indexes, 60) == {0: 1}, "it cost no attempt"


def test_it_is_not_recalled_before_its_time(bench: Bench, admitted: str) -> None:
    bench.redis.delete(BULK_LIST)
    assert bench.dispatcher.recall() == 0
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.dispatcher.admit() == 1
    bench.redis.delete(BULK_LIST)
    assert bench.dispatcher.recall() == 0, "the clock starts anew with each sending"
    assert bench.waiting() == []


def test_a_message_that_waits_in_the_queue_is_not_recalled(bench: Bench, admitted: str) -> None:
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 0
    assert bench.waiting() == [admitted]


def test_a_message_in_the_hands_of_a_live_worker_is_not_recalled(
    bench: Bench, admitted: str
) -> None:
    bench.store.beat_worker(NODE, WORKER, 60)
    assert bench.take(NODE) == admitted
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 0
    assert bench.waiting() == []


def test_a_message_that_a_live_worker_forgot_is_recalled_after_a_lease(
    bench: Bench, admitted: str
) -> None:
    bench.store.beat_worker(NODE, WORKER, 600)
    assert bench.take(NODE) == admitted
    bench.let_time_pass(Settings().lease_seconds)
    assert bench.dispatcher.recall() == 1
    assert bench.goes_out_anew(admitted)
    bench.let_time_pass(Settings().lease_seconds)
    assert bench.dispatcher.recall() == 0, "it waits in the queue now"


def test_a_message_in_the_hands_of_a_dead_worker_is_recalled(bench: Bench, admitted: str) -> None:
    assert bench.take(NODE) == admitted
    bench.worker_dies()
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.goes_out_anew(admitted)


def test_the_clerk_forgets_what_a_dead_worker_held(bench: Bench, admitted: str) -> None:
    assert bench.take(NODE) == admitted
    bench.worker_dies()
    assert bench.redis.keys(f"{UNACKED_PREFIX}*") == [NODE.encode()]
    bench.store.beat_clerk("k1", 15)
    assert bench.redis.keys(f"{UNACKED_PREFIX}*") == []


def test_the_clerk_forgets_the_names_of_workers_that_never_came_back(bench: Bench) -> None:
    for node, lease in (("gone", 0.001), ("here", 60.0)):
        record = WorkerRecord(node, 1, "tone", started_at=0.0)
        bench.store.beat_worker(f"{UNACKED_PREFIX}{node}", record, lease)
    wait_until(lambda: [one.node for one in bench.store.fleet().workers] == ["here"])
    bench.store.beat_clerk("k1", 15)
    assert bench.redis.zrange("voicemill:workers", 0, -1) == [b"here"]


def test_a_task_that_was_started_is_not_recalled(bench: Bench, admitted: str) -> None:
    assert bench.store.start_task(admitted, "c1", 60) is not None
    bench.redis.delete(BULK_LIST)
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 0


def test_a_long_batch_keeps_its_time_limit_when_it_goes_out_again(bench: Bench) -> None:
    bench.add_child()
    for _ in range(3):
        bench.store.observe_cost("tone", 1000, 30.0)
    bench.store.create_job("job_1", "default", inputs("a" * 1000), {})
    bench.dispatcher.admit()
    bench.redis.delete(BULK_LIST)
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.dispatcher.admit() == 1
    (message,) = bench.messages()
    assert message["headers"]["timelimit"][0] == pytest.approx(600.0)


def test_a_message_in_another_format_in_the_queue_does_not_stop_the_recalling(
    bench: Bench, admitted: str
) -> None:
    bench.redis.delete(BULK_LIST)
    bench.redis.lpush(BULK_LIST, b"\x80\x04not a message", b'{"headers": {}}', b"[]")
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1


def test_an_interactive_batch_passes_the_bulk_batch_that_lies_ready(bench: Bench) -> None:
    bench.add_child()
    bench.store.create_job("job_1", "default", inputs(*["hello"] * 50), {})
    bench.dispatcher.admit()
    assert len(bench.waiting()) == 2
    running = bench.redis.brpop([list_name("tone", 0), BULK_LIST])
    task = bench.store.start_task(json.loads(running[1])["headers"]["id"], "c1", 60)
    assert task is not None
    standing = Standing(JobClass.INTERACTIVE)
    bench.store.create_job("job_2", "default", inputs("now"), {}, standing=standing)
    assert bench.dispatcher.admit() == 0, "no slot is free"
    bench.store.end_task(task, max_attempts=3)
    assert bench.dispatcher.admit() == 1
    _, message = bench.redis.brpop([list_name("tone", 0), BULK_LIST])
    following = bench.store.start_task(json.loads(message)["headers"]["id"], "c1", 60)
    assert following is not None
    assert following.job_id == "job_2"


def test_an_interactive_batch_goes_out_again_as_one(bench: Bench) -> None:
    bench.add_child()
    standing = Standing(JobClass.INTERACTIVE)
    bench.store.create_job("job_1", "default", inputs("now"), {}, standing=standing)
    assert bench.dispatcher.admit() == 1
    bench.redis.delete(list_name("tone", 0))
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.dispatcher.admit() == 1
    assert bench.redis.llen(list_name("tone", 0)) == 1
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 0, "it waits in its list"


def test_what_can_not_be_sent_stays_admitted_and_is_sent_later(own_valkey: Valkey) -> None:
    bench = Bench(own_valkey.url)
    bench.add_child()
    bench.store.create_job("job_1", "default", inputs("hello"), {})
    nowhere = Queue(Settings(redis_url="redis://127.0.0.1:1/0", engine="tone"))
    cut_off = Dispatcher(bench.store, nowhere, Settings(engine="tone"))
    assert cut_off.admit() == 1
    assert bench.waiting() == []
    bench.let_time_pass()
    assert bench.dispatcher.recall() == 1
    assert bench.dispatcher.admit() == 1
    assert len(bench.waiting()) == 1
    bench.close()

"""The seam to Celery: what is sent, and what the broker still holds."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest
import redis
from celery import Celery

from tests.support import Valkey
from voicemill.errors import StoreUnavailableError
from voicemill.fairness import JobClass
from voicemill.queue import SYNTHESIZE, Queue, list_name, queue_name, task_id_of
from voicemill.settings import Settings

BULK_LIST = list_name("tone", 9)


def queue_on(url: str) -> Queue:
    return Queue(Settings(redis_url=url, engine="tone"))


def messages(url: str) -> list[dict[str, Any]]:
    client = redis.Redis.from_url(url)
    found = [json.loads(raw) for raw in client.lrange(BULK_LIST, 0, -1)]
    client.close()
    return found


def test_a_task_is_sent_by_name_with_nothing_but_its_id(redis_url: str) -> None:
    queue_on(redis_url).send("tone", "t1", time_limit=120)
    (message,) = messages(redis_url)
    headers = message["headers"]
    assert (headers["task"], headers["id"]) == (SYNTHESIZE, "t1")
    assert headers["argsrepr"] == "('t1',)"
    assert headers["timelimit"] == [120, None]
    assert message["content-type"] == "application/json"


def test_every_engine_has_a_queue_of_its_own(redis_url: str) -> None:
    queue = queue_on(redis_url)
    queue.send("tone", "t1", time_limit=120)
    queue.send("hibari", "t2", time_limit=120)
    assert queue_name("tone") == "synthesis.tone"
    assert queue.held("tone", []) == {"t1"}
    assert queue.held("hibari", []) == {"t2"}


def test_what_a_live_worker_has_taken_is_held_and_what_a_dead_one_had_is_not(
    redis_url: str,
) -> None:
    queue = queue_on(redis_url)
    queue.send("tone", "t1", time_limit=120)
    take(redis_url, "voicemill-unacked:w@a:1")
    assert queue.held("tone", []) == set()
    assert queue.held("tone", ["voicemill-unacked:w@b:1"]) == set()
    assert queue.held("tone", ["voicemill-unacked:w@a:1", "voicemill-unacked:w@b:1"]) == {"t1"}


def test_kombu_takes_what_is_interactive_first(redis_url: str) -> None:
    queue = queue_on(redis_url)
    queue.send("tone", "t1", time_limit=120)
    queue.send("tone", "t2", time_limit=120, job_class=JobClass.INTERACTIVE)
    assert queue.held("tone", []) == {"t1", "t2"}
    with Celery(broker=redis_url).connection_for_read() as connection:
        taken = [connection.SimpleQueue("synthesis.tone").get(timeout=5) for _ in range(2)]
    assert [message.headers["id"] for message in taken] == ["t2", "t1"]


def take(url: str, incarnation: str) -> None:
    """Move the next message where Kombu keeps what a worker has not acknowledged."""
    client = redis.Redis.from_url(url)
    message = json.loads(client.rpop(BULK_LIST))
    client.hset(incarnation, "tag-1", json.dumps([message, "", "synthesis.tone"]))
    client.close()


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: [m, "exchange", "key"]])
def test_the_task_id_is_read_from_a_waiting_and_from_a_taken_message(wrap: Any) -> None:
    assert task_id_of(json.dumps(wrap({"headers": {"id": "t9"}})).encode()) == "t9"


@pytest.mark.full
def test_a_broker_that_is_frozen_or_gone_is_unavailable_and_never_a_hang(
    own_valkey: Valkey,
) -> None:
    queue = queue_on(own_valkey.url)
    queue.send("tone", "t1", time_limit=120)
    queue.held("tone", [])
    assert own_valkey.process is not None
    own_valkey.process.send_signal(signal.SIGSTOP)
    try:
        must_be_unavailable(queue)
    finally:
        own_valkey.process.send_signal(signal.SIGCONT)
    own_valkey.stop()
    must_be_unavailable(queue)
    own_valkey.start()
    queue.send("tone", "t2", time_limit=120)
    # What went to a frozen server may be read by it later: refused is not the same as undone.
    assert queue.held("tone", []) - {"lost"} == {"t1", "t2"}


def must_be_unavailable(queue: Queue) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        queue.send("tone", "lost", time_limit=120)
    with pytest.raises(StoreUnavailableError):
        queue.held("tone", ["voicemill-unacked:w@a:1"])
    assert time.monotonic() - began < 4

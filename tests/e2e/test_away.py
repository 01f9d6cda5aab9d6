"""A worker that was cut off, and a child that was frozen, come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import psutil
import pytest
import redis

from tests.chaos.proxy import Proxy
from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.support import Valkey, busy, without_primary
from voicemill.jobs import ItemStatus

pytestmark = pytest.mark.full

LOAD_SECONDS = 3
LONG = f"{{tone:seconds={LOAD_SECONDS + 1}}} Longer than a child may load."
TWO_SECONDS = "{tone:seconds=2} Long."


@pytest.fixture
def reconnected(tmp_path: Path, redis_url: str, valkey: Valkey) -> Iterator[SoloWorker]:
    """A worker whose connections were cut after its child had loaded."""
    limits = {"VOICEMILL_LOAD_TIMEOUT_SECONDS": str(LOAD_SECONDS)}
    with (
        Proxy(valkey.port) as wire,
        SoloWorker(
            redis_url, tmp_path, "-l", "INFO", VOICEMILL_REDIS_URL=wire.url, **limits
        ) as worker,
    ):
        wire.cut()
        worker.wait_until("the way back", lambda: "Connected to redis" in after_loss(worker.log))
        yield worker


def after_loss(log: str) -> str:
    return log.partition("Connection to broker lost")[2]


def begin(worker: SoloWorker, text: str) -> str:
    """Submit, and wait until it is being spoken; gives the job."""
    job_id = worker.submit(text)
    worker.wait_until(
        "its start", lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
    )
    return job_id


def test_children_of_before_are_not_taken_for_loading_ones(reconnected: SoloWorker) -> None:
    old = reconnected.the_child()
    assert_each_spoken_once(reconnected.wait_for(reconnected.submit(LONG)))
    assert reconnected.the_child()["pid"] == old["pid"]
    # The record of the parent lags behind.
    reconnected.wait_until(
        "a child that waits",
        lambda: [one.pid for one in reconnected.processes("ready")] == [old["pid"]],
    )


def test_a_stop_waits_for_the_batch_in_hand(reconnected: SoloWorker) -> None:
    job_id = begin(reconnected, TWO_SECONDS)
    assert reconnected.stop() == 0
    assert_each_spoken_once(reconnected.store.items(job_id))


@pytest.mark.parametrize("silence", [busy, without_primary])
def test_a_redis_that_answers_nothing_for_a_while_costs_no_attempt(
    tmp_path: Path,
    own_valkey: Valkey,
    silence: Callable[[Valkey], AbstractContextManager[None]],
) -> None:
    env = tone(seconds_per_segment=0.1)
    with SoloWorker(own_valkey.url, tmp_path, **env) as worker:
        job_id = worker.submit(*(f"Line {number}." for number in range(60)))
        worker.wait_until("some", lambda: worker.store.job(job_id).counts.succeeded >= 5)
        with silence(own_valkey):
            worker.wait_until(
                "a beat that is not heard",
                lambda: worker.log.count("heartbeat not heard: Redis answers nothing") >= 3,
            )
        assert_each_spoken_once(worker.wait_for(job_id))
        assert worker.exit_status is None


REFUSALS = {
    "OOM": (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    "NOREPLICAS": (
        ("CONFIG", "SET", "min-replicas-to-write", "3"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
    "READONLY": (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_redis_that_takes_no_writes_now_and_then_ends_no_worker_and_costs_no_attempt(
    tmp_path: Path, own_valkey: Valkey, refusal: str
) -> None:
    begin_refusing, end_refusing = REFUSALS[refusal]
    with (
        SoloWorker(own_valkey.url, tmp_path) as worker,
        closing(redis.Redis.from_url(own_valkey.url)) as operator,
    ):
        job_id = worker.submit(*(f"Line {number}." for number in range(60)))
        for _ in range(60):
            operator.execute_command(*begin_refusing)
            refused_until = time.monotonic() + 0.03
            while time.monotonic() < refused_until:
                worker.tick()
            operator.execute_command(*end_refusing)
            served_until = time.monotonic() + 0.05
            while time.monotonic() < served_until:
                worker.tick()
            assert worker.exit_status is None, worker.log
        assert_each_spoken_once(worker.wait_for(job_id))
        assert worker.exit_status is None


def test_a_child_that_was_frozen_for_longer_than_its_lease_publishes_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_WORKERS": "2", "VOICEMILL_LEASE_SECONDS": "2"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_until("two children", lambda: len(worker.processes("ready")) == 2)
        job_id = begin(worker, TWO_SECONDS)
        worker.wait_until("who speaks it", lambda: worker.processes("busy"))
        (speaker,) = worker.processes("busy")
        frozen = psutil.Process(speaker.pid)
        frozen.suspend()
        try:
            (item,) = worker.wait_for(job_id)
        finally:
            frozen.resume()
        worker.wait_until("its end", lambda: len(worker.processes("ready")) == 2)
        assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 2)
        assert worker.store.items(job_id) == [item]
        assert item.audio is not None
        files = [str(path) for path in tmp_path.rglob("*.wav")]
        assert files == [item.audio.audio_path]
        assert frozen.is_running()


def in_hand(worker: SoloWorker, job_id: str) -> set[int]:
    """Items that are being spoken."""
    items = worker.store.items(job_id)
    return {one.input.index for one in items if one.status is ItemStatus.IN_PROGRESS}


def outlive(
    server: Valkey, folder: Path, *, away_seconds: float, lease_seconds: float, attempts: int
) -> None:
    """Redis goes away while two batches run; ``attempts`` of those are made in all."""
    env = {"VOICEMILL_LEASE_SECONDS": str(lease_seconds), "VOICEMILL_WORKERS": "2"}
    with SoloWorker(server.url, folder, **env) as worker:
        worker.wait_until("two children", lambda: len(worker.processes("ready")) == 2)
        children = {one.pid for one in worker.processes()}
        job_id = worker.submit(*(f"{TWO_SECONDS} Number {number}." for number in range(4)))
        worker.wait_until("two in hand", lambda: len(in_hand(worker, job_id)) == 2)
        held = in_hand(worker, job_id)
        server.stop()
        threading.Event().wait(away_seconds)
        server.start()
        items = worker.wait_for(job_id, 60 + away_seconds)
        assert {one.status for one in items} == {ItemStatus.SUCCEEDED}
        tries = {one.input.index: one.attempts for one in items}
        assert tries == {index: attempts if index in held else 1 for index in range(4)}
        files = {path.name for path in folder.rglob("*.wav")}
        recorded = {Path(one.audio.audio_path).name for one in items if one.audio is not None}
        assert recorded <= files
        given_up = files - recorded
        assert len(given_up) == (attempts - 1) * len(held), "the sweep removes what was given up"
        worker.wait_until(
            "the same children", lambda: {one.pid for one in worker.processes("ready")} == children
        )
        assert worker.stop() == 0


@pytest.mark.parametrize(("lease_seconds", "attempts"), [(30, 1), (2, 2)])
def test_what_is_spoken_while_redis_is_away_is_recorded_or_given_up_by_its_lease(
    lease_seconds: float, attempts: int, own_valkey: Valkey, tmp_path: Path
) -> None:
    outlive(own_valkey, tmp_path, away_seconds=10, lease_seconds=lease_seconds, attempts=attempts)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("lease_seconds", "attempts"), [(120, 1), (10, 2)])
def test_a_minute_without_redis_needs_no_restart_by_hand(
    lease_seconds: float, attempts: int, own_valkey: Valkey, tmp_path: Path
) -> None:
    outlive(own_valkey, tmp_path, away_seconds=60, lease_seconds=lease_seconds, attempts=attempts)

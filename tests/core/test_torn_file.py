"""A Valkey that is killed in mid-write starts again with every transition whole, or not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.costs import CostModel
from voicemill.errors import StoreUnavailableError
from voicemill.jobs import ItemAudio, ItemError, JobStatus, new_job_id
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord

CHILD = ChildRecord("node:1:2", "node", 2, "tone", "1", ready_at=0.0)
AUDIO = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")
ERROR = ItemError("synthesis_failed", "It failed.", False)
LEASE_SECONDS = 600.0
BLOCK = b"*1\r\n$5\r\nMULTI"
"""With this a transition begins in the file."""
TASKS = (("start", "begin", "succeed", "close"), ("start", "begin", "fail", "close"))
STEPS = ("admit", *TASKS[0], *TASKS[1], "cancel")
"""The second ``start`` and all behind it are of the second task."""


class Life:
    """What happens to two jobs of two items, a transition at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: list[str] = []
        self._task: StartedTask | None = None
        store.publish_engine(TONE)
        store.beat_child(CHILD, LEASE_SECONDS, takes_work=True)
        self._jobs = [submit(store) for _ in range(2)]

    def do(self, place: int) -> None:
        """The call of the store at this place of ``STEPS``; it changes something."""
        if STEPS[place] == "start":
            self.start(self._tasks[STEPS[:place].count("start")])
        else:
            getattr(self, STEPS[place])()

    def admit(self) -> None:
        admitted = self._store.admit("tone", CostModel(1.0, 0.0), 1.0)
        self._tasks = [task.id for task in admitted]
        assert len(admitted) == 2

    def start(self, name: str) -> None:
        self._task = self._store.start_task(name, CHILD.id, LEASE_SECONDS, token=name)
        assert self._task is not None

    def begin(self) -> None:
        task = self.task
        assert self._store.start_items(task, task.indexes, LEASE_SECONDS) == {task.indexes[0]: 1}

    def succeed(self) -> None:
        assert self._store.succeed_item(self.task, self.task.indexes[0], AUDIO)

    def fail(self) -> None:
        self._store.fail_item(self.task, self.task.indexes[0], ERROR, max_attempts=3)

    def close(self) -> None:
        self._store.end_task(self.task, max_attempts=3)

    def cancel(self) -> None:
        assert self._store.cancel(self._jobs[1]).status is JobStatus.CANCELLED

    @property
    def task(self) -> StartedTask:
        """The one in hand."""
        assert self._task is not None
        return self._task

    def told(self) -> list[Any]:
        """What those who ask are told of the jobs, but for times and names."""
        jobs = self._store.jobs("default").jobs
        items = [one for job in jobs for one in self._store.items(job.id)]
        return [(job.status, job.counts) for job in jobs] + [
            (one.status, one.attempts, one.audio, one.error) for one in items
        ]


@pytest.fixture
def store(own_valkey: Valkey) -> Iterator[Store]:
    """A store on the server that is hurt."""
    store = Store.connect(own_valkey.url)
    yield store
    store.close()


def written(valkey: Valkey) -> Path:
    """The file to which every transition is appended."""
    (file,) = (valkey.folder / "appendonlydir").glob("*.incr.aof")
    return file


def kept(valkey: Valkey) -> dict[bytes, Any]:
    """Every key and what it holds."""
    client: Any = redis.Redis.from_url(valkey.url)
    readers = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
    }
    with client:
        return {key: readers[client.type(key)](key) for key in client.scan_iter()}


def begin_again(valkey: Valkey, store: Store, file: bytes) -> None:
    """Kill it, and start it with this left of the file."""

    def answers() -> bool:
        with suppress(StoreUnavailableError):
            store.ping()
            return True
        return False

    valkey.stop()
    written(valkey).write_bytes(file)
    valkey.start()
    wait_until(answers)


def submit(store: Store, texts: int = 2) -> str:
    """A job of as many texts; gives its id."""
    return store.create_job(new_job_id(), "default", inputs(*["A line."] * texts), {}).id


@pytest.mark.parametrize("last", range(len(STEPS)))
def test_a_torn_transition_is_not_there_and_may_be_repeated(
    last: int, own_valkey: Valkey, store: Store
) -> None:
    life = Life(store)
    for place in range(last):
        life.do(place)
    before, size = kept(own_valkey), written(own_valkey).stat().st_size
    life.do(last)
    whole, told = written(own_valkey).read_bytes(), life.told()
    transition = len(whole) - size
    assert transition > 2
    for bytes_left in (1, transition // 2, transition - 1):
        begin_again(own_valkey, store, whole[: size + bytes_left])
        assert kept(own_valkey) == before
    life.do(last)
    assert life.told() == told


def test_a_torn_submission_leaves_nothing_to_run(own_valkey: Valkey, store: Store) -> None:
    life = Life(store)
    told, queued = life.told(), store.snapshot().queued
    size = written(own_valkey).stat().st_size
    submit(store)
    whole = written(own_valkey).read_bytes()
    for end in range(size + 1, len(whole), (len(whole) - size) // 8):
        begin_again(own_valkey, store, whole[:end])
        assert store.abandon_unfinished(0) in (0, 1)
        jobs = store.jobs("default").jobs
        assert [job.status for job in jobs[:-2]] in ([], [JobStatus.FAILED])
        assert store.snapshot().queued == queued
        if len(jobs) == 2:
            assert life.told() == told


def test_what_was_answered_before_a_kill_in_mid_write_is_all_there(
    own_valkey: Valkey, store: Store
) -> None:
    store.publish_engine(TONE)
    answered: list[str] = []

    def write() -> None:
        writer = Store.connect(own_valkey.url)
        with suppress(StoreUnavailableError):
            while True:
                answered.append(submit(writer, 50))
        writer.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for one in writers:
        one.start()
    wait_until(lambda: len(answered) > 60)
    own_valkey.stop()
    for one in writers:
        one.join()
    file = written(own_valkey).read_bytes()
    torn = file[file.rindex(BLOCK) :]
    begin_again(own_valkey, store, file + torn[: len(torn) // 2])
    assert {store.job(job).counts.queued for job in answered} == {50}
    waiting = store.snapshot().queued["tone"]
    assert waiting % 50 == 0
    assert len(answered) * 50 <= waiting <= (len(answered) + len(writers)) * 50

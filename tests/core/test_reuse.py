"""Which items are to sound the same, and what the store makes of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.core.device import Device
from tests.support import TONE, inputs
from voicemill.costs import CostModel
from voicemill.errors import WorkerLostError
from voicemill.jobs import ItemAudio, ItemError, ItemInput, ItemStatus, JobStatus
from voicemill.reuse import digest_of, marked
from voicemill.store import Spoken, StartedTask, Store

OTHERWISE: dict[str, Any] = {
    "text": "Another.",
    "model": "hibari",
    "voice": "high",
    "language": "en",
    "speed": 1.5,
    "seed": 0,
    "instructions": "Whisper.",
    "response_format": "flac",
    "options": {"accent": "broad"},
    "voice_revision": "0" * 32,
}
SAME: dict[str, Any] = {"index": 7, "custom_id": "x", "metadata": {"a": "b"}, "same_as": 3}
ITEM = inputs("Hello.")[0]


def test_every_field_is_known_to_shape_the_sound_or_not() -> None:
    assert {one.name for one in fields(ItemInput)} == OTHERWISE.keys() | SAME.keys()


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_shapes_the_sound_makes_another_one(name: str) -> None:
    other = replace(ITEM, index=1, **{name: OTHERWISE[name]})
    assert [item.same_as for item in marked([ITEM, other])] == [None, None]
    assert digest_of(other, TONE, {}) != digest_of(ITEM, TONE, {})


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_shape_the_sound_makes_no_other(name: str) -> None:
    other = replace(ITEM, **{"index": 1, name: SAME[name]})
    assert digest_of(other, TONE, {}) == digest_of(ITEM, TONE, {})
    assert [item.same_as for item in marked([ITEM, other])][1] == ITEM.index


def test_each_points_to_the_first_that_sounds_so_and_is_else_as_it_was() -> None:
    items = inputs("a", "b", "a", "c", "b", "a")
    found = list(marked(items))
    assert [item.same_as for item in found] == [None, None, 0, None, 1, 0]
    assert [replace(item, same_as=None) for item in found] == items
    assert list(marked([replace(items[0], speed=1), replace(items[2], speed=1.0)]))[1].same_as == 0


def test_a_digest_names_the_model_and_the_options_too() -> None:
    digests = {
        digest_of(ITEM, TONE, {}),
        digest_of(ITEM, replace(TONE, model_revision="2"), {}),
        digest_of(ITEM, replace(TONE, engine="piper"), {}),
        digest_of(ITEM, TONE, {"noise": 0.5}),
    }
    assert len(digests) == 4
    assert all(len(digest) == 64 and int(digest, 16) for digest in digests)


# --- in the store ---------------------------------------------------------------


def audio(path: str = "/out/a.wav", seconds: float = 0.5) -> ItemAudio:
    return ItemAudio(path, "ab" * 32, 100, 2.0, 24000, seconds, "tone", "1")


def waiting(store: Store) -> list[int]:
    client: Any = store._redis
    entries = client.lrange("voicemill:job:job_1:queue:tone", 0, -1)
    return [int(entry.split(b"\t")[0]) for entry in entries]


def test_what_is_to_sound_as_another_item_waits_right_behind_it(store: Store) -> None:
    texts = ["a", "b", "a", "c", "b", "a"]
    store.create_job("job_1", "default", inputs(*texts), {})
    assert waiting(store) == [0, 2, 5, 1, 4, 3]
    read = store.items("job_1", limit=10)
    assert [item.input.text for item in read] == texts
    assert [item.input.same_as for item in read] == [None, None, 0, None, 1, 0]


def test_it_does_so_in_a_job_of_many_pages_too(store: Store) -> None:
    texts = [f"Line {n % 1200}." for n in range(2400)]
    store.create_job("job_1", "default", inputs(*texts), {})
    assert waiting(store) == [index for n in range(1200) for index in (n, n + 1200)]
    assert [item.input.text for item in store.items("job_1", limit=5000)] == texts


def test_a_job_that_wants_each_spoken_has_none_marked(store: Store) -> None:
    device = Device(store, slots=4)
    store.create_job("job_1", "ann", inputs("a", "a"), {}, reuse=False)
    store.create_job("job_2", "ann", inputs("a", "a"), {})
    assert [item.input.same_as for item in store.items("job_1")] == [None, None]
    tasks = device.admit()
    assert {(task.job_id, task.tenant, task.reuses) for task in tasks} == {
        ("job_1", "ann", False),
        ("job_2", "ann", True),
    }


def test_a_cached_item_is_counted_and_costs_nothing(store: Store) -> None:
    device = Device(store)
    store.create_job("job_1", "ann", inputs("a", "a", "a"), {})
    client: Any = store._redis
    while device.store.snapshot().queued["tone"]:
        (task,) = device.admit(most=1)
        for index in store.start_items(task, task.indexes, 600):
            sound = audio(f"/out/{index}.wav", 0.0 if index else 0.5)
            assert store.succeed_item(task, index, sound, cached=index > 0, same_as=0)
        store.end_task(task, max_attempts=3)

    job = store.job("job_1")
    assert job.status is JobStatus.COMPLETED
    assert (job.counts.succeeded, job.counts.cached) == (3, 2)
    assert (job.audio_seconds, job.device_seconds, job.done_characters) == (6.0, 0.5, 3)
    assert [item.cached for item in store.items("job_1")] == [False, True, True]
    assert float(client.hget("voicemill:costs:tone", "n")) == 1.0, "it says nothing of the engine"
    metrics = {name: value for name, _, value in store.metrics()}
    assert metrics["voicemill_cached_items_total"] == 2
    assert metrics["voicemill_audio_seconds_total"] == 2.0
    assert metrics["voicemill_synthesis_seconds_count"] == 1


LASTING = ItemError("unsupported_characters", "It can't be said.", False)
PASSING = ItemError("synthesis_failed", "It failed.", True)
LOST = ItemError("worker_lost", "The worker died.", True)


class Alike:
    """A job of items that are to sound the same, one in each batch."""

    def __init__(self, store: Store, count: int) -> None:
        self.store = store
        self.device = Device(store, slots=count)
        store.create_job("job_1", "ann", inputs(*["a"] * count), {})

    def begin(self, index: int) -> StartedTask:
        (task,) = self.store.admit("tone", CostModel(1.0, 0.0), 1.0, most=1)
        started = self.store.start_task(task.id, f"c{index}", 600)
        assert started is not None
        assert list(self.store.start_items(started, started.indexes, 600)) == [index]
        return started

    def fail(self, task: StartedTask, error: ItemError = LASTING) -> None:
        (index,) = task.indexes
        assert self.store.fail_item(task, index, error, max_attempts=1) is ItemStatus.FAILED
        self.store.end_task(task, max_attempts=1)

    def share(self, task: StartedTask) -> Spoken | None:
        (index,) = task.indexes
        return self.store.share_item(task, index, 0)


def test_where_the_first_failed_who_asks_takes_its_place_and_the_others_wait_for_it(
    store: Store,
) -> None:
    alike = Alike(store, 3)
    first, second = alike.begin(0), alike.begin(1)
    began = store.item("job_1", "row-000001").started_at
    waits = alike.share(second)
    assert began is not None
    assert waits is not None
    assert waits.pending_seconds is not None
    assert (waits.index, waits.audio, waits.error) == (0, None, None)
    assert 0 < waits.pending_seconds <= store.snapshot().at - began
    alike.fail(first)

    assert alike.share(second) is None
    assert alike.share(second) is None, "nor when its answer was lost"
    third = alike.begin(2)
    waits = alike.share(third)
    assert waits is not None
    assert (waits.index, waits.pending_seconds is None) == (1, False)
    assert store.succeed_item(second, 1, audio("/out/1.wav"), same_as=0)

    assert alike.share(third) == Spoken(1, audio("/out/1.wav"))
    assert store.item("job_1", "row-000001").status is ItemStatus.FAILED
    assert not any(item.cached for item in store.items("job_1"))


@pytest.mark.parametrize(
    ("first", "second", "is_over"),
    [
        (LASTING, LASTING, True),
        (LOST, LOST, True),
        (LOST, LASTING, True),
        (PASSING, PASSING, False),
        (PASSING, LOST, False),
        (LOST, PASSING, False),
    ],
    ids=lambda one: one.code if isinstance(one, ItemError) else str(one),
)
def test_two_in_a_row_that_failed_for_good_by_what_lasts_speak_for_the_others(
    store: Store, first: ItemError, second: ItemError, is_over: bool
) -> None:
    alike = Alike(store, 4)
    alike.fail(alike.begin(0), first)
    task = alike.begin(1)
    assert alike.share(task) is None
    alike.fail(task, second)

    third = alike.share(alike.begin(2))

    assert third == (Spoken(1, error=second) if is_over else None)


def test_another_run_of_a_job_hears_the_first_again(store: Store) -> None:
    alike = Alike(store, 3)
    for index in range(3):
        task = alike.begin(index)
        if index:
            found = alike.share(task)
            assert (found is None) is (index == 1)
        alike.fail(task)
    assert store.retry("job_1").counts.queued == 3

    first, second, third = (alike.begin(index) for index in range(3))

    for task in (second, third):
        found = alike.share(task)
        assert found is not None
        assert (found.index, found.pending_seconds is None) == (0, False)
    assert store.succeed_item(first, 0, audio())
    assert alike.share(second) == alike.share(third) == Spoken(0, audio())


def test_who_has_lost_its_lease_takes_nobody_s_place(store: Store) -> None:
    alike = Alike(store, 3)
    alike.fail(alike.begin(0))
    zombie = alike.begin(1)
    store.recall_task(zombie.id)
    error = WorkerLostError("It died.")
    assert store.release_child("c1", "tone", max_attempts=3, error=error)
    again = alike.begin(1)
    assert alike.share(zombie) == Spoken(0, error=LASTING)
    assert alike.share(again) is None


def test_one_that_comes_again_after_a_pause_is_waited_for_until_then(store: Store) -> None:
    alike = Alike(store, 2)
    first, second = alike.begin(0), alike.begin(1)
    queued = store.fail_item(first, 0, PASSING, max_attempts=3, retry_seconds=8.0)
    assert queued is ItemStatus.QUEUED
    found = alike.share(second)
    assert found is not None
    assert found.pending_seconds is not None
    assert 3 < found.pending_seconds <= 8


def test_those_that_wait_for_one_never_keep_it_from_its_turn(store: Store) -> None:
    alike = Alike(store, 4)
    tasks = [alike.begin(index) for index in range(3)]
    for task in (*tasks[1:], tasks[0]):
        store.return_item(task, task.indexes[0], None)
        store.end_task(task, max_attempts=3)
    came = []
    while 0 not in came:
        (admitted,) = store.admit("tone", CostModel(1.0, 0.0), 1.0, most=1)
        task = store.start_task(admitted.id, "c0", 600)
        assert task is not None
        came += store.start_items(task, task.indexes, 600)
        store.return_item(task, task.indexes[0], None)
        store.end_task(task, max_attempts=3)
    assert came == [1, 2, 0], "what comes again goes first, each in its turn"


def test_one_that_went_back_is_not_taken_to_run_since_it_was_last_begun(store: Store) -> None:
    alike = Alike(store, 2)
    first, second = alike.begin(0), alike.begin(1)
    store.return_item(first, 0, ItemError("disk_full", "No room.", True))
    assert alike.share(second) == Spoken(0, pending_seconds=0.0)


def test_one_that_was_cancelled_while_it_waited_is_not_waited_for_in_another_run(
    store: Store,
) -> None:
    Device(store, slots=3)
    store.create_job("job_1", "ann", inputs("a", "b", "a", "b"), {})
    (admitted,) = store.admit("tone", CostModel(0.1, 0.0), 0.1, most=1)
    task = store.start_task(admitted.id, "c0", 600)
    assert task is not None
    store.start_items(task, [0], 600)
    assert store.fail_item(task, 0, LASTING, max_attempts=3)
    store.end_task(task, max_attempts=3)
    store.cancel("job_1")
    assert store.item("job_1", "row-000002").status is ItemStatus.CANCELLED
    assert store.retry("job_1").status is JobStatus.QUEUED
    (admitted,) = store.admit("tone", CostModel(0.1, 0.0), 0.1, most=1)
    task = store.start_task(admitted.id, "c0", 600)
    assert task is not None
    assert list(store.start_items(task, [0], 600)) == [0]
    assert store.share_item(task, 0, 1) is None


def test_an_item_waits_once_however_often_it_goes_back(store: Store) -> None:
    device = Device(store)
    store.create_job("job_1", "ann", inputs("a"), {})
    for _ in range(3):
        (task,) = device.admit(most=1)
        store.start_items(task, [0], 600)
        store.return_item(task, 0, None)
        store.end_task(task, max_attempts=3)
    metrics = {name: value for name, _, value in store.metrics()}
    assert metrics["voicemill_wait_seconds_count"] == 1


def test_a_job_of_different_texts_sends_no_command_more(store: Store) -> None:
    client: Any = store._redis
    device = Device(store)

    def keys_of(*texts: str) -> set[bytes]:
        client.flushall()
        job_id = Device(store).submit("ann", *texts)
        (task,) = device.admit(most=1)
        device.end(task, 0.1)
        return {name.rpartition(b":")[2] for name in client.keys(f"voicemill:job:{job_id}:*")}

    assert b"spoken" not in keys_of("a", "b")

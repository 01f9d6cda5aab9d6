"""Which items are to sound the same, and what the store makes of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.core.device import Device
from tests.support import TONE, inputs
from voicemill.jobs import ItemAudio, ItemError, ItemInput, ItemStatus, JobStatus
from voicemill.reuse import digest_of, marked
from voicemill.store import Spoken, Store

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


def test_what_is_to_sound_as_another_item_waits_behind_all_that_must_be_spoken(
    store: Store,
) -> None:
    texts = [f"Line {n % 1200}." for n in range(2500)]
    store.create_job("job_1", "default", inputs(*texts), {})
    client: Any = store._redis
    entries = client.lrange("voicemill:job:job_1:queue:tone", 0, -1)
    waiting = [int(entry.split(b"\t")[0]) for entry in entries]
    assert waiting == list(range(2500)), "here the first ones come first anyway"

    store.create_job("job_2", "default", inputs("a", "a", "b", "a", "c", "b"), {})
    entries = client.lrange("voicemill:job:job_2:queue:tone", 0, -1)
    assert [int(entry.split(b"\t")[0]) for entry in entries] == [0, 2, 4, 1, 3, 5]
    read = store.items("job_2", limit=10)
    assert [item.input.text for item in read] == ["a", "a", "b", "a", "c", "b"]
    assert [item.input.same_as for item in read] == [None, 0, None, 0, None, 2]


def test_many_alike_in_many_pages_come_behind_the_last_page(store: Store) -> None:
    texts = ["Alike." if n % 2 else f"Line {n}." for n in range(2200)]
    store.create_job("job_1", "default", inputs(*texts), {})
    client: Any = store._redis
    entries = client.lrange("voicemill:job:job_1:queue:tone", 0, -1)
    waiting = [int(entry.split(b"\t")[0]) for entry in entries]
    spoken = [n for n in range(2200) if n % 2 == 0 or n == 1]
    assert waiting == [*spoken, *(n for n in range(3, 2200, 2))]
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


def test_what_was_spoken_last_is_shared_where_the_first_failed(store: Store) -> None:
    device = Device(store)
    store.create_job("job_1", "ann", inputs("a", "a", "a"), {})
    assert store.spoken("job_1", []) == {}
    assert store.spoken("job_1", [0]) == {0: Spoken(0, pending_seconds=0.0)}
    (first,) = device.admit(most=1)
    store.start_items(first, [0], 600)
    began = store.item("job_1", "row-000001").started_at
    pending = store.spoken("job_1", [0])[0].pending_seconds
    assert began is not None
    assert pending is not None
    assert 0 < pending <= store.snapshot().at - began
    error = ItemError("synthesis_failed", "It failed.", False)
    assert store.fail_item(first, 0, error, max_attempts=3)
    assert store.spoken("job_1", [0]) == {0: Spoken(0)}
    store.end_task(first, max_attempts=3)

    (second,) = device.admit(most=1)
    store.start_items(second, [1], 600)
    assert store.succeed_item(second, 1, audio("/out/1.wav"), same_as=0)

    assert store.spoken("job_1", [0]) == {0: Spoken(1, audio("/out/1.wav"))}
    assert store.item("job_1", "row-000001").status is ItemStatus.FAILED
    assert not any(item.cached for item in store.items("job_1"))


def test_one_that_went_back_is_not_taken_to_run_since_it_was_last_begun(store: Store) -> None:
    device = Device(store)
    store.create_job("job_1", "ann", inputs("a", "a"), {})
    (first,) = device.admit(most=1)
    store.start_items(first, [0], 600)
    store.return_item(first, 0, ItemError("disk_full", "No room.", True))
    assert store.spoken("job_1", [0]) == {0: Spoken(0, pending_seconds=0.0)}


def test_one_that_was_cancelled_while_it_waited_is_not_waited_for_in_another_run(
    store: Store,
) -> None:
    device = Device(store)
    store.create_job("job_1", "ann", inputs("a", "b", "a"), {})
    (other,) = device.admit(most=1)
    store.start_items(other, [0], 600)
    lasting = ItemError("synthesis_failed", "It failed.", False)
    assert store.fail_item(other, 0, lasting, max_attempts=3)
    store.end_task(other, max_attempts=3)
    store.cancel("job_1")
    assert store.item("job_1", "row-000002").status is ItemStatus.CANCELLED
    assert store.spoken("job_1", [1]) == {1: Spoken(1)}
    assert store.retry("job_1").status is JobStatus.QUEUED
    assert store.spoken("job_1", [0, 1]) == {0: Spoken(0, pending_seconds=0.0), 1: Spoken(1)}


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

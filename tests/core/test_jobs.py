"""Jobs and items: what may follow what, in the tables and in the store."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import TONE, inputs
from voicemill.costs import CostModel
from voicemill.errors import (
    InvalidCustomIdError,
    InvalidTextError,
    NoSpeakableTextError,
    WorkerLostError,
)
from voicemill.jobs import (
    ITEM_TRANSITIONS,
    JOB_TRANSITIONS,
    Counts,
    Item,
    ItemAudio,
    ItemError,
    ItemInput,
    ItemStatus,
    Job,
    JobStatus,
    check_custom_id,
    check_text,
    default_custom_id,
    is_terminal,
    new_job_id,
)
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord

MAX_ATTEMPTS = 3
PASSING = ItemError("synthesis_failed", "It failed.", True)
LASTING = ItemError("unsupported_characters", "It can't be said.", False)


# --- the tables ---------------------------------------------------------------


def reachable(table: Mapping[str, frozenset[str]], start: str) -> set[str]:
    found = {start}
    while more := {after for status in found for after in table[status]} - found:
        found |= more
    return found


def test_every_status_has_a_row_and_can_be_reached() -> None:
    assert reachable(JOB_TRANSITIONS, JobStatus.VALIDATING) == set(JobStatus)
    assert reachable(ITEM_TRANSITIONS, ItemStatus.QUEUED) == set(ItemStatus)


def test_the_terminal_ones_are_those_that_end_something() -> None:
    assert {status for status in JobStatus if is_terminal(status)} == {
        JobStatus.COMPLETED,
        JobStatus.FAILED,
        JobStatus.CANCELLED,
        JobStatus.EXPIRED,
    }
    assert {status for status in ItemStatus if is_terminal(status)} == {
        ItemStatus.SUCCEEDED,
        ItemStatus.FAILED,
        ItemStatus.CANCELLED,
        ItemStatus.EXPIRED,
    }


def test_every_job_can_still_end() -> None:
    for status in JobStatus:
        assert any(is_terminal(after) for after in reachable(JOB_TRANSITIONS, status)), status


# --- the store keeps to the tables ----------------------------------------------


class Walk:
    """Random calls of everybody who calls the store, and what must hold after each."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.jobs: list[str] = []
        self.admitted: list[str] = []
        self.running: list[StartedTask] = []
        self.seen: dict[str, tuple[Job, list[Item]]] = {}
        self.published: dict[tuple[str, int], ItemAudio] = {}
        store.publish_engine(TONE)
        self.beat()

    def beat(self) -> None:
        record = ChildRecord("c0", "node", 1, "tone", "1", ready_at=0.0)
        self.store.beat_child(record, 60, takes_work=True)

    def create(self, pick: int) -> None:
        if len(self.jobs) < 3:
            self.jobs.append(new_job_id())
            texts = ["hello"] * (1 + pick % 9)
            self.store.create_job(self.jobs[-1], f"tenant{pick % 2}", inputs(*texts), {})

    def admit(self, pick: int) -> None:
        tasks = self.store.admit("tone", CostModel(1.0, 0.0), float(1 + pick % 4))
        self.admitted += [task.id for task in tasks]

    def start(self, pick: int) -> None:
        if self.admitted:
            task_id = self.admitted.pop(pick % len(self.admitted))
            task = self.store.start_task(task_id, f"c{pick % 3}", 60)
            assert self.store.start_task(task_id, "twin", 60) is None
            if task is not None:
                self.running.append(task)

    def begin(self, pick: int) -> None:
        if task := self.any_running(pick):
            indexes = task.indexes[: 1 + pick % len(task.indexes)]
            self.store.start_items(task, indexes, 60)

    def succeed(self, pick: int) -> None:
        if task := self.any_running(pick):
            index = task.indexes[pick % len(task.indexes)]
            self.publish(task, index)

    def fail(self, pick: int) -> None:
        self.end_item(pick, PASSING)

    def fail_for_good(self, pick: int) -> None:
        self.end_item(pick, LASTING)

    def end_item(self, pick: int, error: ItemError) -> None:
        if task := self.any_running(pick):
            index = task.indexes[pick % len(task.indexes)]
            self.store.fail_item(task, index, error, max_attempts=MAX_ATTEMPTS)

    def end(self, pick: int) -> None:
        if task := self.any_running(pick):
            self.store.end_task(task, max_attempts=MAX_ATTEMPTS)
            if pick % 3:
                self.running.remove(task)  # else a zombie goes on calling

    def lose_lease(self, pick: int) -> None:
        if task := self.any_running(pick):
            self.store.renew(task, 0)
            self.store.reap(max_attempts=MAX_ATTEMPTS)

    def lose_child(self, pick: int) -> None:
        child = f"c{pick % 3}"
        self.store.release_child(
            child, "tone", max_attempts=MAX_ATTEMPTS, error=WorkerLostError("It died.")
        )
        self.beat()

    def cancel(self, pick: int) -> None:
        if self.jobs and pick % 3 == 0:
            self.store.cancel(self.jobs[pick % len(self.jobs)])

    def publish(self, task: StartedTask, index: int) -> bool:
        path = f"/out/{uuid.uuid4().hex}.wav"
        audio = ItemAudio(path, "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")
        if not self.store.succeed_item(task, index, audio):
            return False
        assert (task.job_id, index) not in self.published
        self.published[task.job_id, index] = audio
        return True

    def any_running(self, pick: int) -> StartedTask | None:
        return self.running[pick % len(self.running)] if self.running else None

    def drain(self) -> None:
        """What good workers do until nothing is left."""
        for task in self.running:
            self.store.renew(task, 0)
        self.store.reap(max_attempts=MAX_ATTEMPTS)
        self.check()
        for _ in range(100):
            self.admit(0)
            if not self.admitted:
                return
            for task_id in self.admitted:
                self.finish(task_id)
            self.admitted.clear()
        pytest.fail("the queue does not run empty")

    def finish(self, task_id: str) -> None:
        task = self.store.start_task(task_id, "c1", 60)
        if task is None:
            return
        begun = self.store.start_items(task, task.indexes, 60)
        self.check()
        for index in begun:
            assert self.publish(task, index)
        assert self.store.end_task(task, max_attempts=MAX_ATTEMPTS)
        self.check()

    def check(self) -> None:
        for job_id in self.jobs:
            job, items = self.store.job(job_id), self.store.items(job_id)
            assert job.counts == count(items)
            for item in items:
                assert (item.audio is not None) == (item.status is ItemStatus.SUCCEEDED)
                assert item.audio == self.published.get((job_id, item.input.index))
                assert item.attempts <= MAX_ATTEMPTS
            if job_id in self.seen:
                was, were = self.seen[job_id]
                check_job_change(was, job)
                for before, after in zip(were, items, strict=True):
                    check_item_change(before, after)
            self.seen[job_id] = (job, items)


def count(items: list[Item]) -> Counts:
    by_status = Counter(item.status.value for item in items)
    return Counts(total=len(items), **{status.value: by_status[status] for status in ItemStatus})


def check_item_change(before: Item, after: Item) -> None:
    if before.status is not after.status:
        assert after.status in ITEM_TRANSITIONS[before.status]
    begun = before.status is ItemStatus.QUEUED and after.status is ItemStatus.IN_PROGRESS
    assert after.attempts == before.attempts + begun


def check_job_change(before: Job, after: Job) -> None:
    """One call may take several steps, ``finalizing`` on the way; each must be legal."""
    passed = {
        status
        for status in JobStatus
        if getattr(after, f"{status}_at", None) != getattr(before, f"{status}_at", None)
    }
    assert has_path(before.status, after.status, passed)


def has_path(start: JobStatus, goal: JobStatus, through: set[JobStatus]) -> bool:
    if not through:
        return start is goal
    return any(
        has_path(after, goal, through - {after}) for after in JOB_TRANSITIONS[start] & through
    )


STEPS: Mapping[Callable[[Walk, int], None], int] = {
    Walk.create: 2,
    Walk.admit: 4,
    Walk.start: 6,
    Walk.begin: 8,
    Walk.succeed: 3,
    Walk.fail: 6,
    Walk.fail_for_good: 1,
    Walk.end: 4,
    Walk.lose_lease: 1,
    Walk.lose_child: 1,
    Walk.cancel: 2,
}
"""Calls and how often each is made among them."""


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 80))]
)
def test_whatever_is_called_changes_are_legal_counts_are_true_and_every_job_ends(
    store: Store, seed: int
) -> None:
    chance = random.Random(seed)
    walk = Walk(store)
    for step in chance.choices(list(STEPS), list(STEPS.values()), k=80):
        step(walk, chance.randrange(1000))
        walk.check()
    walk.drain()
    for job_id in walk.jobs:
        assert is_terminal(store.job(job_id).status)
    assert store.snapshot().queued == {"tone": 0}
    assert store.snapshot().tasks == {"tone": 0}


# --- records ------------------------------------------------------------------


def test_job_ids_are_all_different() -> None:
    assert len({new_job_id() for _ in range(100)}) == 100


def test_an_input_comes_back_the_same_from_its_record() -> None:
    item = ItemInput(3, "a", "hé", "tone", "low", "en", 1.5, 7, "softly", "mp3", {"k": "v"})
    assert ItemInput.from_record(item.to_record()) == item


def test_only_items_of_one_model_and_voice_are_spoken_together() -> None:
    low, high = inputs("a")[0], inputs("a", voice="high")[0]
    assert low.batch_key != high.batch_key
    assert low.batch_key == inputs("another")[0].batch_key


def test_counts_say_completed_for_items_that_succeeded() -> None:
    counts = Counts(total=9, queued=1, in_progress=1, succeeded=3, failed=2, cancelled=1, expired=1)
    assert counts.to_wire() == {
        "total": 9,
        "queued": 1,
        "in_progress": 1,
        "completed": 3,
        "failed": 2,
        "cancelled": 1,
        "expired": 1,
        "cached": 0,
    }


# --- what a client may send -----------------------------------------------------


@pytest.mark.parametrize("custom_id", ["a", "row-000001", "_x", "-", "A.b-c_9", "x" * 64])
def test_an_id_that_can_be_part_of_a_file_name_is_taken(custom_id: str) -> None:
    check_custom_id(custom_id)


@pytest.mark.parametrize(
    "custom_id",
    ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a b", "é", "a\n", "a\0", "x" * 65, "a:b"],
)
def test_an_id_that_cannot_is_refused(custom_id: str) -> None:
    with pytest.raises(InvalidCustomIdError, match="can't be used: give 1 to 64 of"):
        check_custom_id(custom_id)


@given(index=st.integers(0, 10**7))
def test_the_default_id_of_every_input_can_be_used(index: int) -> None:
    check_custom_id(default_custom_id(index))
    assert default_custom_id(0) == "row-000001"


@pytest.mark.parametrize("text", ["A", "7", "Ok.", "…and so?", "日本", "٣", "½", "Ⅻ", "e\u0301"])
def test_a_letter_or_a_number_of_any_script_can_be_spoken(text: str) -> None:
    check_text(text)


@pytest.mark.parametrize(
    "text",
    ["", " \t\r\n\u3000\u00a0", "...", "！？。，、……——", "\u200b\ufeff\u00ad", "🎉", "\u0301"],
)
def test_text_without_letter_and_number_is_nothing_to_speak(text: str) -> None:
    with pytest.raises(NoSpeakableTextError):
        check_text(text)


@pytest.mark.parametrize(("text", "position"), [("Hi \ud83d there", 3), ("\udc00", 0)])
def test_half_a_character_is_refused_with_its_place(text: str, position: int) -> None:
    with pytest.raises(InvalidTextError, match=f"at position {position}"):
        check_text(text)


def test_a_whole_pair_is_a_character_like_any_other() -> None:
    check_text("Hi \U0001f600 there")

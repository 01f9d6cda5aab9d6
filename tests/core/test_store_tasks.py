"""The transitions of tasks and items, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.costs import CostModel
from voicemill.errors import StoreRefusedError, WorkerLostError
from voicemill.jobs import (
    ItemAudio,
    ItemError,
    ItemStatus,
    JobRules,
    JobStatus,
    new_job_id,
)
from voicemill.store import AdmittedTask, StartedTask, Store
from voicemill.workers import ChildRecord

SECOND_PER_ITEM = CostModel(1.0, 0.0)
ERROR = ItemError("synthesis_failed", "It failed.", True)
LASTING = ItemError("unsupported_characters", "No.", False)


def audio(path: str = "/out/a.wav") -> ItemAudio:
    return ItemAudio(path, "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")


def child(store: Store, name: str = "c1") -> str:
    record = ChildRecord(name, "node", 1, "tone", "1", ready_at=0.0)
    store.publish_engine(TONE)
    store.beat_child(record, 60, takes_work=True)
    return name


def submit(store: Store, *texts: str, tenant: str = "default", **rules: Any) -> str:
    job_id = new_job_id()
    store.create_job(job_id, tenant, inputs(*texts), {}, rules=JobRules(**rules))
    return job_id


def admit(store: Store, batch_seconds: float = 1.0, most: int = 16) -> list[str]:
    return [task.id for task in store.admit("tone", SECOND_PER_ITEM, batch_seconds, most=most)]


def start(store: Store, task_id: str, child_id: str = "c1", lease: float = 60) -> StartedTask:
    started = store.start_task(task_id, child_id, lease)
    assert started is not None
    return started


def test_nothing_is_admitted_without_a_live_child(store: Store) -> None:
    submit(store, "one")
    assert admit(store) == []


def test_live_children_and_one_more_batch_are_admitted(store: Store) -> None:
    child(store, "c1")
    child(store, "c2")
    submit(store, *"abcdefgh")
    assert len(admit(store)) == 3
    assert admit(store) == []


def test_a_batch_ends_at_its_budget_and_never_mixes_voices(store: Store) -> None:
    child(store)
    items = inputs(*"abcdefgh")
    mixed = [*items[:5], *inputs(*"abcdefgh", voice="high")[5:]]
    job_id = new_job_id()
    store.create_job(job_id, "default", mixed, {})
    first, second = admit(store, batch_seconds=3.0)
    assert start(store, first).indexes == (0, 1, 2)
    assert start(store, second).indexes == (3, 4)


def test_batches_shrink_as_the_queue_runs_out(store: Store) -> None:
    child(store)
    submit(store, *"abcd")
    first, second = admit(store, batch_seconds=100.0)
    assert start(store, first).indexes == (0, 1)
    assert start(store, second).indexes == (2,)


def test_tenants_take_turns_and_jobs_of_one_go_oldest_first(store: Store) -> None:
    for name in ("c1", "c2", "c3"):
        child(store, name)
    old = submit(store, "a", "b", tenant="ann")
    new = submit(store, "c", tenant="ann")
    other = submit(store, "d", tenant="bob")
    owners = [start(store, task).job_id for task in admit(store)]
    assert owners == [old, other, old, new]


def test_an_item_that_succeeds_completes_its_job(store: Store) -> None:
    child(store)
    job_id = submit(store, "hello")
    task = start(store, admit(store)[0])
    assert store.start_items(task, [0], 60) == {0: 1}
    assert store.job(job_id).status is JobStatus.IN_PROGRESS
    assert store.succeed_item(task, 0, audio())
    job = store.job(job_id)
    assert job.status is JobStatus.COMPLETED
    assert (job.counts.succeeded, job.counts.queued, job.counts.in_progress) == (1, 0, 0)
    assert (job.audio_seconds, job.device_seconds, job.done_characters) == (1.5, 0.25, 5)
    item = store.item(job_id, "row-000001")
    assert (item.status, item.audio, item.task_id) == (ItemStatus.SUCCEEDED, audio(), task.id)


def test_a_second_copy_of_the_message_finds_nothing_to_take(store: Store) -> None:
    child(store)
    submit(store, "hello")
    task_id = admit(store)[0]
    start(store, task_id)
    assert store.start_task(task_id, "c2", 60) is None


def test_a_repeated_start_with_the_same_token_gives_the_same_task(store: Store) -> None:
    child(store)
    submit(store, "hello")
    task_id = admit(store)[0]
    first = store.start_task(task_id, "c1", 60, token="once")
    assert first is not None
    assert store.start_task(task_id, "c1", 60, token="once") == first


def test_an_item_is_published_once(store: Store) -> None:
    child(store)
    job_id = submit(store, "hello")
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    assert store.succeed_item(task, 0, audio("/out/first.wav"))
    assert not store.succeed_item(task, 0, audio("/out/second.wav"))
    found = store.item(job_id, "row-000001").audio
    assert found is not None
    assert found.audio_path == "/out/first.wav"


def test_a_published_file_stays_published_when_the_task_is_gone(store: Store) -> None:
    child(store)
    submit(store, "hello")
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    assert store.succeed_item(task, 0, audio())
    assert store.end_task(task, max_attempts=3)
    assert store.succeed_item(task, 0, audio()), "the same call again, its answer was lost"
    assert not store.succeed_item(task, 0, audio("/out/other.wav"))


def test_who_lost_the_lease_cannot_publish(store: Store) -> None:
    child(store)
    job_id = submit(store, "hello")
    zombie = start(store, admit(store)[0], lease=0.001)
    store.start_items(zombie, [0], 0.001)
    wait_until(lambda: store.reap(max_attempts=3) == 1)
    assert store.renew(zombie, 60) == "lost"
    assert not store.succeed_item(zombie, 0, audio())
    assert store.item(job_id, "row-000001").status is ItemStatus.QUEUED
    assert store.item(job_id, "row-000001").attempts == 1


def test_an_item_is_tried_as_often_as_it_may_and_then_names_its_error(store: Store) -> None:
    child(store)
    job_id = submit(store, "hello")
    for attempt in (1, 2, 3):
        task = start(store, admit(store)[0], lease=0.001)
        assert store.start_items(task, [0], 0.001) == {0: attempt}
        wait_until(lambda: store.reap(max_attempts=3) == 1)
    item = store.item(job_id, "row-000001")
    assert item.status is ItemStatus.FAILED
    assert item.error is not None
    assert (item.error.code, item.attempts) == ("worker_lost", 3)
    assert store.job(job_id).status is JobStatus.FAILED


def test_items_a_dead_child_had_not_started_lose_no_attempt(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abcd")
    task = start(store, admit(store, batch_seconds=9, most=1)[0])
    store.start_items(task, [0], 60)
    assert store.release_child(
        "c1", "tone", max_attempts=3, error=WorkerLostError("It was killed.")
    )
    assert [item.attempts for item in store.items(job_id)] == [1, 0, 0, 0]
    assert store.snapshot().slots == {"tone": 0}
    child(store)
    again = start(store, admit(store, batch_seconds=9, most=1)[0])
    assert again.indexes == (0,), "a retried item travels alone"


def test_a_failed_attempt_goes_back_once_even_when_its_task_ends_later(store: Store) -> None:
    child(store)
    job_id = submit(store, "a", "b", "c", "d")
    task = start(store, admit(store, batch_seconds=9, most=1)[0])
    assert task.indexes == (0, 1)
    store.start_items(task, [0, 1], 60)
    assert store.fail_item(task, 0, ERROR, max_attempts=3)
    assert store.succeed_item(task, 1, audio())
    assert store.end_task(task, max_attempts=3)
    carried = [start(store, one).indexes for one in admit(store, batch_seconds=1)]
    assert carried == [(0,), (2,)]
    assert store.job(job_id).counts.queued == 3


def test_an_error_that_is_permanent_fails_at_once(store: Store) -> None:
    child(store)
    job_id = submit(store, "a", "b")
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    store.fail_item(task, 0, ItemError("unsupported_characters", "No.", False), max_attempts=3)
    item = store.item(job_id, "row-000001")
    assert (item.status, item.attempts) == (ItemStatus.FAILED, 1)


def test_a_failed_item_waits_out_its_pause_and_the_others_go_on(store: Store) -> None:
    child(store)
    job_id = submit(store, "a", "b")
    task = start(store, admit(store, most=1)[0])
    store.start_items(task, [0], 60)
    failed_after = store.snapshot().at
    store.fail_item(task, 0, ERROR, max_attempts=3, retry_seconds=0.4)
    store.end_task(task, max_attempts=3)
    assert waiting(store) == (2, 2)
    assert [start(store, one).indexes for one in admit(store)] == [(1,)]
    again: list[str] = []
    wait_until(lambda: bool(again.extend(admit(store)) or again), what="the end of the pause")
    assert store.snapshot().at - failed_after >= 0.2
    assert start(store, again[0]).indexes == (0,)
    assert waiting(store) == (0, 0)
    assert store.item(job_id, "row-000001").attempts == 1


def test_cancel_drops_what_waits_out_a_pause(store: Store) -> None:
    child(store)
    job_id = submit(store, "a")
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    store.fail_item(task, 0, ERROR, max_attempts=3, retry_seconds=0.01)
    assert store.cancel(job_id).status is JobStatus.CANCELLED
    assert waiting(store) == (0, 0)
    assert store.item(job_id, "row-000001").status is ItemStatus.CANCELLED
    store.end_task(task, max_attempts=3)
    ended = store.snapshot().at
    wait_until(lambda: store.snapshot().at > ended + 0.05)
    assert admit(store) == []


def test_only_the_first_loss_of_a_worker_costs_no_pause(store: Store) -> None:
    submit(store, "a")
    lost = WorkerLostError("It died.")
    for may_go in (True, True, False):
        child(store)
        admitted = admit(store)
        assert bool(admitted) is may_go
        if may_go:
            task = start(store, admitted[0])
            store.start_items(task, [0], 60)
            store.release_child("c1", "tone", max_attempts=5, error=lost, retry_seconds=60)


def test_a_closed_task_gives_back_what_it_did_not_start(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abcd")
    task = start(store, admit(store, batch_seconds=9, most=1)[0])
    assert store.end_task(task, max_attempts=3)
    assert [item.attempts for item in store.items(job_id)] == [0, 0, 0, 0]
    assert start(store, admit(store, batch_seconds=9, most=1)[0]).indexes == (0, 1)


def test_cancel_stops_what_waits_at_once_and_what_runs_at_its_end(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abcdef")
    running, _ = (start(store, task) for task in admit(store, batch_seconds=1))
    store.start_items(running, [0], 60)
    job = store.cancel(job_id)
    assert job.status is JobStatus.CANCELLING
    assert (job.counts.cancelled, job.counts.in_progress, job.counts.queued) == (5, 1, 0)
    assert store.renew(running, 60) == "stopping"
    assert not store.succeed_item(running, 0, audio())
    job = store.job(job_id)
    assert job.status is JobStatus.CANCELLED
    assert job.counts.cancelled == 6
    assert {item.status for item in store.items(job_id)} == {ItemStatus.CANCELLED}


def test_who_holds_on_to_a_stopped_job_is_overdue_after_a_while(store: Store) -> None:
    child(store, "c1")
    child(store, "c2")
    stopped, other = submit(store, "a"), submit(store, "b")
    held = [start(store, task, f"c{n}") for n, task in enumerate(admit(store), 1)]
    for task in held:
        store.start_items(task, [0], 60)
    assert [task.job_id for task in held] == [stopped, other]
    assert store.overdue_children(["c1", "c2"], 0) == set(), "nobody is told to stop"
    store.cancel(stopped)
    assert store.overdue_children(["c1", "c2"], 60) == set()
    wait_until(lambda: store.overdue_children(["c1", "c2"], 0.05) == {"c1"})
    store.release_child("c1", "tone", max_attempts=3, error=WorkerLostError("It was killed."))
    assert store.job(stopped).status is JobStatus.CANCELLED
    assert store.overdue_children(["c1", "c2"], 0) == set()


def test_cancel_keeps_what_succeeded_and_counts_a_waiting_retry_once(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abcd")
    task = start(store, admit(store, batch_seconds=9, most=1)[0])
    store.start_items(task, [0, 1], 60)
    store.succeed_item(task, 0, audio())
    store.fail_item(task, 1, ERROR, max_attempts=3)
    job = store.cancel(job_id)
    assert job.status is JobStatus.CANCELLED
    assert (job.counts.succeeded, job.counts.cancelled) == (1, 3)
    statuses = [item.status.value for item in store.items(job_id)]
    assert statuses == ["succeeded", "cancelled", "cancelled", "cancelled"]


def test_a_job_past_its_deadline_expires_once_what_runs_has_stopped(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abcd", deadline_seconds=0.2)
    task = start(store, admit(store, most=1)[0])
    store.start_items(task, [0], 60)
    assert store.expire_jobs() == 0
    wait_until(lambda: store.expire_jobs() == 1, what="the deadline")
    job = store.job(job_id)
    assert job.expires_at is not None
    assert store.snapshot().at >= job.expires_at >= job.created_at + 0.2
    assert (job.status, job.counts.expired, job.counts.in_progress) == (JobStatus.CANCELLING, 3, 1)
    assert store.renew(task, 60) == "stopping"
    assert not store.succeed_item(task, 0, audio())
    job = store.job(job_id)
    assert (job.status, job.counts.expired) == (JobStatus.EXPIRED, 4)
    assert {item.status for item in store.items(job_id)} == {ItemStatus.EXPIRED}
    assert store.expire_jobs() == 0


def test_a_job_that_ended_before_its_deadline_stays_as_it_is(store: Store) -> None:
    child(store)
    job_id = submit(store, "a", deadline_seconds=0.01)
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    store.succeed_item(task, 0, audio())
    wait_until(lambda: store.expire_jobs() == 1)
    assert store.job(job_id).status is JobStatus.COMPLETED


@pytest.mark.parametrize("allowed", [0, 1])
def test_one_failed_item_too_many_stops_the_job(store: Store, allowed: int) -> None:
    child(store)
    job_id = submit(store, *"abcdef", max_failures=allowed)
    task = start(store, admit(store, batch_seconds=9, most=1)[0])
    assert task.indexes == (0, 1, 2)
    store.start_items(task, [0, 1, 2], 60)
    for index in range(allowed):
        store.fail_item(task, index, LASTING, max_attempts=3)
    assert store.job(job_id).status is JobStatus.IN_PROGRESS
    store.fail_item(task, allowed, LASTING, max_attempts=3)
    assert store.job(job_id).status is JobStatus.CANCELLING
    assert not store.succeed_item(task, 2, audio())
    store.end_task(task, max_attempts=3)
    job = store.job(job_id)
    assert (job.status, job.counts.failed) == (JobStatus.FAILED, allowed + 1)
    assert job.counts.cancelled == 5 - allowed
    statuses = [item.status.value for item in store.items(job_id)]
    assert statuses == ["failed"] * (allowed + 1) + ["cancelled"] * (5 - allowed)
    assert waiting(store) == (0, 0)


def test_the_end_of_a_batch_lets_in_the_next_in_one_message(store: Store) -> None:
    child(store)
    job_id = submit(store, *"abc")
    ended = start(store, admit(store)[0])
    store.start_items(ended, ended.indexes, 60)
    store.succeed_item(ended, ended.indexes[0], audio())
    (following,) = store.end_and_admit(ended, "tone", SECOND_PER_ITEM, 1.0, max_attempts=3)
    assert start(store, following.id).indexes == (2,)
    assert store.job(job_id).counts.succeeded == 1
    assert store.start_task(ended.id, "c1", 60) is None
    # The same call again, because its answer was lost: two slots' worth is in.
    assert store.end_and_admit(ended, "tone", SECOND_PER_ITEM, 1.0, max_attempts=3) == []


def test_scripts_that_redis_has_lost_are_sent_again_in_one_message_too(
    own_valkey: Valkey,
) -> None:
    store = Store.connect(own_valkey.url)
    child(store)
    submit(store, *"abc")
    ended = start(store, admit(store)[0])
    with redis.Redis.from_url(own_valkey.url) as client:
        client.script_flush()
    assert len(store.end_and_admit(ended, "tone", SECOND_PER_ITEM, 1.0, max_attempts=3)) == 1
    store.close()


def test_what_a_child_holds_that_takes_no_more_takes_nobody_s_slot(store: Store) -> None:
    child(store, "c1")
    child(store, "c2")
    submit(store, *"abcdef")
    start(store, admit(store, most=1)[0], "c1")
    record = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
    store.beat_child(record, 60, takes_work=False)
    assert len(admit(store)) == 2, "the slot of the other one, and one more"
    store.beat_child(record, 60, takes_work=True)
    assert admit(store) == [], "two slots and one more are taken"


def test_a_terminal_job_is_not_cancelled(store: Store) -> None:
    child(store)
    job_id = submit(store, "a")
    task = start(store, admit(store)[0])
    store.start_items(task, [0], 60)
    store.succeed_item(task, 0, audio())
    assert store.cancel(job_id).status is JobStatus.COMPLETED


def test_a_cancelled_job_frees_its_slots(store: Store) -> None:
    child(store)
    first = submit(store, *"abcdef")
    assert len(admit(store)) == 2
    store.cancel(first)
    submit(store, "next")
    assert len(admit(store)) == 1


def test_a_task_that_never_started_is_found_again(store: Store) -> None:
    child(store)
    submit(store, "a")
    (task_id,) = admit(store)
    assert store.stale_admitted(60) == []
    assert store.stale_admitted(0) == [AdmittedTask(task_id, "tone", 1.0)]
    start(store, task_id)
    assert store.stale_admitted(0) == []
    assert not store.recall_task(task_id)


@pytest.mark.parametrize("count", [1, 100, 101, 2500])
def test_items_of_every_page_read_back_in_order(store: Store, count: int) -> None:
    texts = [f"Text {number}." for number in range(count)]
    job_id = submit(store, *texts)
    assert [item.input.text for item in store.items(job_id, limit=5000)] == texts
    assert store.item(job_id, f"row-{count:06d}").input.text == texts[-1]


@pytest.mark.parametrize("script", ["append_items", "open_job"])
def test_a_job_that_is_given_up_while_it_is_stored_is_no_success(
    store: Store, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    run = store.run

    def run_late(name: str, *args: Any) -> Any:
        if name == script:
            store.abandon_unfinished(0)
        return run(name, *args)

    monkeypatch.setattr(store, "run", run_late)
    with pytest.raises(StoreRefusedError, match="job_1 was given up before all of its items"):
        store.create_job("job_1", "default", inputs("one"), {})
    assert store.job("job_1").status is JobStatus.FAILED
    assert store.snapshot().queued_characters == {}


def test_what_waits_is_counted_in_items_and_characters_until_it_is_started(store: Store) -> None:
    child(store)
    first = submit(store, "four", "seven..")
    second = submit(store, "ten letter")
    assert waiting(store) == (3, 21)
    task, _ = (start(store, one) for one in admit(store, batch_seconds=1))
    assert waiting(store) == (1, 10)
    store.start_items(task, [0], 60)
    store.fail_item(task, 0, ERROR, max_attempts=3)
    assert waiting(store) == (2, 14)
    store.cancel(first)
    assert waiting(store) == (1, 10)
    store.cancel(second)
    assert waiting(store) == (0, 0)


def waiting(store: Store) -> tuple[int, int]:
    """Items that were not let in, and their characters."""
    snapshot = store.snapshot()
    return snapshot.queued["tone"], snapshot.queued_characters["tone"]


def test_the_oldest_item_is_the_one_that_came_first_and_was_not_started(store: Store) -> None:
    child(store)
    assert store.oldest_item_seconds() is None
    first = submit(store, "a", tenant="ann")
    wait_until(lambda: store.snapshot().at > store.job(first).created_at + 0.01)
    second = submit(store, "b", tenant="bob")
    assert is_oldest(store, first)
    store.cancel(first)
    assert is_oldest(store, second)
    (task,) = admit(store)
    assert is_oldest(store, second), "admitted is not started"
    start(store, task)
    assert store.oldest_item_seconds() is None


def is_oldest(store: Store, job_id: str) -> bool:
    """True when the oldest item is this job's, by the store's clock."""
    came = store.job(job_id).created_at
    before = store.snapshot().at - came
    age = store.oldest_item_seconds()
    # The snapshot tells its clock to the tenth of a millisecond.
    return age is not None and before - 0.001 <= age <= store.snapshot().at - came + 0.001


def test_a_submission_that_stops_half_way_fails_and_runs_nothing(store: Store) -> None:
    child(store)
    head = ("job_x", "default", "{}", '["tone"]', "bulk", 0, "", "", "", "", "")
    store.run("create_job", *head, 7, 70, 700, "inf")
    assert store.job("job_x").status is JobStatus.VALIDATING
    assert admit(store) == []
    assert store.abandon_unfinished(0) == 1
    assert store.job("job_x").status is JobStatus.FAILED

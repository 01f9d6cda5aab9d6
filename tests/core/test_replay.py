"""Failed items: looked at, run again; and jobs that are deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support import TONE, inputs, wait_until
from voicemill.costs import CostModel
from voicemill.errors import JobActiveError, JobNotFoundError
from voicemill.jobs import ItemAudio, ItemError, ItemStatus, JobRules, JobStatus
from voicemill.store import DeadLetterPage, StartedTask, Store
from voicemill.workers import ChildRecord

LASTING = ItemError("unsupported_characters", "It can't be said.", False)
PASSING = ItemError("synthesis_failed", "It failed.", True)
SPOKEN = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")


def live(store: Store) -> None:
    store.publish_engine(TONE)
    child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
    store.beat_child(child, 60, takes_work=True)


def next_task(store: Store, batch_seconds: float = 100.0) -> StartedTask:
    live(store)
    (admitted,) = store.admit("tone", CostModel(1.0, 0.0), batch_seconds, most=1)
    task = store.start_task(admitted.id, "c1", 60)
    assert task is not None
    return task


def run_all(store: Store, *failing: int, error: ItemError = LASTING) -> list[int]:
    """Run all that waits; gives the indexes in the order they ran in."""
    ran: list[int] = []
    live(store)
    while store.snapshot().queued["tone"]:
        task = next_task(store)
        for index in store.start_items(task, task.indexes, 60):
            ran.append(index)
            if index in failing:
                store.fail_item(task, index, error, max_attempts=1)
            else:
                assert store.succeed_item(task, index, SPOKEN)
        store.end_task(task, max_attempts=1)
    return ran


def test_a_retry_runs_what_failed_and_nothing_else(store: Store) -> None:
    store.create_job("job_1", "default", inputs(*"abcd"), {})
    run_all(store, 1, 3)
    before = store.job("job_1")
    assert (before.status, before.counts.failed) == (JobStatus.COMPLETED, 2)

    job = store.retry("job_1")

    assert (job.status, job.run, job.completed_at) == (JobStatus.QUEUED, 2, None)
    assert (job.counts.queued, job.counts.failed, job.counts.succeeded) == (2, 0, 2)
    assert job.done_characters == 2
    waiting = store.item("job_1", "row-000002")
    assert (waiting.status, waiting.attempts, waiting.error) == (ItemStatus.QUEUED, 1, LASTING)
    assert sorted(run_all(store)) == [1, 3]
    job = store.job("job_1")
    assert (job.status, job.counts.succeeded, job.done_characters) == (JobStatus.COMPLETED, 4, 4)
    again = store.item("job_1", "row-000002")
    assert (again.status, again.attempts, again.error) == (ItemStatus.SUCCEEDED, 2, None)


def test_a_retry_that_is_sent_twice_counts_once(store: Store) -> None:
    store.create_job("job_1", "default", inputs(*"ab"), {})
    run_all(store, 1)
    for _ in range(2):
        assert store.retry("job_1", run=1).run == 2
    assert run_all(store, 1) == [1]
    assert store.retry("job_1", run=1).counts.failed == 1, "that run is over"
    assert store.retry("job_1", run=2).run == 3


def test_attempts_go_on_counting_and_each_run_has_as_many(store: Store) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    for run in (1, 2):
        for attempt in (1, 2):
            task = next_task(store)
            assert store.start_items(task, [0], 60) == {0: 2 * (run - 1) + attempt}
            assert store.fail_item(task, 0, PASSING, max_attempts=2)
            store.end_task(task, max_attempts=2)
        assert store.job("job_1").status is JobStatus.FAILED
        if run == 1:
            store.retry("job_1")


def test_what_was_cancelled_stays_so_when_what_failed_runs_again(store: Store) -> None:
    store.create_job("job_1", "default", inputs(*"abcd"), {}, rules=JobRules(max_failures=0))
    task = next_task(store)
    store.start_items(task, [0], 60)
    store.fail_item(task, 0, LASTING, max_attempts=1)
    store.end_task(task, max_attempts=1)
    assert store.job("job_1").status is JobStatus.FAILED

    store.retry("job_1")
    statuses = [item.status.value for item in store.items("job_1")]
    assert statuses == ["queued", "cancelled", "cancelled", "cancelled"]
    store.cancel("job_1")

    assert {item.status for item in store.items("job_1")} == {ItemStatus.CANCELLED}
    assert store.job("job_1").counts.cancelled == 4
    assert store.retry("job_1").status is JobStatus.CANCELLED, "nothing failed"


def test_a_retry_has_the_whole_deadline_again(store: Store) -> None:
    store.create_job("job_1", "default", inputs("a"), {}, rules=JobRules(deadline_seconds=0.1))
    run_all(store, 0)
    first = store.job("job_1").expires_at
    wait_until(lambda: store.expire_jobs() == 1)
    job = store.retry("job_1")
    assert first is not None
    assert job.expires_at is not None
    assert job.expires_at >= first + 0.1
    wait_until(lambda: store.expire_jobs() == 1)
    assert store.job("job_1").status is JobStatus.EXPIRED


@pytest.mark.parametrize("call", ["retry", "delete"])
def test_a_job_that_goes_on_is_neither_retried_nor_deleted(store: Store, call: str) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    with pytest.raises(JobActiveError, match="The job job_1 has not ended; cancel it first"):
        getattr(store, call)("job_1")


def test_dead_letters_are_listed_by_tenant_newest_job_first_in_pages(store: Store) -> None:
    for name in ("job_1", "job_2", "job_3"):
        tenant = "bob" if name == "job_2" else "ann"
        store.create_job(name, tenant, inputs(*"abc"), {})
        run_all(store, 0, 2)

    first = store.dead_letters("ann", limit=3)
    rest = store.dead_letters("ann", after=first.letters[-1].id, limit=3)

    assert places(first) == [("job_3", 0), ("job_3", 2), ("job_1", 0)]
    assert places(rest) == [("job_1", 2)]
    assert (first.has_more, rest.has_more) == (True, False)
    assert {one.item.error for one in first.letters} == {LASTING}
    nothing = store.dead_letters("ann", after=rest.letters[-1].id)
    assert (nothing.letters, nothing.has_more) == ([], False)
    assert len(store.dead_letters("bob").letters) == 2
    store.retry("job_3")
    assert places(store.dead_letters("ann")) == [("job_1", 0), ("job_1", 2)]
    strange = ("job_2.1.0.0", "job_3.0", "job_9.1.0.0", "job_1.1.0.x", "job_1.1.0.-1", "")
    for nowhere in strange:
        with pytest.raises(JobNotFoundError):
            store.dead_letters("ann", after=nowhere)


def places(page: DeadLetterPage) -> list[tuple[str, int]]:
    return [(one.item.job_id, one.item.input.index) for one in page.letters]


def pages(store: Store, limit: int, between: Callable[[int], object]) -> list[tuple[str, int]]:
    """All dead letters of a tenant, page by page; after each something happens."""
    found: list[tuple[str, int]] = []
    after = None
    for number in range(20):
        page = store.dead_letters("ann", after=after, limit=limit)
        found += places(page)
        if not page.has_more:
            return found
        assert len(page.letters) == limit
        after = page.letters[-1].id
        between(number)
    raise AssertionError("there is no end of them")


def fail_next(store: Store, engine: str) -> int:
    """One item that waits for an engine fails for good; gives its index."""
    store.publish_engine(replace(TONE, engine=engine))
    child = ChildRecord(f"of {engine}", "node", 1, engine, "1", ready_at=0.0)
    store.beat_child(child, 60, takes_work=True)
    (admitted,) = store.admit(engine, CostModel(1.0, 0.0), 1.0, most=1)
    task = store.start_task(admitted.id, child.id, 60)
    assert task is not None
    (index,) = store.start_items(task, task.indexes, 60)
    assert store.fail_item(task, index, LASTING, max_attempts=1)
    store.end_task(task, max_attempts=1)
    return index


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_of_dead_letters_neither_skip_nor_repeat_while_items_of_two_engines_fail(
    store: Store, limit: int
) -> None:
    items = [replace(one, model="hibari") if one.index % 2 else one for one in inputs(*"abcdefgh")]
    store.create_job("job_1", "ann", items, {})
    for engine in ("tone", "hibari", "hibari", "tone"):
        fail_next(store, engine)
    further = iter(["hibari", "tone", "hibari", "tone"])

    def more_fail(_: int) -> None:
        if engine := next(further, None):
            fail_next(store, engine)

    found = pages(store, limit, more_fail)

    assert len(found) == len(set(found))
    assert {("job_1", index) for index in range(4)} <= set(found)
    for engine in further:
        fail_next(store, engine)
    of_hibari, of_tone = [1, 3, 5, 7], [0, 2, 4, 6]
    assert pages(store, limit, lambda _: None) == [("job_1", n) for n in of_hibari + of_tone]


def failed_jobs(store: Store) -> None:
    for name in ("job_1", "job_2"):
        store.create_job(name, "ann", inputs(*"abc"), {})
        run_all(store, 0, 1, 2)


def test_a_job_that_is_retried_or_deleted_between_two_pages_hides_none_of_the_others(
    store: Store,
) -> None:
    for change in (store.retry, store.delete):
        store._redis.flushall()
        failed_jobs(store)
        found = pages(store, 2, lambda number, do=change: None if number else do("job_2"))  # type: ignore[misc]
        assert found == [("job_2", 0), ("job_2", 1), *(("job_1", index) for index in range(3))]


def test_what_failed_again_between_two_pages_is_shown_again(store: Store) -> None:
    failed_jobs(store)

    def run_again(number: int) -> None:
        if number == 0:
            store.retry("job_2")
            run_all(store, 1, 2)

    found = pages(store, 2, run_again)

    assert found[:2] == [("job_2", 0), ("job_2", 1)]
    assert sorted(found[2:4]) == [("job_2", 1), ("job_2", 2)], "they failed in another run"
    assert found[4:] == [("job_1", index) for index in range(3)]


def test_a_dead_letter_of_a_schema_we_do_not_know_hides_no_other(store: Store) -> None:
    failed_jobs(store)
    store._redis.hset("voicemill:job:job_2", "schema", 2)
    assert places(store.dead_letters("ann")) == [("job_1", index) for index in range(3)]


def test_many_dead_letters_of_a_schema_we_do_not_know_hide_no_other(store: Store) -> None:
    for number in range(1, 6):
        store.create_job(f"job_{number}", "ann", inputs("a"), {})
    run_all(store, 0)
    for number in (3, 4, 5):
        store._redis.hset(f"voicemill:job:job_{number}", "schema", 2)
    page = store.dead_letters("ann", limit=1)
    assert (places(page), page.has_more) == ([("job_2", 0)], True)


def test_a_page_of_dead_letters_goes_on_behind_jobs_that_are_retried_as_it_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        store.create_job(f"job_{number}", "ann", inputs("a"), {})
    run_all(store, 0)
    failed, retried = store._failed, ["job_4", "job_5"]

    def meanwhile(*args: Any) -> list[tuple[str, int]]:
        while retried:
            store.retry(retried.pop())
        return failed(*args)

    monkeypatch.setattr(store, "_failed", meanwhile)
    page = store.dead_letters("ann", limit=1)
    assert (places(page), page.has_more) == ([("job_3", 0)], True)


def test_a_page_of_dead_letters_reads_no_more_than_it_shows(store: Store) -> None:
    client: Any = store._redis

    def bytes_read(size: int, skip: int) -> int:
        client.flushall()
        store.create_job("job_1", "ann", inputs(*["a"] * size), {}, reuse=False)
        run_all(store, *range(size))
        after = store.dead_letters("ann", limit=skip).letters[-1].id
        before = client.info("stats")["total_net_output_bytes"]
        page = store.dead_letters("ann", after=after, limit=20)
        assert [one.item.input.index for one in page.letters] == [*range(skip, skip + 20)]
        return int(client.info("stats")["total_net_output_bytes"]) - before

    assert bytes_read(250, 200) == pytest.approx(bytes_read(50, 20), rel=0.1)


def test_a_deleted_job_is_unknown_at_once_and_leaves_nothing_but_its_name(
    store: Store, redis_url: str
) -> None:
    client: Any = store._redis
    store.create_job("job_1", "default", inputs(*"abcd"), {})
    run_all(store, 1)
    store.delete("job_1")
    with pytest.raises(JobNotFoundError):
        store.job("job_1")
    assert store.jobs("default").jobs == []
    assert store.dead_letters("default").letters == []
    assert store.removals() == ["job_1"]

    store.purge("job_1")

    assert store.removals() == []
    assert [name for name in client.keys("*") if b"job_1" in name] == []
    assert store.was_removed("job_1")
    assert not store.was_removed("job_2")


def test_a_job_that_runs_is_removed_once_it_has_ended(store: Store) -> None:
    store.create_job("job_1", "default", inputs(*"abcd"), {})
    task = next_task(store)
    store.start_items(task, [0], 60)
    store.delete("job_1", cancel=True)
    assert store.removals() == []
    assert store.renew(task, 60) == "stopping"
    assert not store.succeed_item(task, 0, SPOKEN)
    assert store.removals() == ["job_1"]
    store.purge("job_1")
    assert not store.end_task(task, max_attempts=3)
    assert store.renew(task, 60) == "lost"
    assert store.snapshot().tasks == {"tone": 0}
    assert store.snapshot().queued == {"tone": 0}


def test_a_job_that_was_deleted_is_not_run_again_and_holds_nobody_up(store: Store) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    run_all(store, 0)
    store.delete("job_1")
    for _ in ("hidden", "gone"):
        with pytest.raises(JobNotFoundError):
            store.retry("job_1")
        store.purge("job_1")
    store.create_job("job_2", "default", inputs("b"), {})
    assert store.snapshot().queued["tone"] == 1
    assert run_all(store) == [0]


@pytest.mark.parametrize("cancel", [False, True])
def test_a_delete_that_comes_late_finds_no_job_and_leaves_no_key(
    store: Store, cancel: bool
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    run_all(store)
    store.delete("job_1")
    for _ in ("hidden", "gone"):
        with pytest.raises(JobNotFoundError):
            store.delete("job_1", cancel=cancel)
        store.purge("job_1")
    client: Any = store._redis
    assert client.keys("voicemill:job:*") == []


def test_a_delete_stops_a_job_that_somebody_runs_again_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    run_all(store, 0)
    cancel = store.cancel

    def cancel_and_retry(job_id: str) -> None:
        cancel(job_id)
        store.retry(job_id)

    monkeypatch.setattr(store, "cancel", cancel_and_retry)
    store.delete("job_1", cancel=True)
    assert store.snapshot().queued["tone"] == 0
    assert store.removals() == ["job_1"]

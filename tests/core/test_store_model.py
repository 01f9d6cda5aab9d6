"""Whatever is called, in any order, by whom ever: the store does what the model does."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.core.model import MAX_ATTEMPTS, Model, ModelJob
from tests.support import TONE, inputs
from voicemill.costs import CostModel
from voicemill.errors import DataRemovedError, JobActiveError, JobNotFoundError, WorkerLostError
from voicemill.fairness import JobClass, Standing
from voicemill.jobs import (
    ItemAudio,
    ItemError,
    ItemStatus,
    JobAudio,
    JobRules,
    JobStatus,
    is_terminal,
    new_job_id,
)
from voicemill.store import Join, StartedTask, Store
from voicemill.tenants import Tenant, Use, new_api_key
from voicemill.workers import ChildRecord

CHILDREN = ("c0", "c1", "c2")
TENANTS = ("ann", "bob")
MOST_RUNNING = 2
"""Items that the second tenant may have running."""
TEXT = "hello"
HOUR = 3600.0
PASSING = ItemError("synthesis_failed", "It failed.", True)
LASTING = ItemError("unsupported_characters", "It can't be said.", False)
BROKEN = ItemError("concatenation_failed", "It can't be joined.", True)
FULL = ItemError("disk_full", "No room.", True)

picks = st.integers(0, 999)
pauses = st.sampled_from([0.0, HOUR])
standings = st.builds(
    Standing, st.sampled_from(JobClass), st.sampled_from([-1, 0]), st.sampled_from(["", "k"])
)


class StoreMachine(RuleBasedStateMachine):
    """Calls store and model alike; time is made to pass by moving what is due."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.redis: Any = store._redis
        self.redis.flushall()
        self.model = Model()
        self.handles: list[StartedTask] = []
        """Of tasks in hand, and of those that were lost: zombies go on calling."""
        self.joins: list[Join] = []
        """Jobs taken to be finalised, and those that were lost."""
        self.published: dict[tuple[str, int], ItemAudio] = {}
        store.publish_engine(TONE)
        store.create_tenant(Tenant("bob", max_running_items=MOST_RUNNING), new_api_key())
        for child in CHILDREN:
            self.beat(child)

    def beat(self, child: str) -> None:
        record = ChildRecord(child, "node", 1, "tone", "1", ready_at=0.0)
        self.store.beat_child(record, HOUR, takes_work=True)

    # --- rules --------------------------------------------------------------

    @precondition(lambda self: len(self.model.jobs) < 3)
    @rule(
        count=st.integers(1, 4),
        tenant=st.sampled_from(TENANTS),
        most=st.sampled_from([None, None, 0, 1]),
        standing=standings,
        silence=st.sampled_from([None, 0, 250]),
    )
    def submit(
        self, count: int, tenant: str, most: int | None, standing: Standing, silence: int | None
    ) -> None:
        job_id = new_job_id()
        rules = JobRules(HOUR, most, HOUR, silence)
        texts = inputs(*[TEXT] * count)
        self.store.create_job(job_id, tenant, texts, {}, rules=rules, standing=standing)
        self.model.submit(job_id, tenant, count, most, standing, silence is not None)

    @precondition(lambda self: self.model.waits())
    @rule(budget=st.integers(1, 4))
    def admit(self, budget: int) -> None:
        for task in self.store.admit("tone", CostModel(1.0, 0.0), float(budget)):
            job, entries = self.redis.hmget(f"voicemill:task:{task.id}", "job", "entries")
            parts = [entry.split("\t") for entry in json.loads(entries)]
            carried = {int(index): alone == "1" for index, _, _, alone in parts}
            assert len(carried) <= budget
            self.model.admit(task.id, job.decode(), carried)
        assert len(self.model.tasks) <= len(CHILDREN) + 1

    @precondition(lambda self: self.model.admitted() and self.free_children())
    @rule(pick=picks, count=st.integers(0, 4))
    def start(self, pick: int, count: int) -> None:
        waiting, free = self.model.admitted(), self.free_children()
        task_id, child = waiting[pick % len(waiting)], free[pick % len(free)]
        task = self.store.start_task(task_id, child, HOUR)
        assert task is not None
        assert self.model.start(task_id, child)
        assert self.store.start_task(task_id, "twin", HOUR) is None
        assert list(task.indexes) == list(self.model.tasks[task_id].entries)
        self.handles.append(task)
        self.begin_items(task, count)

    @precondition(lambda self: self.model.waits() and self.free_children())
    @rule(fails=st.lists(st.booleans(), min_size=8, max_size=8) | st.just([True] * 8))
    def work_off(self, fails: list[bool]) -> None:
        """Batches from their admission to their end, some items failing for good."""
        self.admit(4)
        endings = iter(fails)
        for task_id in self.model.admitted():
            if task_id not in self.model.tasks:
                continue
            task = self.begin_task(task_id, self.free_children()[0])
            for index, fails_ in zip(task.indexes, endings, strict=False):
                self.ask(task, index)
                self.end(task, index, fails=fails_)
            self.close(task)

    @precondition(lambda self: self.handles)
    @rule(pick=picks, count=st.integers(1, 4))
    def begin(self, pick: int, count: int) -> None:
        if task := self.any_handle(pick):
            self.begin_items(task, count)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def succeed(self, pick: int) -> None:
        if task := self.any_handle(pick):
            self.publish(task, task.indexes[pick % len(task.indexes)], cached=pick % 3 == 0)

    @precondition(lambda self: self.handles)
    @rule(pick=picks, retryable=st.booleans(), pause=pauses)
    def fail(self, pick: int, retryable: bool, pause: float) -> None:
        if task := self.any_handle(pick):
            index = task.indexes[pick % len(task.indexes)]
            error = PASSING if retryable else LASTING
            failed = self.store.fail_item(
                task, index, error, max_attempts=MAX_ATTEMPTS, retry_seconds=pause
            )
            assert failed is self.model.fail(
                task.id, index, retryable=retryable, pauses=bool(pause)
            )

    @precondition(lambda self: self.handles)
    @rule(pick=picks, pause=pauses)
    def give_back(self, pick: int, pause: float) -> None:
        if task := self.any_handle(pick):
            index = task.indexes[pick % len(task.indexes)]
            error = None if pause else FULL
            returned = self.store.return_item(task, index, error, pause=pause)
            assert returned is self.model.give_back(task.id, index, pauses=bool(pause))

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def let_go(self, pick: int) -> None:
        if task := self.any_handle(pick):
            index = task.indexes[pick % len(task.indexes)]
            assert self.store.cancel_item(task, index) is self.model.cancel(task.id, index)

    @precondition(lambda self: self.handles)
    @rule(pick=picks)
    def share(self, pick: int) -> None:
        if task := self.any_handle(pick):
            for index in task.indexes:
                self.ask(task, index)

    @precondition(lambda self: self.handles)
    @rule(pick=picks, pause=pauses)
    def end_task(self, pick: int, pause: float) -> None:
        if task := self.any_handle(pick):
            ended = self.store.end_task(task, max_attempts=MAX_ATTEMPTS, retry_seconds=pause)
            assert ended is self.model.release(task.id, pauses=bool(pause))

    @precondition(lambda self: self.model.tasks)
    @rule(pick=picks)
    def recall(self, pick: int) -> None:
        tasks = list(self.model.tasks)
        task_id = tasks[pick % len(tasks)]
        assert self.store.recall_task(task_id) is self.model.recall(task_id)

    @precondition(lambda self: self.model.running())
    @rule(pick=picks, pause=pauses)
    def reap(self, pick: int, pause: float) -> None:
        running = self.model.running()
        task_id = running[pick % len(running)]
        self.redis.zadd("voicemill:running", {task_id: 0})
        assert self.store.reap(max_attempts=MAX_ATTEMPTS, retry_seconds=pause) == 1
        assert self.model.release(task_id, pauses=bool(pause))

    @precondition(lambda self: self.model.running())
    @rule(child=st.sampled_from(CHILDREN), pause=pauses)
    def lose_child(self, child: str, pause: float) -> None:
        task_id = self.model.task_of(child)
        held = self.store.release_child(
            child,
            "tone",
            max_attempts=MAX_ATTEMPTS,
            retry_seconds=pause,
            error=WorkerLostError("It died."),
        )
        assert held is (task_id is not None)
        if task_id is not None:
            self.model.release(task_id, pauses=bool(pause))
        self.beat(child)

    @precondition(lambda self: any(job.pausing for job in self.model.jobs.values()))
    @rule()
    def end_pauses(self) -> None:
        for job in self.model.jobs.values():
            delayed = f"voicemill:job:{job.id}:delayed:tone"
            for entry in self.redis.zrange(delayed, 0, -1):
                self.redis.zadd(delayed, {entry: 0})
                self.redis.zadd("voicemill:delayed:tone", {job.id: 0})
        assert self.store.admit("tone", CostModel(1.0, 0.0), 1.0, most=0) == []
        self.model.end_pauses()

    @precondition(lambda self: self.model.finalizing())
    @rule()
    def take_to_finalize(self) -> None:
        """One whose time it is, or whose lease ran out."""
        for job in self.model.finalizing():
            self.redis.zadd(f"voicemill:finalizing:{job.tenant}", {job.id: 0}, xx=True)
            self.redis.zadd("voicemill:finalizing", {job.tenant: 0}, xx=True)
        join = self.store.take_finalizing(HOUR)
        assert join is not None
        assert (join.number, join.lost, join.waits) == self.model.take(join.job_id)
        self.joins.append(join)

    @precondition(lambda self: self.joins)
    @rule(pick=picks)
    def keep_finalizing(self, pick: int) -> None:
        if join := self.any_join(pick):
            kept = self.store.keep_finalizing(join, HOUR)
            assert kept is self.model.keep(join.job_id, join.number)

    @precondition(lambda self: self.joins)
    @rule(pick=picks, trouble=st.sampled_from(["", "disk_full"]), is_lost=st.booleans())
    def return_finalizing(self, pick: int, trouble: str, is_lost: bool) -> None:
        if join := self.any_join(pick):
            returned = self.store.return_finalizing(join, HOUR, trouble=trouble, is_lost=is_lost)
            assert returned is self.model.give_join_back(
                join.job_id, join.number, trouble=trouble, is_lost=is_lost
            )

    @precondition(lambda self: self.joins)
    @rule(pick=picks, fails=st.booleans())
    def end_finalizing(self, pick: int, fails: bool) -> None:
        if join := self.any_join(pick):
            self.end_join(join, fails=fails)

    @precondition(lambda self: self.model.active())
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if job := self.any_job(pick):
            trouble = job.trouble
            cancelled = self.store.cancel(job.id)
            if job.status is JobStatus.FINALIZING:
                assert cancelled.concatenation is not None
                self.model.cancel_join(job.id, cancelled.concatenation.error)
                assert cancelled.concatenation.error is not None
                code = cancelled.concatenation.error.code
                assert code == (trouble or "concatenation_cancelled")
            else:
                self.model.stop(job.id, JobStatus.CANCELLED)

    @precondition(lambda self: self.model.active())
    @rule(pick=picks)
    def expire(self, pick: int) -> None:
        if job := self.any_job(pick):
            self.redis.zadd("voicemill:deadlines", {job.id: 0}, xx=True)
            self.store.expire_jobs()
            self.model.stop(job.id, JobStatus.EXPIRED)

    @precondition(lambda self: any(job.counts.failed for job in self.model.jobs.values()))
    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        job = self.any_job(pick)
        if job is None:
            return
        if not is_terminal(job.status):
            with pytest.raises(JobActiveError):
                self.store.retry(job.id)
        elif job.data_removed:
            with pytest.raises(DataRemovedError):
                self.store.retry(job.id)
        else:
            self.store.retry(job.id)
            self.model.retry(job.id)

    @precondition(lambda self: len(self.model.jobs) == 3)
    @rule(pick=picks, cancel=st.booleans())
    def delete(self, pick: int, cancel: bool) -> None:
        job = self.any_job(pick)
        if job is None:
            return
        if cancel or is_terminal(job.status):
            self.store.delete(job.id, cancel=cancel)
            self.model.stop(job.id, JobStatus.CANCELLED)
            self.model.delete(job.id)
        else:
            with pytest.raises(JobActiveError):
                self.store.delete(job.id)

    @precondition(lambda self: any(job.deleted for job in self.model.jobs.values()))
    @rule(pick=picks)
    def ask_for_a_deleted_one(self, pick: int) -> None:
        """By whoever found it before it was deleted."""
        deleted = [job for job in self.model.jobs.values() if job.deleted]
        job_id = deleted[pick % len(deleted)].id
        for call in (self.store.retry, self.store.cancel, self.store.delete):
            with pytest.raises(JobNotFoundError):
                call(job_id)
        with pytest.raises(JobNotFoundError):
            self.store.delete(job_id, cancel=True)

    @precondition(lambda self: any(job.deleted for job in self.model.jobs.values()))
    @rule()
    def purge(self) -> None:
        for job_id in self.store.removals():
            job = self.model.jobs[job_id]
            assert job.deleted
            assert is_terminal(job.status)
            self.store.purge(job_id)
            self.model.purge(job_id)

    @precondition(lambda self: any(job.expires for job in self.model.jobs.values()))
    @rule()
    def remove_outputs(self) -> None:
        for job_id in self.redis.zrange("voicemill:expiries", 0, -1):
            self.redis.zadd("voicemill:expiries", {job_id: 0})
        expired = [job for job in self.model.jobs.values() if job.expires]
        assert sorted(self.store.expired_outputs()) == sorted(job.id for job in expired)
        for job in expired:
            self.store.outputs_removed(job.id)
            job.expires, job.data_removed = False, True

    # --- what must hold ---------------------------------------------------------

    @invariant()
    def every_job_is_as_the_model_has_it(self) -> None:
        for job in self.model.jobs.values():
            if job.deleted:
                with pytest.raises(JobNotFoundError):
                    self.store.job(job.id)
                continue
            found, items = self.store.job(job.id), self.store.items(job.id)
            assert (found.status, found.counts, found.run) == (job.status, job.counts, job.run)
            assert found.data_removed is job.data_removed
            self.who_took_the_place_of_the_first_is_as_the_model_has_it(job)
            assert [(one.status, one.attempts, one.cached) for one in items] == [
                (one.status, one.attempts, one.cached) for one in job.items
            ]
            for index, item in enumerate(items):
                assert item.audio == self.published.get((job.id, index))
                assert (item.audio is not None) is (item.status is ItemStatus.SUCCEEDED)
            ended = found.counts.succeeded + found.counts.failed
            assert found.done_characters == ended * len(TEXT)
            assert found.audio_seconds == 1.5 * found.counts.succeeded
            assert found.device_seconds == 0.25 * found.counts.succeeded
            assert found.trouble == job.trouble
            assert (found.concatenation is not None) is job.concatenates
            if found.concatenation is not None:
                ending = found.concatenation.audio or found.concatenation.error
                assert ending == job.ending_of_join

    @invariant()
    def who_is_to_be_finalized_waits_for_it(self) -> None:
        tenants = {tenant.decode() for tenant in self.redis.zrange("voicemill:finalizing", 0, -1)}
        assert tenants == {job.tenant for job in self.model.finalizing()}
        for tenant in tenants:
            waiting = self.redis.zrange(f"voicemill:finalizing:{tenant}", 0, -1)
            mine = [job.id for job in self.model.finalizing() if job.tenant == tenant]
            assert sorted(job.decode() for job in waiting) == sorted(mine)

    def who_took_the_place_of_the_first_is_as_the_model_has_it(self, job: ModelJob) -> None:
        found = self.redis.hget(f"voicemill:job:{job.id}:spoken", 0)
        assert int(found or 0) == job.spoken

    @invariant()
    def the_counters_are_true(self) -> None:
        jobs = self.model.jobs.values()
        waiting = sum(len(job.waiting) + len(job.pausing) for job in jobs)
        snapshot = self.store.snapshot()
        assert snapshot.queued == {"tone": waiting}
        assert snapshot.queued_characters == {"tone": waiting * len(TEXT)}
        assert snapshot.tasks == {"tone": len(self.model.tasks)}

    @invariant()
    def the_counters_of_a_tenant_are_true(self) -> None:
        for tenant in TENANTS:
            use = self.redis.hgetall(f"voicemill:use:{tenant}")
            queued = self.model.queued_of(tenant)
            assert Use(**{name.decode(): int(value) for name, value in use.items()}) == Use(
                self.model.running_of(tenant), queued, queued * len(TEXT)
            )
        assert self.model.running_of("bob") <= MOST_RUNNING
        jobs = self.model.jobs.values()
        going_on = [job.id for job in jobs if not is_terminal(job.status)]
        sizes = [self.redis.hget(f"voicemill:job:{job_id}", "bytes") for job_id in going_on]
        assert int(self.redis.get("voicemill:queued_bytes") or 0) == sum(map(int, sizes))

    @invariant()
    def who_has_something_waiting_has_one_turn(self) -> None:
        waiting = [job for job in self.model.jobs.values() if job.waiting]
        turns = {"voicemill:waiting:tone": {job.id.encode() for job in waiting}}
        for job in waiting:
            tenant, standing = job.tenant, job.standing
            lines = f"tone:{standing.job_class}:{tenant}:"
            line = f"{lines}{standing.priority}"
            self.add(turns, f"waiting:{line}:{standing.fairness_key}", job.id)
            self.add(turns, f"ready:{line}", standing.fairness_key)
            self.add(turns, f"lines:{lines}", str(standing.priority))
            if not self.is_parked(tenant, standing.job_class):
                self.add(turns, f"ready:tone:{standing.job_class}", tenant)
        for name in self.redis.keys("voicemill:waiting:*") + self.redis.keys("voicemill:ready:*"):
            assert set(self.redis.zrange(name, 0, -1)) == turns.pop(name.decode())
        for name in self.redis.keys("voicemill:lines:*"):
            assert set(self.redis.zrange(name, 0, -1)) == turns.pop(name.decode())
        assert set(map(frozenset, turns.values())) <= {frozenset()}

    def is_parked(self, tenant: str, job_class: JobClass) -> bool:
        """A tenant at its cap may be out of its turn, until something of it has ended."""
        if not self.redis.sismember(f"voicemill:parked:{tenant}", "tone"):
            return False
        assert self.model.running_of(tenant) > 0
        return self.redis.zscore(f"voicemill:ready:tone:{job_class}", tenant) is None

    def add(self, turns: dict[str, set[bytes]], name: str, member: str) -> None:
        turns.setdefault(f"voicemill:{name}", set()).add(member.encode())

    @invariant()
    def the_lists_of_a_tenant_are_true(self) -> None:
        for tenant in TENANTS:
            mine = [
                job for job in self.model.jobs.values() if job.tenant == tenant and not job.deleted
            ]
            assert {job.id for job in self.store.jobs(tenant).jobs} == {job.id for job in mine}
            for status in JobStatus:
                found = self.store.jobs(tenant, status=status).jobs
                assert {job.id for job in found} == {job.id for job in mine if job.status == status}
            dead = {
                (job.id, index)
                for job in mine
                for index, item in enumerate(job.items)
                if item.status is ItemStatus.FAILED
            }
            letters = [letter.item for letter in self.store.dead_letters(tenant).letters]
            assert len(letters) == len(dead)
            assert {(item.job_id, item.input.index) for item in letters} == dead

    def teardown(self) -> None:
        """Good workers come to an end with all there is, and nothing is left."""
        for task_id in self.model.running():
            self.redis.zadd("voicemill:running", {task_id: 0})
            self.store.reap(max_attempts=MAX_ATTEMPTS)
            self.model.release(task_id, pauses=False)
        for _ in range(100):
            self.end_pauses()
            self.admit(4)
            if not self.model.tasks:
                break
            for task_id in list(self.model.tasks):
                task = self.begin_task(task_id, CHILDREN[0])
                for index in task.indexes:
                    self.publish(task, index)
                self.close(task)
        while self.model.finalizing():
            self.take_to_finalize()
            self.end_join(self.joins[-1], fails=False)
        self.model.check_ended()
        self.every_job_is_as_the_model_has_it()
        self.the_counters_are_true()
        assert self.store.snapshot().queued == {"tone": 0}
        for job in list(self.model.jobs.values()):
            if not job.deleted:
                self.store.delete(job.id)
                self.model.delete(job.id)
        self.purge()
        assert [name for name in self.redis.keys("*") if b"job_" in name] == []
        assert self.redis.keys("voicemill:task:*") == []

    # --- hands ------------------------------------------------------------------

    def begin_task(self, task_id: str, child: str) -> StartedTask:
        task = self.store.start_task(task_id, child, HOUR)
        assert task is not None
        assert self.model.start(task_id, child)
        self.begin_items(task, len(task.indexes))
        return task

    def begin_items(self, task: StartedTask, count: int) -> None:
        indexes = task.indexes[:count]
        begun = self.store.start_items(task, indexes, HOUR)
        assert begun == self.model.begin(task.id, indexes)

    def ask(self, task: StartedTask, index: int) -> None:
        """What an item may share that is to sound as the first of its job."""
        if index == 0:
            return
        found = self.store.share_item(task, index, 0)
        which = self.model.share(task.job_id, task.id, index)
        if which == index:
            assert found is None
            return
        other = self.model.jobs[task.job_id].items[which]
        assert found is not None
        assert (found.index, found.audio) == (which, self.published.get((task.job_id, which)))
        assert (found.pending_seconds is None) is is_terminal(other.status)
        assert (found.error is not None) is (other.status is ItemStatus.FAILED)

    def end(self, task: StartedTask, index: int, *, fails: bool) -> None:
        if not fails:
            self.publish(task, index)
            return
        failed = self.store.fail_item(task, index, LASTING, max_attempts=MAX_ATTEMPTS)
        assert failed is self.model.fail(task.id, index, retryable=False, pauses=False)

    def close(self, task: StartedTask) -> None:
        ended = self.store.end_task(task, max_attempts=MAX_ATTEMPTS)
        assert ended is self.model.release(task.id, pauses=False)

    def free_children(self) -> list[str]:
        return [child for child in CHILDREN if self.model.task_of(child) is None]

    def publish(self, task: StartedTask, index: int, *, cached: bool = False) -> None:
        path = f"/out/{uuid.uuid4().hex}.wav"
        audio = ItemAudio(path, "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")
        published = self.store.succeed_item(
            task, index, audio, cached=cached, same_as=0 if index else None
        )
        assert published is self.model.succeed(task.id, index, cached=cached)
        if published:
            assert (task.job_id, index) not in self.published
            self.published[task.job_id, index] = audio

    def end_join(self, join: Join, *, fails: bool) -> None:
        path = f"/out/audio.{join.number}.wav"
        audio = JobAudio(path, "cd" * 32, 200, 3.0, 24000, "wav", 0)
        ending = BROKEN if fails else audio
        for _ in range(2):
            ended = self.store.end_finalizing(join, ending)
            assert ended is self.model.end_join(join.job_id, join.number, ending)

    def any_join(self, pick: int) -> Join | None:
        """Mostly one of the last."""
        self.joins = [join for join in self.joins if join.job_id in self.model.jobs][-4:]
        return self.joins[-1 - pick % len(self.joins)] if self.joins else None

    def any_handle(self, pick: int) -> StartedTask | None:
        """Mostly one of the last; jobs that are gone have no zombies here."""
        self.handles = [task for task in self.handles if task.job_id in self.model.jobs][-6:]
        return self.handles[-1 - pick % len(self.handles)] if self.handles else None

    def any_job(self, pick: int) -> ModelJob | None:
        jobs = [job for job in self.model.jobs.values() if not job.deleted]
        return jobs[pick % len(jobs)] if jobs else None


def check(store: Store, examples: int, steps: int) -> None:
    machine: Callable[[], StoreMachine] = lambda: StoreMachine(store)  # noqa: E731
    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_store_does_what_the_model_does(store: Store) -> None:
    check(store, 12, 50)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_store_does_what_the_model_does_for_longer(store: Store) -> None:
    check(store, 40 if os.environ.get("CI") else 400, 80)

"""What the store should do, in plain Python: jobs, items, tasks, and nothing of Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from voicemill.fairness import Standing
from voicemill.jobs import (
    ITEM_TRANSITIONS,
    JOB_TRANSITIONS,
    Counts,
    ItemStatus,
    JobStatus,
    is_terminal,
)

MAX_ATTEMPTS = 3


@dataclass
class ModelItem:
    """One item; ``tries`` are its attempts in this run of its job."""

    status: ItemStatus = ItemStatus.QUEUED
    attempts: int = 0
    tries: int = 0
    task: str | None = None
    cached: bool = False
    lasts: bool = False
    """Its failure would come again, or kills who speaks it."""
    confirms: bool = False
    """It took the place of one whose failure lasts."""

    def move(self, status: ItemStatus) -> None:
        assert status in ITEM_TRANSITIONS[self.status], (self.status, status)
        self.status = status


@dataclass
class ModelJob:
    """One job; what waits is in ``waiting`` or, for a while, in ``pausing``."""

    id: str
    tenant: str
    items: list[ModelItem]
    max_failures: int | None
    standing: Standing
    concatenates: bool = False
    status: JobStatus = JobStatus.QUEUED
    run: int = 1
    ending: JobStatus = JobStatus.CANCELLED
    waiting: dict[int, bool] = field(default_factory=dict)
    """Whether they travel alone, by index."""
    pausing: dict[int, bool] = field(default_factory=dict)
    spoken: int = 0
    """Whose audio the others may share: the first, or who took its place."""
    deleted: bool = False
    data_removed: bool = False
    expires: bool = False
    """Its outputs are waiting for the end of their time."""
    joins: int = 0
    joins_lost: int = 0
    join_waits: int = 0
    joined: int = 0
    """The join that ended it last."""
    ending_of_join: object = None
    trouble: str | None = None

    @property
    def counts(self) -> Counts:
        statuses = Counter(item.status.value for item in self.items)
        cached = sum(item.cached for item in self.items)
        by_status = {one.value: statuses[one] for one in ItemStatus}
        return Counts(total=len(self.items), cached=cached, **by_status)

    @property
    def is_stopping(self) -> bool:
        return self.status in {JobStatus.CANCELLING, JobStatus.CANCELLED, JobStatus.EXPIRED}

    @property
    def ends_items_as(self) -> ItemStatus:
        is_late = self.ending is JobStatus.EXPIRED
        return ItemStatus.EXPIRED if is_late else ItemStatus.CANCELLED

    def move(self, status: JobStatus) -> None:
        assert status in JOB_TRANSITIONS[self.status], (self.status, status)
        self.status = status


@dataclass
class ModelTask:
    """One batch, admitted or running."""

    id: str
    job: ModelJob
    entries: dict[int, bool]
    """Whether they travel alone, by index."""
    child: str | None = None
    begun: set[int] = field(default_factory=set)


class Model:
    """Every transition, with the answer that the store should give."""

    def __init__(self) -> None:
        self.jobs: dict[str, ModelJob] = {}
        self.tasks: dict[str, ModelTask] = {}

    def submit(
        self,
        job_id: str,
        tenant: str,
        count: int,
        max_failures: int | None,
        standing: Standing,
        concatenates: bool,
    ) -> None:
        items = [ModelItem() for _ in range(count)]
        job = ModelJob(job_id, tenant, items, max_failures, standing, concatenates)
        job.waiting = dict.fromkeys(range(count), False)
        self.jobs[job_id] = job

    def admit(self, task_id: str, job_id: str, entries: dict[int, bool]) -> None:
        job = self.jobs[job_id]
        assert entries
        assert not (len(entries) > 1 and any(entries.values())), "one travels alone"
        for index, alone in entries.items():
            assert job.waiting.pop(index) is alone
        self.tasks[task_id] = ModelTask(task_id, job, entries)

    def start(self, task_id: str, child: str) -> bool:
        task = self.tasks.get(task_id)
        if task is None or task.child is not None:
            return False
        task.child = child
        return True

    def begin(self, task_id: str, indexes: Iterable[int]) -> dict[int, int]:
        task = self.tasks.get(task_id)
        if task is None or task.job.is_stopping:
            return {}
        if task.job.status is JobStatus.QUEUED:
            task.job.move(JobStatus.IN_PROGRESS)
        begun = {}
        for index in indexes:
            item = task.job.items[index]
            if item.status is ItemStatus.QUEUED and index not in task.begun:
                item.move(ItemStatus.IN_PROGRESS)
                item.attempts, item.tries, item.task = item.attempts + 1, item.tries + 1, task.id
                task.begun.add(index)
                begun[index] = item.attempts
            elif item.status is ItemStatus.IN_PROGRESS and item.task == task.id:
                begun[index] = item.attempts
        return begun

    def share(self, job_id: str, task_id: str, index: int) -> int:
        """Whose audio an item is to share; itself where it is to be spoken."""
        job = self.jobs[job_id]
        item, other = job.items[index], job.items[job.spoken]
        has_none = is_terminal(other.status) and other.status is not ItemStatus.SUCCEEDED
        lasts = other.status is ItemStatus.FAILED and other.lasts
        is_held = item.status is ItemStatus.IN_PROGRESS and item.task == task_id
        if job.spoken == index or not has_none or (lasts and other.confirms) or not is_held:
            return job.spoken
        job.spoken, item.confirms = index, lasts
        return index

    def succeed(self, task_id: str, index: int, *, cached: bool) -> bool:
        held = self._held(task_id, index)
        if held is None or self._has_stopped(*held):
            return False
        task, item = held
        item.move(ItemStatus.SUCCEEDED)
        item.cached = cached
        if not cached:
            task.job.spoken = index or task.job.spoken
        self._settle(task.job)
        return True

    def fail(self, task_id: str, index: int, *, retryable: bool, pauses: bool) -> ItemStatus | None:
        held = self._held(task_id, index)
        if held is None:
            return None
        task, item = held
        if not self._has_stopped(task, item):
            lasts = not retryable
            self._fail(task, index, retryable=retryable, pauses=pauses, lasts=lasts)
            self._settle(task.job)
        return item.status

    def give_back(self, task_id: str, index: int, *, pauses: bool) -> ItemStatus | None:
        held = self._held(task_id, index)
        if held is None:
            return None
        task, item = held
        if not self._has_stopped(task, item):
            item.move(ItemStatus.QUEUED)
            item.attempts, item.tries = item.attempts - 1, item.tries - 1
            (task.job.pausing if pauses else task.job.waiting)[index] = task.entries[index]
        return item.status

    def cancel(self, task_id: str, index: int) -> ItemStatus | None:
        """Its child let go of an item, as its lease was over."""
        held = self._held(task_id, index)
        if held is None:
            return None
        task, item = held
        if not self._has_stopped(task, item):
            item.move(ItemStatus.CANCELLED)
            self._settle(task.job)
        return item.status

    def release(self, task_id: str, *, pauses: bool) -> bool:
        """The task is closed, or its child or its lease is lost."""
        task = self.tasks.get(task_id)
        if task is None or task.child is None:
            return False
        self._take_apart(task, pauses=pauses)
        return True

    def recall(self, task_id: str) -> bool:
        """The message of an admitted task is nowhere."""
        task = self.tasks.get(task_id)
        if task is None or task.child is not None:
            return False
        self._take_apart(task, pauses=False)
        return True

    def _take_apart(self, task: ModelTask, *, pauses: bool) -> None:
        job = task.job
        for index in task.entries:
            item = job.items[index]
            if item.status is ItemStatus.IN_PROGRESS and item.task == task.id:
                if job.is_stopping:
                    item.move(job.ends_items_as)
                else:
                    # The first loss of a worker costs no pause.
                    pauses_ = pauses and item.tries > 1
                    self._fail(task, index, retryable=True, pauses=pauses_, lasts=True)
            elif item.status is ItemStatus.QUEUED and index not in task.begun:
                job.waiting[index] = task.entries[index]
        del self.tasks[task.id]
        self._settle(job)

    def stop(self, job_id: str, ending: JobStatus) -> None:
        """Cancelled by its client, or past its deadline."""
        job = self.jobs[job_id]
        if job.status in {JobStatus.QUEUED, JobStatus.IN_PROGRESS}:
            self._stop(job, ending)

    def retry(self, job_id: str) -> None:
        job = self.jobs[job_id]
        failed = [n for n, item in enumerate(job.items) if item.status is ItemStatus.FAILED]
        if not failed:
            return
        for index in failed:
            job.items[index].status, job.items[index].tries = ItemStatus.QUEUED, 0
        job.run, job.status, job.expires = job.run + 1, JobStatus.QUEUED, False
        job.spoken = 0
        job.waiting = dict.fromkeys(failed, False)

    def finalizing(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.status is JobStatus.FINALIZING]

    def take(self, job_id: str) -> tuple[int, int, int]:
        """The number of the join, how many were lost before it, and how many met trouble."""
        job = self.jobs[job_id]
        assert job.status is JobStatus.FINALIZING
        job.joins, job.joins_lost = job.joins + 1, job.joins_lost + 1
        return job.joins, job.joins_lost - 1, job.join_waits

    def keep(self, job_id: str, number: int) -> bool:
        job = self._joining(job_id, number)
        if job is not None:
            job.trouble = None
        return job is not None

    def give_join_back(self, job_id: str, number: int, *, trouble: str, is_lost: bool) -> bool:
        job = self._joining(job_id, number)
        if job is None:
            return False
        job.trouble = trouble or job.trouble
        job.join_waits += bool(trouble)
        job.joins_lost -= not is_lost
        return True

    def end_join(self, job_id: str, number: int, ending: object) -> bool:
        if self.jobs[job_id].joined == number:
            return True
        job = self._joining(job_id, number)
        if job is None:
            return False
        job.joined, job.ending_of_join = number, ending
        self._end_finalizing(job)
        return True

    def cancel_join(self, job_id: str, error: object) -> None:
        """The one file of the job is given up; ``error`` says so."""
        job = self.jobs[job_id]
        job.ending_of_join = error
        self._end_finalizing(job)

    def delete(self, job_id: str) -> None:
        job = self.jobs[job_id]
        job.deleted = True
        if job.status is JobStatus.FINALIZING:
            self._end_finalizing(job)

    def purge(self, job_id: str) -> None:
        del self.jobs[job_id]
        self.tasks = {name: task for name, task in self.tasks.items() if task.job.id != job_id}

    def end_pauses(self) -> None:
        for job in self.jobs.values():
            job.waiting |= job.pausing
            job.pausing.clear()

    def task_of(self, child: str) -> str | None:
        return next((task.id for task in self.tasks.values() if task.child == child), None)

    def queued_of(self, tenant: str) -> int:
        """Items of a tenant that wait, for their turn or for the end of a pause."""
        mine = [job for job in self.jobs.values() if job.tenant == tenant]
        return sum(len(job.waiting) + len(job.pausing) for job in mine)

    def running_of(self, tenant: str) -> int:
        """Items of a tenant in batches that were let in."""
        return sum(len(task.entries) for task in self.tasks.values() if task.job.tenant == tenant)

    def waits(self) -> bool:
        return any(job.waiting for job in self.jobs.values())

    def active(self) -> bool:
        return any(not is_terminal(job.status) for job in self.jobs.values())

    def admitted(self) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.child is None]

    def running(self) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.child is not None]

    def _held(self, task_id: str, index: int) -> tuple[ModelTask, ModelItem] | None:
        """The item, if the task has it in hand and may still say how it ended."""
        task = self.tasks.get(task_id)
        if task is None:
            return None
        item = task.job.items[index]
        if item.status is not ItemStatus.IN_PROGRESS or item.task != task_id:
            return None
        return task, item

    def _has_stopped(self, task: ModelTask, item: ModelItem) -> bool:
        """Whether the job is stopping: its item ends as that does."""
        if task.job.is_stopping:
            item.move(task.job.ends_items_as)
            self._settle(task.job)
        return is_terminal(item.status)

    def _fail(
        self, task: ModelTask, index: int, *, retryable: bool, pauses: bool, lasts: bool
    ) -> None:
        job, item = task.job, task.job.items[index]
        item.lasts = lasts
        if retryable and item.tries < MAX_ATTEMPTS:
            item.move(ItemStatus.QUEUED)
            (job.pausing if pauses else job.waiting)[index] = True
            return
        item.move(ItemStatus.FAILED)
        if job.max_failures is not None and job.counts.failed > job.max_failures:
            self._stop(job, JobStatus.FAILED)

    def _stop(self, job: ModelJob, ending: JobStatus) -> None:
        job.move(JobStatus.CANCELLING)
        job.ending = ending
        for item in job.items:
            if item.status is ItemStatus.QUEUED:
                item.move(job.ends_items_as)
        job.waiting.clear()
        job.pausing.clear()
        self.tasks = {
            name: task
            for name, task in self.tasks.items()
            if task.job is not job or task.child is not None
        }
        self._settle(job)

    def _settle(self, job: ModelJob) -> None:
        counts = job.counts
        if counts.queued or counts.in_progress:
            return
        if job.status is JobStatus.CANCELLING:
            job.move(job.ending)
        elif job.status is JobStatus.IN_PROGRESS:
            job.move(JobStatus.FINALIZING)
            if job.concatenates and counts.succeeded:
                return
            job.move(JobStatus.COMPLETED if counts.succeeded else JobStatus.FAILED)
        else:
            return
        job.expires = True

    def _joining(self, job_id: str, number: int) -> ModelJob | None:
        """The job, if it still waits for what this join makes of it."""
        job = self.jobs[job_id]
        return job if job.status is JobStatus.FINALIZING and job.joins == number else None

    def _end_finalizing(self, job: ModelJob) -> None:
        job.move(JobStatus.COMPLETED)
        job.expires, job.joins_lost, job.join_waits, job.trouble = True, 0, 0, None

    def check_ended(self) -> None:
        assert all(is_terminal(job.status) for job in self.jobs.values())

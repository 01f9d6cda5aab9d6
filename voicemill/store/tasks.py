"""Tasks: admitted, started, ended, reaped. Two leases guard them.

*admitted*: sent to Celery and not started; costs no attempt. *running*: taken by
``start_task``; renewed by the child; its token fences off whoever lost it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal

from voicemill.costs import DECAY, CostModel
from voicemill.errors import VoicemillError
from voicemill.fairness import LEAD_SECONDS, JobClass
from voicemill.jobs import ItemAudio, ItemError, ItemStatus, is_terminal
from voicemill.limits import Limits
from voicemill.rollouts import BASE
from voicemill.store.connection import Connection

Lease = Literal["held", "stopping", "lost"]
MOST_BATCHES = 15
"""Let in or reaped by one call: of 64 items at most, so that no script touches over 1,000."""


@dataclass(frozen=True, slots=True)
class AdmittedTask:
    """A batch that may be sent to Celery."""

    id: str
    engine: str
    """Or the lane of one of its revisions."""
    seconds: float
    """Estimated device time."""
    job_class: JobClass = JobClass.BULK


@dataclass(frozen=True, slots=True)
class StartedTask:
    """A batch that is ours to synthesize until the lease is lost."""

    id: str
    token: str
    job_id: str
    indexes: tuple[int, ...]
    tenant: str
    lane: str = ""
    """Where it waited."""
    reuses: bool = True
    """Whether its items may share audio that there is."""
    limits: Limits = field(default_factory=Limits)
    """What one item may take, by its job and its tenant."""


@dataclass(frozen=True, slots=True)
class MisplacedTask:
    """A batch that came to a child which has not the revision it waits for."""

    FIELDS: ClassVar = 4
    task: AdmittedTask
    detours: int
    """How often that has happened to it."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """How far an item is whose audio others may share."""

    index: int
    audio: ItemAudio | None = None
    pending_seconds: float | None = None
    """How long ago it was begun, or until it may be, where it has not ended."""
    error: ItemError | None = None
    """Why it failed, and the one before it: so would the others."""


class TaskStore(Connection):
    """Moves tasks and the items they carry."""

    def admit(
        self,
        engine: str,
        cost: CostModel,
        batch_seconds: float,
        *,
        most: int = MOST_BATCHES,
        interactive_slots: int = 0,
    ) -> list[AdmittedTask]:
        """Cut batches and let them in while there are free slots (live children and one more).

        ``cost`` is for voices of which too little was measured. An engine with four slots or more
        keeps ``interactive_slots`` of them from bulk work.
        """
        terms = admission_terms(engine, cost, batch_seconds, most, interactive_slots)
        return read_admitted(engine, self.run("admit", *terms))

    def start_task(
        self,
        task_id: str,
        child_id: str,
        lease_seconds: float,
        *,
        token: str | None = None,
        revision: str = BASE,
    ) -> StartedTask | MisplacedTask | None:
        """Take an admitted task; nothing when another copy has it or it is gone.

        One that waits for another revision is not taken.

        A caller that may have to repeat the call gives a ``token`` of its own making. ``revision``
        is the one that the child has.
        """
        token = token or uuid.uuid4().hex
        taken = self.run("start_task", task_id, token, child_id, lease_seconds, revision)
        if taken is None:
            return None
        if len(taken) == MisplacedTask.FIELDS:
            lane, seconds, job_class, detours = map(bytes.decode, taken)
            admitted = AdmittedTask(task_id, lane, float(seconds), JobClass(job_class))
            return MisplacedTask(admitted, int(detours))
        job_id, indexes, tenant, lane, reuse, *limits = map(bytes.decode, taken)
        of_job, of_tenant = (Limits.from_record(json.loads(one or "{}")) for one in limits)
        return StartedTask(
            task_id,
            token,
            job_id,
            tuple(json.loads(indexes)),
            tenant,
            lane,
            not reuse,
            of_job.within(of_tenant),
        )

    def start_items(
        self, task: StartedTask, indexes: Sequence[int], lease_seconds: float
    ) -> dict[int, int]:
        """Begin an attempt at these items: attempt numbers by index of those that are ours."""
        started = self.run("start_items", task.id, task.token, lease_seconds, *indexes)
        return {index: attempt for index, attempt in started or []}

    def share_item(self, task: StartedTask, index: int, same_as: int) -> Spoken | None:
        """What an item may share that is to sound as the item ``same_as``.

        Nothing where it is to be spoken: it stands for those that sound the same from then on.
        """
        found, state, seconds = self.run("share_item", task.job_id, task.id, index, same_as)
        return None if found == index else read_spoken(found, state, float(seconds))

    def succeed_item(
        self,
        task: StartedTask,
        index: int,
        audio: ItemAudio,
        *,
        cached: bool = False,
        same_as: int | None = None,
    ) -> bool:
        """Publish an item's audio. False: refused, the file must go.

        ``cached`` is what was not spoken but shared; what was spoken may be shared by others that
        are the ``same_as``.
        """
        body = json.dumps(asdict(audio))
        mine = (task.id, task.token, index)
        shared = ("cached" if cached else "", "" if same_as is None else same_as)
        return bool(self.run("succeed_item", *mine, body, DECAY, task.job_id, *shared))

    def fail_item(
        self,
        task: StartedTask,
        index: int,
        error: ItemError,
        *,
        max_attempts: int,
        retry_seconds: float = 0.0,
        redraw: bool = False,
    ) -> ItemStatus | None:
        """Note a failed attempt; a retryable one goes back to its queue, alone and after a pause.

        The pause is ``retry_seconds`` after the first attempt and grows. With ``redraw``, the next
        attempt has other seeds. Gives what the item is now; nothing where it is not ours any more.
        """
        mine = (task.id, task.token, index)
        limits = (max_attempts, retry_seconds, "redraw" if redraw else "")
        return self._end_item(*mine, "failed", json.dumps(asdict(error)), *limits)

    def return_item(
        self, task: StartedTask, index: int, error: ItemError | None, *, pause: float = 0.0
    ) -> ItemStatus | None:
        """Give an item back as if it had not been begun; ``error`` says why, if anything is wrong.

        It comes again after a pause of so many seconds. Gives the same as ``fail_item``.
        """
        body = json.dumps(error and asdict(error))
        mine = (task.id, task.token, index)
        return self._end_item(*mine, "returned", body, 0, pause)

    def cancel_item(self, task: StartedTask, index: int) -> ItemStatus | None:
        """Note that an item was stopped because its job was; gives the same as ``fail_item``."""
        return self._end_item(task.id, task.token, index, "cancelled", "null", 0, 0)

    def _end_item(self, *args: str | int | float) -> ItemStatus | None:
        status = self.run("end_item", *args)
        return None if status is None else ItemStatus(status.decode())

    def end_task(self, task: StartedTask, *, max_attempts: int, retry_seconds: float = 0.0) -> bool:
        """Close a task and free its slot; what it did not start goes back as it was."""
        return bool(self.run("end_task", task.id, task.token, max_attempts, retry_seconds))

    def end_and_admit(
        self,
        task: StartedTask,
        engine: str,
        cost: CostModel,
        batch_seconds: float,
        *,
        max_attempts: int,
        retry_seconds: float = 0.0,
        most: int = MOST_BATCHES,
        interactive_slots: int = 0,
    ) -> list[AdmittedTask]:
        """``end_task``, then ``admit``, in one step: Redis writes to its disk once."""
        ending = (task.id, task.token, max_attempts, retry_seconds)
        terms = admission_terms(engine, cost, batch_seconds, most, interactive_slots)
        return read_admitted(engine, self.run("end_and_admit", *ending, *terms))

    def renew(self, task: StartedTask, lease_seconds: float) -> Lease:
        """Keep the running lease; says whether it is held, and whether the job is stopping."""
        answer: Lease = self.run("renew", task.id, task.token, lease_seconds).decode()
        return answer

    def reap(
        self, *, max_attempts: int, retry_seconds: float = 0.0, limit: int = MOST_BATCHES
    ) -> int:
        """Release the running leases that ran out; gives how many."""
        return int(self.run("reap", max_attempts, retry_seconds, limit))

    def release_child(
        self,
        child_id: str,
        engine: str,
        *,
        max_attempts: int,
        error: VoicemillError,
        retry_seconds: float = 0.0,
    ) -> bool:
        """Forget a child whose process is gone; what it held has failed with ``error``."""
        failed = (max_attempts, retry_seconds, error.code, error.message)
        return bool(self.run("release_child", child_id, engine, *failed))

    def overdue_children(self, children: Sequence[str], seconds: float) -> set[str]:
        """Those of these children that hold a task of a job that has been stopping so long."""
        return {child.decode() for child in self.run("overdue_children", seconds, *children)}

    def stale_admitted(self, seconds: float, *, limit: int = 100) -> list[AdmittedTask]:
        """Tasks sent ``seconds`` ago or earlier and not started."""
        found = self.run("stale_admitted", seconds, limit)
        return [
            AdmittedTask(task, engine, float(seconds), JobClass(job_class))
            for task, engine, seconds, job_class in (map(bytes.decode, one) for one in found)
        ]

    def recall_task(self, task_id: str) -> bool:
        """Have what an admitted task carries wait again; False when it started or is gone."""
        return bool(self.run("recall_task", task_id))


def admission_terms(
    engine: str, cost: CostModel, batch_seconds: float, most: int, interactive_slots: int
) -> tuple[str | float, ...]:
    """What the scripts that let batches in are told."""
    ids = [uuid.uuid4().hex for _ in range(most)]
    line = (cost.base, cost.per_character)
    return (engine, *line, batch_seconds, interactive_slots, LEAD_SECONDS, *ids)


def read_admitted(engine: str, answer: Sequence[tuple[bytes, bytes, bytes]]) -> list[AdmittedTask]:
    """The batches that were let in."""
    return [
        AdmittedTask(task.decode(), engine, float(seconds), JobClass(job_class.decode()))
        for task, seconds, job_class in answer
    ]


def read_spoken(index: int, state: bytes, seconds: float) -> Spoken:
    """What the state of an item says."""
    record = json.loads(state)
    status, audio, error = ItemStatus(record["status"]), record.get("audio"), record.get("error")
    return Spoken(
        index,
        audio=ItemAudio(**audio) if audio else None,
        pending_seconds=None if is_terminal(status) else seconds,
        error=ItemError(**error) if error and status is ItemStatus.FAILED else None,
    )

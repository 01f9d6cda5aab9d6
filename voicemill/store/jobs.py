"""Jobs and their items: created in pages, read by keyset."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

import redis

from voicemill.errors import (
    ConcatenationCancelledError,
    ItemNotFoundError,
    JobNotFoundError,
    QueueFullError,
    QuotaExceededError,
    StoreRefusedError,
    VoicemillError,
)
from voicemill.fairness import Standing
from voicemill.jobs import (
    Item,
    ItemError,
    ItemInput,
    Job,
    JobRules,
    JobStatus,
    default_custom_id,
)
from voicemill.limits import Limits
from voicemill.reuse import marked
from voicemill.rollouts import lane
from voicemill.store.connection import Connection, key, translated
from voicemill.store.records import (
    APPEND_ITEMS,
    PAGE_ITEMS,
    Past,
    append_arguments,
    packed,
    past_of,
    place_of,
    read_item,
    read_job,
    unpacked,
)

NO_RULES = JobRules()
BULK = Standing()
NO_REVISIONS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a list, newest first."""

    jobs: list[Job]
    has_more: bool


class JobStore(Connection):
    """Creates, reads and cancels jobs."""

    def create_job(
        self,
        job_id: str,
        tenant: str,
        items: Sequence[ItemInput],
        metadata: Mapping[str, str],
        *,
        rules: JobRules = NO_RULES,
        standing: Standing = BULK,
        reuse: bool = True,
        max_queued_bytes: float = math.inf,
        revision: str | None = None,
        revisions: Mapping[str, str] = NO_REVISIONS,
    ) -> Job:
        """Store a job and make it live; it reads as ``validating`` until it is whole.

        ``items`` come with indexes 0, 1, 2 … With ``reuse``, those that are to sound the same share
        their audio, and wait one behind the other.
        With a ``revision`` it waits for children that have it; by model, ``revisions`` are those
        that it is given for as long as they are tried.
        A job whose writer dies half-way is failed by the clerk; one that lives on after that gets
        ``StoreRefusedError``.
        Raises ``QuotaExceededError`` and ``QueueFullError`` before anything is stored.
        """
        items = list(marked(items)) if reuse else items
        bound = {item.model: revision for item in items} if revision else revisions
        lanes = sorted({lane(item.model, bound.get(item.model)) for item in items})
        pages = [
            packed([item.to_record() for item in items[start : start + PAGE_ITEMS]])
            for start in range(0, len(items), PAGE_ITEMS)
        ]
        characters = sum(len(item.text) for item in items)
        limits = (
            rules.max_failures,
            rules.deadline_seconds,
            rules.output_expires_after,
            rules.concatenate_silence_ms,
        )
        try:
            self.run(
                "create_job",
                *(job_id, tenant, json.dumps(dict(metadata)), json.dumps(lanes)),
                *(standing.job_class, standing.priority, standing.fairness_key),
                *("" if limit is None else limit for limit in limits),
                *(len(items), characters, sum(map(len, pages)), max_queued_bytes),
                "" if reuse else "never",
                json.dumps(rules.limits.to_record()) if rules.limits != Limits() else "",
                revision or "",
            )
        except redis.exceptions.ResponseError as error:
            raise refusal_of(error) or error from error
        waiting = sorted(items, key=place_of)
        for offset in range(0, len(items), APPEND_ITEMS):
            page = append_arguments(job_id, offset, items, pages, waiting, bound)
            if not self.run("append_items", *page):
                raise given_up(job_id)
        fields = self.run("open_job", job_id, len(items))
        job = read_job(dict(zip(fields[::2], fields[1::2], strict=True)))
        if job is None:
            raise given_up(job_id)
        return job

    def job(self, job_id: str) -> Job:
        """The job of this id; raises ``JobNotFoundError``."""
        with translated():
            record = self._redis.hgetall(key("job", job_id))
        job = read_job(record)
        if job is None:
            raise no_job(job_id)
        return job

    def jobs(
        self,
        tenant: str,
        *,
        status: JobStatus | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> JobPage:
        """Jobs of a tenant, or those in one state, newest first, older than the job ``after``.

        Raises ``JobNotFoundError`` when ``after`` is no job of this tenant.
        """
        listed = key("jobs", tenant) if status is None else key("jobs", tenant, status)
        with translated():
            newest = "+inf"
            if after is not None:
                seq = self._redis.zscore(key("jobs", tenant), after)
                if seq is None:
                    raise JobNotFoundError(f"There is no job {after[:80]} to continue after.")
                newest = f"({seq}"
            ids = self._redis.zrevrangebyscore(listed, newest, "-inf", 0, limit + 1)
            pipeline = self._redis.pipeline(transaction=False)
            for job_id in ids[:limit]:
                pipeline.hgetall(key("job", job_id.decode()))
            records = pipeline.execute()
        jobs = [job for job in map(read_job, records) if job is not None]
        return JobPage(jobs, has_more=len(ids) > limit)

    def items(self, job_id: str, *, after: int = -1, limit: int = 100) -> list[Item]:
        """Items with an index above ``after``, in order; raises ``JobNotFoundError``."""
        job = self.job(job_id)
        end = min(after + 1 + limit, job.counts.total)
        return list(self._read_items(job, range(after + 1, end)))

    def item(self, job_id: str, custom_id: str) -> Item:
        """One item by its client's id; raises ``ItemNotFoundError`` or ``JobNotFoundError``."""
        job = self.job(job_id)
        index = self._index_of(job, custom_id)
        if index is None:
            raise ItemNotFoundError(f"The job {job_id[:80]} has no item {custom_id[:80]}.")
        return next(self._read_items(job, range(index, index + 1)))

    def inputs(self, job_id: str, indexes: Sequence[int]) -> list[ItemInput]:
        """What was asked of these items, in the order of ``indexes``."""
        numbers = sorted({index // PAGE_ITEMS for index in indexes})
        with translated():
            bodies = self._redis.hmget(key("job", job_id, "pages"), [str(n) for n in numbers])
        pages = {
            number: unpacked(body)
            for number, body in zip(numbers, bodies, strict=True)
            if body is not None
        }
        return [
            ItemInput.from_record(pages[index // PAGE_ITEMS][index % PAGE_ITEMS])
            for index in indexes
        ]

    def pasts(self, job_id: str, indexes: Sequence[int]) -> dict[int, Past]:
        """What became of these items so far, by index; they are in hand."""
        with translated():
            states = self._redis.hmget(key("job", job_id, "states"), [str(i) for i in indexes])
        return {index: past_of(state) for index, state in zip(indexes, states, strict=True)}

    def cancel(self, job_id: str) -> Job:
        """Cancel what waits at once, what runs at its next check; a terminal job stays as it is.

        One that waits for its one file is completed without it.
        """
        error = ConcatenationCancelledError(
            "The job was cancelled before the audio of its items was joined."
        )
        try:
            self.run("cancel_job", job_id, json.dumps(asdict(ItemError.of(error))))
        except redis.exceptions.ResponseError as refusal:
            if "NOJOB" not in str(refusal):
                raise
        return self.job(job_id)

    def expire_jobs(self, *, limit: int = 1) -> int:
        """Stop jobs past their deadline, and what is left of stopping ones; gives how many."""
        return int(self.run("expire_jobs", limit))

    def abandon_unfinished(self, seconds: float, *, limit: int = 100) -> int:
        """Fail jobs that have been ``validating`` for ``seconds`` without a new page."""
        return int(self.run("abandon_job", seconds, limit))

    def _index_of(self, job: Job, custom_id: str) -> int | None:
        with translated():
            named = self._redis.hget(key("job", job.id, "ids"), custom_id)
        if named is not None:
            return int(named)
        digits = custom_id.removeprefix("row-")
        if not digits.isdecimal() or not digits.isascii():
            return None
        index = int(digits) - 1
        if not 0 <= index < job.counts.total or default_custom_id(index) != custom_id:
            return None
        return index if self.inputs(job.id, [index])[0].custom_id == custom_id else None

    def _read_items(self, job: Job, indexes: Sequence[int]) -> Iterator[Item]:
        if not indexes:
            return
        inputs = self.inputs(job.id, indexes)
        with translated():
            states = self._redis.hmget(key("job", job.id, "states"), [str(i) for i in indexes])
        for one, state in zip(inputs, states, strict=True):
            yield read_item(job, one, state)


def no_job(job_id: str) -> JobNotFoundError:
    """There is none, or it was deleted."""
    return JobNotFoundError(f"There is no job {job_id[:80]}.")


def given_up(job_id: str) -> StoreRefusedError:
    """The job was failed or cancelled while its items were still being stored."""
    return StoreRefusedError(
        f"The job {job_id} was given up before all of its items were stored; submit it again."
    )


def refusal_of(error: redis.exceptions.ResponseError) -> VoicemillError | None:
    """Why a job was refused, where that is what an error says."""
    match str(error).split():
        case ["FULL", *_]:
            return QueueFullError("All that waits takes as much memory as it may; try again later.")
        case ["CAP", what, has, more, cap, *_]:
            unit = what.removeprefix("queued_")
            return QuotaExceededError(
                f"The tenant may have {cap} {unit} waiting; it has {has}, and the job has {more}. "
                "Wait until some are spoken, or send less."
            )
    return None

"""Jobs and their items: created in pages, read by keyset."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
from voicemill.fairness import JobClass, Standing
from voicemill.jobs import (
    SCHEMA,
    Concatenation,
    Counts,
    Item,
    ItemAudio,
    ItemError,
    ItemInput,
    ItemStatus,
    Job,
    JobAudio,
    JobRules,
    JobStatus,
    default_custom_id,
    is_terminal,
)
from voicemill.limits import Limits
from voicemill.reuse import marked
from voicemill.store.connection import Connection, key, translated

PAGE_ITEMS = 100
APPEND_ITEMS = 1000
NO_RULES = JobRules()
BULK = Standing()
COUNTS = ("total", "queued", "in_progress", "succeeded", "failed", "cancelled", "expired", "cached")
TIMES = (
    "in_progress_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "cancelling_at",
    "cancelled_at",
    "expired_at",
    "expires_at",
    "output_expires_at",
)
STOP = "stop:"


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a list, newest first."""

    jobs: list[Job]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Past:
    """What became of an item in the attempts before the one in hand."""

    code: str | None
    """Why the last one in this run of its job failed, if it did."""
    tries: int
    """How many there were in this run."""
    draws: int
    """How many, in all runs, failed in a way for which the next one has other seeds."""


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
    ) -> Job:
        """Store a job and make it live; it reads as ``validating`` until it is whole.

        ``items`` come with indexes 0, 1, 2 … With ``reuse``, those that are to sound the same share
        their audio, and wait one behind the other.
        A job whose writer dies half-way is failed by the clerk; one that lives on after that gets
        ``StoreRefusedError``.
        Raises ``QuotaExceededError`` and ``QueueFullError`` before anything is stored.
        """
        items = list(marked(items)) if reuse else items
        engines = sorted({item.model for item in items})
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
                *(job_id, tenant, json.dumps(dict(metadata)), json.dumps(engines)),
                *(standing.job_class, standing.priority, standing.fairness_key),
                *("" if limit is None else limit for limit in limits),
                *(len(items), characters, sum(map(len, pages)), max_queued_bytes),
                "" if reuse else "never",
                json.dumps(rules.limits.to_record()) if rules.limits != Limits() else "",
            )
        except redis.exceptions.ResponseError as error:
            raise refusal_of(error) or error from error
        waiting = sorted(items, key=place_of)
        for offset in range(0, len(items), APPEND_ITEMS):
            page = append_arguments(job_id, offset, items, pages, waiting)
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


def place_of(item: ItemInput) -> int:
    """Where an item waits: those that are to sound as another right behind that one."""
    return item.index if item.same_as is None else item.same_as


def append_arguments(
    job_id: str,
    offset: int,
    items: Sequence[ItemInput],
    pages: Sequence[bytes],
    waiting: Sequence[ItemInput],
) -> list[str | int | bytes]:
    """The arguments of ``append_items.lua`` for the items from ``offset`` on.

    ``waiting`` are the same items as they are to wait.
    """
    added = items[offset : offset + APPEND_ITEMS]
    numbers = range(offset // PAGE_ITEMS, (offset + len(added) - 1) // PAGE_ITEMS + 1)
    bodies = [part for number in numbers for part in (number, pages[number])]
    named = [item for item in added if item.custom_id != default_custom_id(item.index)]
    ids: list[str | int | bytes] = [part for item in named for part in (item.custom_id, item.index)]
    entries: list[str | int | bytes] = []
    for item in waiting[offset : offset + APPEND_ITEMS]:
        entries += [item.model, f"{item.index}\t{len(item.text)}\t{item.batch_key}\t0"]
    characters = sum(len(item.text) for item in added)
    return [
        *(job_id, offset, characters),
        *(len(numbers), *bodies),
        *(len(named), *ids),
        *entries,
    ]


def packed(records: Sequence[Mapping[str, Any]]) -> bytes:
    """A page of inputs as it is stored."""
    return zlib.compress(json.dumps(records, ensure_ascii=False).encode("utf-8"), 6)


def unpacked(body: bytes) -> list[dict[str, Any]]:
    """The records of a page."""
    records: list[dict[str, Any]] = json.loads(zlib.decompress(body))
    return records


def read_job(record: Mapping[bytes, bytes]) -> Job | None:
    """The job a hash holds; nothing for none, or for one of a schema we don't know."""
    fields = {name.decode(): value.decode() for name, value in record.items()}
    if fields.get("schema") != str(SCHEMA) or "deleted" in fields:
        return None
    return Job(
        id=fields["id"],
        tenant=fields["tenant"],
        status=JobStatus(fields["status"]),
        counts=Counts(**{name: int(fields[name]) for name in COUNTS}),
        created_at=float(fields["created_at"]),
        **{name: float(fields[name]) for name in TIMES if name in fields},
        data_removed="data_removed" in fields,
        concatenation=read_concatenation(fields),
        trouble=fields.get("trouble"),
        run=int(fields["run"]),
        stops={
            int(name.removeprefix(STOP)): ItemStatus(value)
            for name, value in fields.items()
            if name.startswith(STOP)
        },
        input_characters=int(fields["input_characters"]),
        done_characters=int(fields["done_characters"]),
        audio_seconds=float(fields["audio_seconds"]),
        device_seconds=float(fields["device_seconds"]),
        engines=tuple(json.loads(fields["engines"])),
        standing=Standing(
            JobClass(fields["class"]), int(fields["priority"]), fields["fairness_key"]
        ),
        metadata=json.loads(fields["metadata"]),
    )


def read_concatenation(fields: Mapping[str, str]) -> Concatenation | None:
    """What a job has of the one file that it asked for; nothing where it did not."""
    silence = fields.get("concatenate_silence_ms")
    if not silence:
        return None
    record = json.loads(fields.get("concatenation", "{}"))
    audio, error = record.get("audio"), record.get("error")
    return Concatenation(
        int(silence),
        audio=JobAudio(**audio) if audio else None,
        error=ItemError(**error) if error else None,
    )


def read_item(job: Job, asked: ItemInput, state: bytes | None) -> Item:
    """An item from its input and its state.

    One that failed before a retry reads as waiting, one that waits in a stopped job as stopped.
    """
    record: dict[str, Any] = json.loads(state) if state else {}
    status, run = ItemStatus(record.get("status", "queued")), record.get("run", 1)
    if status is ItemStatus.FAILED and run < job.run:
        status, run = ItemStatus.QUEUED, run + 1
    if status is ItemStatus.QUEUED:
        status = job.stops.get(run, status)
    audio, error = record.get("audio"), record.get("error")
    return Item(
        job_id=job.id,
        input=asked,
        status=status,
        attempts=record.get("attempts", 0),
        task_id=record.get("task_id"),
        audio=ItemAudio(**audio) if audio else None,
        error=ItemError(**error) if error else None,
        cached=record.get("cached", False),
        started_at=record.get("started_at"),
        completed_at=record.get("completed_at") if is_terminal(status) else None,
    )


def past_of(state: bytes | None) -> Past:
    """What the state of an item in hand says of the attempts before."""
    record: dict[str, Any] = json.loads(state) if state else {}
    tries = max(0, record.get("attempts", 0) - record.get("base", 0) - 1)
    error = (record.get("error") or {}) if tries else {}
    return Past(error.get("code"), tries, record.get("draws", 0))

"""How jobs and their items are written in Redis, and read from it. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    JobStatus,
    default_custom_id,
    is_terminal,
)
from voicemill.limits import Limits
from voicemill.rollouts import lane

PAGE_ITEMS = 100
APPEND_ITEMS = 1000
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
class Past:
    """What became of an item in the attempts before the one in hand."""

    code: str | None
    """Why the last one in this run of its job failed, if it did."""
    tries: int
    """How many there were in this run."""
    draws: int
    """How many, in all runs, failed in a way for which the next one has other seeds."""


def place_of(item: ItemInput) -> int:
    """Where an item waits: those that are to sound as another right behind that one."""
    return item.index if item.same_as is None else item.same_as


def append_arguments(
    job_id: str,
    offset: int,
    items: Sequence[ItemInput],
    pages: Sequence[bytes],
    waiting: Sequence[ItemInput],
    revisions: Mapping[str, str],
) -> list[str | int | bytes]:
    """The arguments of ``append_items.lua`` for the items from ``offset`` on.

    ``waiting`` are the same items as they are to wait: by model, for those of some ``revisions``.
    """
    added = items[offset : offset + APPEND_ITEMS]
    numbers = range(offset // PAGE_ITEMS, (offset + len(added) - 1) // PAGE_ITEMS + 1)
    bodies = [part for number in numbers for part in (number, pages[number])]
    named = [item for item in added if item.custom_id != default_custom_id(item.index)]
    ids: list[str | int | bytes] = [part for item in named for part in (item.custom_id, item.index)]
    entries: list[str | int | bytes] = []
    for item in waiting[offset : offset + APPEND_ITEMS]:
        entries += [
            lane(item.model, revisions.get(item.model)),
            f"{item.index}\t{len(item.text)}\t{item.batch_key}\t0",
        ]
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
        limits=Limits.from_record(json.loads(fields.get("limits", "{}"))),
        revision=fields.get("revision"),
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

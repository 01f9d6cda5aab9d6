"""What a server answers, as far as its client reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class Job(TypedDict):
    """A job as the server tells it (the fields this side reads)."""

    id: str
    status: str
    run: int
    status_reason: str | None
    request_counts: dict[str, int]
    usage: dict[str, float]
    metadata: dict[str, str]


class ItemError(TypedDict):
    """Why an item has no audio."""

    code: str
    message: str
    retryable: bool


class Item(TypedDict):
    """An item as the server tells it (the fields this side reads)."""

    job_id: str
    custom_id: str
    index: int
    status: str
    attempts: int
    audio_path: str | None
    audio_url: str | None
    sha256: str | None
    size_bytes: int | None
    duration_seconds: float | None
    sample_rate: int | None
    response_format: str
    error: ItemError | None


class Model(TypedDict):
    """A model as the server tells it (the fields this side reads)."""

    id: str
    revision: str
    live: bool


class Voice(TypedDict):
    """A voice as the server tells it (the fields this side reads)."""

    id: str
    model: str
    languages: list[str]
    description: str


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a job, in the job's order."""

    items: list[Item]
    has_more: bool

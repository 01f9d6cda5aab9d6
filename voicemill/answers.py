"""What a server answers, as far as its client reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class ItemError(TypedDict):
    """Why an item, or the one file of a job, has no audio."""

    code: str
    message: str
    retryable: bool


class Concatenation(TypedDict):
    """The one file of a job, once it is there."""

    audio_path: str | None
    audio_url: str | None
    sha256: str | None
    size_bytes: int | None
    duration_seconds: float | None
    sample_rate: int | None
    items_left_out: int | None
    error: ItemError | None


class Job(TypedDict):
    """A job as the server tells it (the fields this side reads)."""

    id: str
    status: str
    run: int
    status_reason: str | None
    request_counts: dict[str, int]
    usage: dict[str, float]
    concatenation: Concatenation | None
    metadata: dict[str, str]


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


class Enrolment(TypedDict):
    """What there is of an enrolled voice besides."""

    status: str
    shared: bool
    sha256: str | None
    duration_seconds: float | None
    sample_rate: int | None
    advice: str | None
    error: ItemError | None


class Voice(TypedDict):
    """A voice as the server tells it (the fields this side reads)."""

    id: str
    model: str | None
    languages: list[str]
    description: str
    enrolled: Enrolment | None


@dataclass(frozen=True, slots=True)
class ItemPage:
    """Some items of a job, in the job's order."""

    items: list[Item]
    has_more: bool


class RevisionFigures(TypedDict):
    """What the children of one revision did since a rollout began."""

    revision: str
    children: int
    attempts: int
    failures: dict[str, int]
    failure_share: float
    real_time_factor: float | None
    memory_bytes: int


class Rollout(TypedDict):
    """A change from one revision of a model to another."""

    id: str
    model: str
    revision: str
    status: str
    reason: str | None
    old: RevisionFigures
    new: RevisionFigures

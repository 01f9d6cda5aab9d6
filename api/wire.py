"""The JSON that goes out: its shapes, and records rendered into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, NotRequired, TypeVar

# pydantic reads a TypedDict only from here before Python 3.12.
from typing_extensions import TypedDict

from voicemill.jobs import Item, ItemError, ItemStatus, Job, JobStatus, is_terminal
from voicemill.voices import Capabilities, Voice

DataT = TypeVar("DataT")

LONGEST_RETRY_AFTER_SECONDS: Final = 120
STUCK_RETRY_AFTER_SECONDS: Final = 30


class RequestCounts(TypedDict):
    """How many items of a job stand where."""

    total: int
    queued: int
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    cached: int


class Progress(TypedDict):
    """How far a job is."""

    percentage: float
    basis: Literal["characters"]


class Usage(TypedDict):
    """What a job took."""

    input_characters: int
    audio_seconds: float
    device_seconds: float


class JobUrls(TypedDict):
    """Where to go on from a job."""

    get: str
    cancel: str
    items: str


class JobBody(TypedDict):
    """A job; times are seconds since the epoch."""

    id: str
    object: Literal["speech.job"]
    status: JobStatus
    status_reason: Literal["no_workers"] | None
    request_counts: RequestCounts
    progress: Progress
    created_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    expired_at: int | None
    usage: Usage
    metadata: dict[str, str]
    urls: JobUrls


class ErrorBody(TypedDict):
    """Why an item has no audio."""

    code: str
    message: str
    retryable: bool


class ItemBody(TypedDict):
    """One text and its audio."""

    object: Literal["speech.item"]
    job_id: str
    custom_id: str
    index: int
    status: ItemStatus
    attempts: int
    task_id: str | None
    model: str
    voice: str
    audio_path: str | None
    audio_url: str | None
    sha256: str | None
    size_bytes: int | None
    duration_seconds: float | None
    sample_rate: int | None
    response_format: str
    cached: bool
    engine: str | None
    model_revision: str | None
    started_at: int | None
    completed_at: int | None
    error: ErrorBody | None
    metadata: dict[str, str]


class ModelBody(TypedDict):
    """An engine that a worker has offered, and what it can do."""

    id: str
    object: Literal["model"]
    revision: str
    voices: list[str]
    sample_rate: int
    min_speed: float
    max_speed: float
    seed: bool
    instructions: bool
    deterministic: bool
    live: bool


class VoiceBody(TypedDict):
    """How a model can sound."""

    id: str
    object: Literal["voice"]
    model: str
    languages: list[str]
    description: str


class ListBody(TypedDict, Generic[DataT]):
    """One page of a list."""

    object: Literal["list"]
    data: list[DataT]
    has_more: bool
    first_id: str | None
    last_id: str | None


class FaultBody(TypedDict):
    """One thing that is wrong with the input."""

    pointer: str
    code: str
    detail: str


class ProblemBody(TypedDict):
    """Any error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: NotRequired[list[FaultBody]]


class ProblemTypeBody(TypedDict):
    """What a problem's type means."""

    code: str
    title: str
    status: int
    retryable: bool
    description: str


class AliveBody(TypedDict):
    """This process answers."""

    status: Literal["ok"]


class CheckBody(TypedDict):
    """One thing that must hold for work to be done."""

    name: str
    ok: bool
    detail: str


class ReadyBody(TypedDict):
    """Whether work that is sent now will be done."""

    status: Literal["ready", "not_ready"]
    checks: list[CheckBody]


class HealthBody(ReadyBody):
    """The verdict and everything it rests on."""

    gpu: dict[str, Any]
    children: list[dict[str, Any]]
    queue: dict[str, Any]
    disk_free_bytes: int | None


def page(data: list[DataT], ids: list[str], *, has_more: bool = False) -> ListBody[DataT]:
    """A page of a list; ``ids`` name its members."""
    return {
        "object": "list",
        "data": data,
        "has_more": has_more,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def job_body(job: Job, slots: Mapping[str, int]) -> JobBody:
    """A job; ``slots`` are the live children of each of its models."""
    url = f"/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "object": "speech.job",
        "status": job.status,
        "status_reason": status_reason(job, slots),
        "request_counts": RequestCounts(**job.counts.to_wire()),  # type: ignore[typeddict-item]
        "progress": {"percentage": percentage(job), "basis": "characters"},
        "created_at": int(job.created_at),
        "in_progress_at": whole(job.in_progress_at),
        "finalizing_at": whole(job.finalizing_at),
        "completed_at": whole(job.completed_at),
        "failed_at": whole(job.failed_at),
        "cancelling_at": whole(job.cancelling_at),
        "cancelled_at": whole(job.cancelled_at),
        "expired_at": whole(job.expired_at),
        "usage": {
            "input_characters": job.input_characters,
            "audio_seconds": round(job.audio_seconds, 3),
            "device_seconds": round(job.device_seconds, 3),
        },
        "metadata": dict(job.metadata),
        "urls": {"get": url, "cancel": f"{url}/cancel", "items": f"{url}/items"},
    }


def status_reason(job: Job, slots: Mapping[str, int]) -> Literal["no_workers"] | None:
    """Why a job does not move, where that is known."""
    if job.status not in {JobStatus.QUEUED, JobStatus.IN_PROGRESS}:
        return None
    return "no_workers" if any(not slots.get(model, 0) for model in job.models) else None


def percentage(job: Job) -> float:
    """Share of the characters that are done, 0 to 100."""
    if not job.input_characters:
        return 0.0
    return round(100 * job.done_characters / job.input_characters, 1)


def retry_after(job: Job, reason: str | None, now: float) -> int | None:
    """Seconds after which to look again; nothing once the job has ended."""
    if is_terminal(job.status):
        return None
    wait = STUCK_RETRY_AFTER_SECONDS if reason else 1
    if job.in_progress_at is not None and job.done_characters:
        pace = max(now - job.in_progress_at, 0.0) / job.done_characters
        left = job.input_characters - job.done_characters
        wait = max(wait, round(pace * left))
    return min(wait, LONGEST_RETRY_AFTER_SECONDS)


def whole(seconds: float | None) -> int | None:
    """A time without its fraction."""
    return None if seconds is None else int(seconds)


def item_body(item: Item) -> ItemBody:
    """An item as it stands."""
    asked, audio = item.input, item.audio
    spoken = item.status is ItemStatus.SUCCEEDED
    return {
        "object": "speech.item",
        "job_id": item.job_id,
        "custom_id": asked.custom_id,
        "index": asked.index,
        "status": item.status,
        "attempts": item.attempts,
        "task_id": item.task_id,
        "model": asked.model,
        "voice": asked.voice,
        "audio_path": audio.audio_path if audio else None,
        "audio_url": audio_url(item) if spoken else None,
        "sha256": audio.sha256 if audio else None,
        "size_bytes": audio.size_bytes if audio else None,
        "duration_seconds": audio.duration_seconds if audio else None,
        "sample_rate": audio.sample_rate if audio else None,
        "response_format": asked.response_format,
        "cached": item.cached,
        "engine": audio.engine if audio else None,
        "model_revision": audio.model_revision if audio else None,
        "started_at": whole(item.started_at),
        "completed_at": whole(item.completed_at),
        "error": error_body(item.error) if item.error else None,
        "metadata": dict(asked.metadata),
    }


def error_body(error: ItemError) -> ErrorBody:
    """Why an item has no audio."""
    return {"code": error.code, "message": error.message, "retryable": error.retryable}


def audio_url(item: Item) -> str:
    """Where the audio of an item is fetched."""
    return f"/v1/jobs/{item.job_id}/items/{item.input.custom_id}/audio"


def model_body(engine: Capabilities, *, live: bool) -> ModelBody:
    """An engine; ``live`` when a child of it takes work now."""
    return {
        "id": engine.engine,
        "object": "model",
        "revision": engine.model_revision,
        "voices": [voice.name for voice in engine.voices],
        "sample_rate": engine.sample_rate,
        "min_speed": engine.min_speed,
        "max_speed": engine.max_speed,
        "seed": engine.seed,
        "instructions": engine.instructions,
        "deterministic": engine.deterministic,
        "live": live,
    }


def voice_body(engine: Capabilities, voice: Voice) -> VoiceBody:
    """A voice of an engine."""
    return {
        "id": voice.name,
        "object": "voice",
        "model": engine.engine,
        "languages": list(voice.languages),
        "description": voice.description,
    }

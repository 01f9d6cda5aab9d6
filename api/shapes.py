"""The JSON that goes out: its shapes."""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypeVar

# pydantic reads a TypedDict only from here before Python 3.12.
from typing_extensions import TypedDict

from voicemill.enrolment import VoiceStatus
from voicemill.fairness import JobClass
from voicemill.jobs import ItemStatus, JobStatus
from voicemill.options import Kind

DataT = TypeVar("DataT")


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
    retry: str
    items: str
    audio: str | None
    """Of the one file; nothing where the job did not ask for it."""


StatusReason = Literal[
    "no_workers",
    "queue_paused",
    "disk_full",
    "output_denied",
    "output_read_only",
    "output_missing",
    "no_clerk",
]


class ErrorBody(TypedDict):
    """Why there is no audio."""

    code: str
    message: str
    retryable: bool


class ConcatenationBody(TypedDict):
    """The audio of all items in one file; of the last run of the job that has ended."""

    silence_ms: int
    audio_path: str | None
    audio_url: str | None
    sha256: str | None
    size_bytes: int | None
    duration_seconds: float | None
    sample_rate: int | None
    response_format: str | None
    items_left_out: int | None
    error: ErrorBody | None


StandingBody = TypedDict(
    "StandingBody", {"class": JobClass, "priority": int, "fairness_key": str | None}
)
"""Where a job stands among those that wait; ``class`` can't be written otherwise."""


class LimitsBody(TypedDict):
    """What one item may take by its job, apart from its tenant's and the server's limits."""

    max_output_seconds: float | None
    max_item_seconds: float | None
    max_memory_mb: int | None


class JobBody(StandingBody, LimitsBody):
    """A job; times are seconds since the epoch."""

    id: str
    object: Literal["speech.job"]
    revision: str | None
    """Of its model, where it asked for one."""
    status: JobStatus
    status_reason: StatusReason | None
    run: int
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
    expires_at: int | None
    output_expires_at: int | None
    data_removed: bool
    concatenation: ConcatenationBody | None
    usage: Usage
    metadata: dict[str, str]
    urls: JobUrls


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


class OptionBody(TypedDict):
    """An option that items may set; a text's ``maximum`` is its most characters."""

    name: str
    kind: Kind
    description: str
    choices: list[str]
    minimum: float | None
    maximum: float | None


class ModelBody(TypedDict):
    """An engine that a worker has offered, and what it can do."""

    id: str
    object: Literal["model"]
    revision: str
    voices: list[str]
    voice_mixes: bool
    languages: list[str]
    sample_rate: int
    min_speed: float
    max_speed: float
    seed: bool
    instructions: bool
    cloning: bool
    streaming: bool
    word_times: bool
    options: list[OptionBody]
    max_batch: int
    best_batch: int
    best_segment_characters: int
    max_segment_characters: int
    memory_bytes: int | None
    deterministic: bool
    engine_licence: str | None
    model_licence: str | None
    live: bool
    """Whether a child takes work for it now."""
    slots: int
    """How many do."""
    revisions: dict[str, int]
    """Children that live, by the name of the revision they have: a job may ask for one of these."""


class VoiceBody(TypedDict):
    """How a model can sound, or all models that clone (then ``model`` is null)."""

    id: str
    object: Literal["voice"]
    model: str | None
    languages: list[str]
    description: str
    licence: str | None
    enrolled: EnrolmentBody | None


class EnrolmentBody(TypedDict):
    """What there is of an enrolled voice besides; ``consent`` is told to its owner only."""

    status: VoiceStatus
    shared: bool
    unlisted: bool
    prompt_text: str
    consent: str | None
    created_at: int
    revision: str | None
    sha256: str | None
    duration_seconds: float | None
    sample_rate: int | None
    sample_url: str
    transcript_error_rate: float | None
    """Share of the transcript that a recogniser heard otherwise, where one could tell."""
    advice: str | None
    error: ErrorBody | None


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


class RootBody(TypedDict):
    """Who answers here, and where to go on."""

    name: Literal["voicemill"]
    version: str
    urls: dict[str, str]


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

    status: Literal["ready", "degraded", "not_ready"]
    checks: list[CheckBody]


class HealthBody(ReadyBody):
    """The verdict and everything it rests on."""

    warnings: list[str]
    """What goes wrong though work is done."""
    gpu: dict[str, Any]
    children: list[dict[str, Any]]
    queue: dict[str, Any]
    disk_free_bytes: int | None

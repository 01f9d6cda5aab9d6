"""Jobs and items: their records and their legal transitions. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any

from voicemill.errors import InvalidCustomIdError, VoicemillError
from voicemill.fairness import Standing
from voicemill.limits import Limits
from voicemill.options import OptionValue

SCHEMA = 1
LONGEST_MESSAGE_CHARACTERS = 1000
VOICE_OF_MIX = re.compile(r"[^:+]+")
"""The first of the voices that a name is made of."""
CUSTOM_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class JobStatus(StrEnum):
    """Where a job stands."""

    VALIDATING = "validating"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ItemStatus(StrEnum):
    """Where an item stands."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    JobStatus.VALIDATING: frozenset({JobStatus.QUEUED, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.QUEUED: frozenset({JobStatus.IN_PROGRESS, JobStatus.CANCELLING}),
    JobStatus.IN_PROGRESS: frozenset({JobStatus.FINALIZING, JobStatus.CANCELLING}),
    JobStatus.FINALIZING: frozenset({JobStatus.COMPLETED, JobStatus.FAILED}),
    JobStatus.CANCELLING: frozenset({JobStatus.CANCELLED, JobStatus.EXPIRED, JobStatus.FAILED}),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
    JobStatus.EXPIRED: frozenset(),
}

ITEM_TRANSITIONS: Mapping[ItemStatus, frozenset[ItemStatus]] = {
    ItemStatus.QUEUED: frozenset(
        {ItemStatus.IN_PROGRESS, ItemStatus.CANCELLED, ItemStatus.EXPIRED}
    ),
    ItemStatus.IN_PROGRESS: frozenset(
        {
            ItemStatus.QUEUED,
            ItemStatus.SUCCEEDED,
            ItemStatus.FAILED,
            ItemStatus.CANCELLED,
            ItemStatus.EXPIRED,
        }
    ),
    ItemStatus.SUCCEEDED: frozenset(),
    ItemStatus.FAILED: frozenset(),
    ItemStatus.CANCELLED: frozenset(),
    ItemStatus.EXPIRED: frozenset(),
}


def is_terminal(status: JobStatus | ItemStatus) -> bool:
    """True when nothing but a retry can change this status any more."""
    if isinstance(status, JobStatus):
        return not JOB_TRANSITIONS[status]
    return not ITEM_TRANSITIONS[status]


@dataclass(frozen=True, slots=True)
class ItemInput:
    """What a client asked of one item; never changes."""

    index: int
    custom_id: str
    text: str
    model: str
    """Name of the engine that speaks it."""
    voice: str
    language: str | None = None
    speed: float = 1.0
    seed: int | None = None
    instructions: str | None = None
    response_format: str = "wav"
    metadata: Mapping[str, str] = field(default_factory=dict)
    same_as: int | None = None
    """Index of the first item of its job that is to sound the same, if that is another one."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Named options of the engine."""
    voice_revision: str | None = None
    """Of an enrolled voice, as it was when the job was submitted; nothing for an engine's own."""

    @property
    def batch_key(self) -> str:
        """Items of one job with equal keys may be synthesized together.

        A store measures costs by it, and there is no end to enrolled voices, mixes of voices and
        values of options: these add one of 256 marks.
        """
        plain = VOICE_OF_MIX.match(self.voice)
        voice = plain[0] if plain and self.voice_revision is None else ""
        if voice == self.voice and not self.options:
            return f"{self.model}/{voice}"
        named = json.dumps([self.voice, self.voice_revision, dict(self.options)], sort_keys=True)
        return f"{self.model}/{voice}/{hashlib.sha256(named.encode()).hexdigest()[:2]}"

    def to_record(self) -> dict[str, Any]:
        """The JSON object that the store keeps: what is not as it is by default."""
        values = ((name, getattr(self, name)) for name in INPUT_DEFAULTS)
        return {name: value for name, value in values if value != INPUT_DEFAULTS[name]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ItemInput:
        """The input a record holds."""
        return cls(**record)


INPUT_DEFAULTS: Mapping[str, Any] = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory()
    for one in fields(ItemInput)
}


@dataclass(frozen=True, slots=True)
class ItemError:
    """Why an item, or the one file of a job, has no audio."""

    code: str
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: VoicemillError) -> ItemError:
        """An error as records keep it: engines put into its message what they like."""
        text = error.message.encode("utf-8", "replace").decode("utf-8")
        return cls(error.code, text[:LONGEST_MESSAGE_CHARACTERS], error.retryable)


@dataclass(frozen=True, slots=True)
class ItemAudio:
    """The finished audio of an item."""

    audio_path: str
    """Absolute."""
    sha256: str
    size_bytes: int
    duration_seconds: float
    sample_rate: int
    """Hz."""
    device_seconds: float
    """Wall time the engine took."""
    engine: str
    model_revision: str


@dataclass(frozen=True, slots=True)
class Item:
    """One text to speak and where it stands."""

    job_id: str
    input: ItemInput
    status: ItemStatus = ItemStatus.QUEUED
    attempts: int = 0
    task_id: str | None = None
    """Celery's id of the last attempt."""
    audio: ItemAudio | None = None
    error: ItemError | None = None
    cached: bool = False
    started_at: float | None = None
    completed_at: float | None = None


@dataclass(frozen=True, slots=True)
class JobAudio:
    """The audio of all items of a job that succeeded, in one file."""

    audio_path: str
    """Absolute."""
    sha256: str
    size_bytes: int
    duration_seconds: float
    sample_rate: int
    """Hz."""
    response_format: str
    items_left_out: int
    """Items without audio."""


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The one file that a job asked for: of its last run that was finalised, if there was one."""

    silence_ms: int
    """Between the audio of two items."""
    audio: JobAudio | None = None
    error: ItemError | None = None
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many items of a job stand where."""

    total: int = 0
    queued: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    cached: int = 0

    def to_wire(self) -> dict[str, int]:
        """``request_counts``; OpenAI's ``completed`` counts items that succeeded."""
        return {
            "total": self.total,
            "queued": self.queued,
            "in_progress": self.in_progress,
            "completed": self.succeeded,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "expired": self.expired,
            "cached": self.cached,
        }


@dataclass(frozen=True, slots=True)
class JobRules:
    """What a job and its items may take, and what is made and kept of it at its end."""

    deadline_seconds: float | None = None
    """Time it has from when it was made live."""
    max_failures: int | None = None
    """Items that may fail; one more stops it."""
    output_expires_after: float | None = None
    """Seconds that audio and texts are kept after its end; for ever where nothing is said."""
    concatenate_silence_ms: int | None = None
    """Silence between items in one file of their audio; no such file where nothing is said."""
    limits: Limits = field(default_factory=Limits)
    """What one item may take; those of its tenant and of the settings count beside."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a client submitted and follows."""

    id: str
    tenant: str
    status: JobStatus
    counts: Counts
    created_at: float
    """Seconds since the epoch by the store's clock, as all times here."""
    in_progress_at: float | None = None
    finalizing_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    cancelling_at: float | None = None
    cancelled_at: float | None = None
    expired_at: float | None = None
    expires_at: float | None = None
    """Its deadline."""
    output_expires_at: float | None = None
    data_removed: bool = False
    """Its audio and texts are gone."""
    concatenation: Concatenation | None = None
    trouble: str | None = None
    """Code of what keeps it from being finalised."""
    run: int = 1
    """One more with each retry."""
    stops: Mapping[int, ItemStatus] = field(default_factory=dict)
    """What items that waited ended as, by the run that was stopped."""
    input_characters: int = 0
    done_characters: int = 0
    audio_seconds: float = 0.0
    device_seconds: float = 0.0
    engines: tuple[str, ...] = ()
    standing: Standing = field(default_factory=Standing)
    limits: Limits = field(default_factory=Limits)
    """Its own; those of its tenant and of the settings count beside."""
    revision: str | None = None
    """Of its model, where it asked for one."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def new_job_id() -> str:
    """A fresh job id."""
    return f"job_{uuid.uuid4().hex}"


def default_custom_id(index: int) -> str:
    """The id of an input that came without one; indexes count from 0."""
    return f"row-{index + 1:06d}"


def check_custom_id(custom_id: str) -> None:
    """Raise ``InvalidCustomIdError`` for an id that could not be part of a file name."""
    if not CUSTOM_ID.fullmatch(custom_id):
        raise InvalidCustomIdError(
            f"custom_id {custom_id[:80]!r} can't be used: give 1 to 64 of A-Z a-z 0-9 . _ - "
            "and don't start with a dot."
        )

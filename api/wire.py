"""Records as the JSON that goes out."""

from __future__ import annotations

from collections import Counter
from typing import Final, cast

from api.shapes import (
    ConcatenationBody,
    DataT,
    EnrolmentBody,
    ErrorBody,
    ItemBody,
    JobBody,
    ListBody,
    ModelBody,
    OptionBody,
    RequestCounts,
    StatusReason,
    VoiceBody,
)
from voicemill.enrolment import EnrolledVoice
from voicemill.health import Snapshot
from voicemill.jobs import Concatenation, Item, ItemError, ItemStatus, Job, JobStatus, is_terminal
from voicemill.options import Option
from voicemill.rollouts import engine_of
from voicemill.tenants import SHARED_TENANT
from voicemill.voices import Capabilities, Voice

LONGEST_RETRY_AFTER_SECONDS: Final = 120
STUCK_RETRY_AFTER_SECONDS: Final = 30


def page(data: list[DataT], ids: list[str], *, has_more: bool = False) -> ListBody[DataT]:
    """A page of a list; ``ids`` name its members."""
    return {
        "object": "list",
        "data": data,
        "has_more": has_more,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def job_body(job: Job, fleet: Snapshot | None) -> JobBody:
    """A job; ``fleet`` says who there is to work on it, where that is known."""
    url = f"/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "object": "speech.job",
        "status": job.status,
        "status_reason": status_reason(job, fleet),
        "class": job.standing.job_class,
        "priority": job.standing.priority,
        "fairness_key": job.standing.fairness_key or None,
        "max_output_seconds": job.limits.max_output_seconds,
        "max_item_seconds": job.limits.max_item_seconds,
        "max_memory_mb": job.limits.max_memory_mb,
        "revision": job.revision,
        "run": job.run,
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
        "expires_at": whole(job.expires_at),
        "output_expires_at": whole(job.output_expires_at),
        "data_removed": job.data_removed,
        "concatenation": concatenation_body(job.id, job.concatenation),
        "usage": {
            "input_characters": job.input_characters,
            "audio_seconds": round(job.audio_seconds, 3),
            "device_seconds": round(job.device_seconds, 3),
        },
        "metadata": dict(job.metadata),
        "urls": {
            "get": url,
            "cancel": f"{url}/cancel",
            "retry": f"{url}/retry",
            "items": f"{url}/items",
            "audio": audio_of_job_url(job.id) if job.concatenation else None,
        },
    }


def concatenation_body(job_id: str, asked: Concatenation | None) -> ConcatenationBody | None:
    """The one file of a job, where that asked for it."""
    if asked is None:
        return None
    audio = asked.audio
    return {
        "silence_ms": asked.silence_ms,
        "audio_path": audio.audio_path if audio else None,
        "audio_url": audio_of_job_url(job_id) if audio else None,
        "sha256": audio.sha256 if audio else None,
        "size_bytes": audio.size_bytes if audio else None,
        "duration_seconds": audio.duration_seconds if audio else None,
        "sample_rate": audio.sample_rate if audio else None,
        "response_format": audio.response_format if audio else None,
        "items_left_out": audio.items_left_out if audio else None,
        "error": error_body(asked.error) if asked.error else None,
    }


def audio_of_job_url(job_id: str) -> str:
    """Where the one file of a job is fetched, once it is there."""
    return f"/v1/jobs/{job_id}/audio"


def status_reason(job: Job, fleet: Snapshot | None) -> StatusReason | None:
    """Why a job does not move, where that is known."""
    if job.status is JobStatus.FINALIZING:
        without_clerk: StatusReason | None = "no_clerk" if fleet and not fleet.clerks else None
        return cast(StatusReason | None, job.trouble) or without_clerk
    if fleet is None or job.status not in {JobStatus.QUEUED, JobStatus.IN_PROGRESS}:
        return None
    if fleet.paused:
        return "queue_paused"
    for engine in job.engines:
        if not fleet.slots.get(engine, 0):
            return trouble_of(fleet, engine) or "no_workers"
    return None


def trouble_of(fleet: Snapshot, lane: str) -> StatusReason | None:
    """What keeps the children that serve a lane from taking work, where they say so."""
    troubles = (
        child.get("trouble") for child in fleet.children if child.get("engine") == engine_of(lane)
    )
    return next((cast(StatusReason, trouble) for trouble in troubles if trouble), None)


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
    """Why there is no audio."""
    return {"code": error.code, "message": error.message, "retryable": error.retryable}


def audio_url(item: Item) -> str:
    """Where the audio of an item is fetched."""
    return f"/v1/jobs/{item.job_id}/items/{item.input.custom_id}/audio"


def model_body(engine: Capabilities, fleet: Snapshot) -> ModelBody:
    """An engine, and the children that it has now."""
    slots = fleet.slots.get(engine.engine, 0)
    mine = [child for child in fleet.children if child.get("engine") == engine.engine]
    names = Counter(child["revision"] for child in mine if child.get("revision"))
    return {
        "id": engine.engine,
        "object": "model",
        "revision": engine.model_revision,
        "voices": [voice.name for voice in engine.voices],
        "voice_mixes": engine.voice_mixes,
        "languages": list(engine.languages),
        "sample_rate": engine.sample_rate,
        "min_speed": engine.min_speed,
        "max_speed": engine.max_speed,
        "seed": engine.seed,
        "instructions": engine.instructions,
        "cloning": engine.cloning,
        "streaming": engine.streaming,
        "word_times": engine.word_times,
        "options": [option_body(option) for option in engine.options],
        "max_batch": engine.max_batch,
        "best_batch": engine.batch_size,
        "best_segment_characters": engine.best_segment_characters,
        "max_segment_characters": engine.max_segment_characters,
        "memory_bytes": engine.memory_bytes,
        "deterministic": engine.deterministic,
        "engine_licence": engine.engine_licence,
        "model_licence": engine.model_licence,
        "live": slots > 0,
        "slots": slots,
        "revisions": dict(sorted(names.items())),
    }


def option_body(option: Option) -> OptionBody:
    """An option of an engine."""
    return {
        "name": option.name,
        "kind": option.kind,
        "description": option.description,
        "choices": list(option.choices),
        "minimum": option.minimum,
        "maximum": option.maximum,
    }


def voice_body(engine: Capabilities, voice: Voice) -> VoiceBody:
    """A voice of an engine."""
    return {
        "id": voice.name,
        "object": "voice",
        "model": engine.engine,
        "languages": list(voice.languages),
        "description": voice.description,
        "licence": voice.licence,
        "enrolled": None,
    }


def enrolled_body(voice: EnrolledVoice, tenant: str) -> VoiceBody:
    """An enrolled voice, for a tenant that may speak with it."""
    return {
        "id": voice.name,
        "object": "voice",
        "model": None,
        "languages": [voice.language],
        "description": voice.description,
        "licence": None,
        "enrolled": enrolment_body(voice, tenant),
    }


def enrolment_body(voice: EnrolledVoice, tenant: str) -> EnrolmentBody:
    """What there is of an enrolled voice besides."""
    clip = voice.clip
    return {
        "status": voice.status,
        "shared": voice.tenant == SHARED_TENANT,
        "unlisted": voice.is_unlisted,
        "prompt_text": voice.prompt_text,
        "consent": voice.consent if voice.tenant == tenant else None,
        "created_at": int(voice.created_at),
        "revision": voice.revision or None,
        "sha256": clip.sha256 if clip else None,
        "duration_seconds": clip.duration_seconds if clip else None,
        "sample_rate": clip.sample_rate if clip else None,
        "sample_url": f"/v1/voices/{voice.name}/sample",
        "transcript_error_rate": clip.transcript_error_rate if clip else None,
        "advice": voice.advice,
        "error": error_body(voice.error) if voice.error else None,
    }

"""Runs of items: as they fill up, how they ended, and which may be spoken together."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, ParamSpec

from voicemill.errors import SynthesisError, VoicemillError
from voicemill.jobs import Item, ItemAudio, ItemError, ItemInput
from worker.engines.base import Samples, Segment, SynthesisOptions
from worker.engines.torch_memory import fault_of
from worker.sessions import Session

logger = logging.getLogger(__name__)

P = ParamSpec("P")


@dataclass(slots=True)
class Attempt:
    """One run of an item, as it fills up."""

    item: ItemInput
    number: int
    """From 1, over all runs of its job; files are named by it."""
    session: Session
    """Destroyed once the engine has done its part."""
    shrink: int = 1
    """How many times shorter than usual its segments are, after it ran out of memory."""
    shared: ItemAudio | None = None
    """Audio of an identical item, under this one's own name; nothing is spoken then."""
    pause: float | None = None
    """Seconds to wait for that audio, where it is on its way; nothing is spoken then either."""
    failure: ItemError | None = None
    """Why it fails for good, though nothing is spoken: others that sound the same have."""
    segments: list[Segment] = field(default_factory=list)
    pieces: list[Samples] = field(default_factory=list)
    seconds: float = 0.0
    """Wall time the engine took."""
    error: VoicemillError | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; Celery's result is a list of these."""

    job_id: str
    custom_id: str
    status: str
    audio_path: str | None = None
    duration_seconds: float | None = None
    sample_rate: int | None = None
    sha256: str | None = None
    error: dict[str, Any] | None = None

    @classmethod
    def of(cls, item: Item) -> Outcome:
        """What the record of an item says."""
        audio, error = item.audio, item.error
        return cls(
            item.job_id,
            item.input.custom_id,
            item.status,
            audio_path=audio.audio_path if audio else None,
            duration_seconds=audio.duration_seconds if audio else None,
            sample_rate=audio.sample_rate if audio else None,
            sha256=audio.sha256 if audio else None,
            error=asdict(error) if error else None,
        )

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the result backend."""
        return asdict(self)


def failure_of(
    step: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> VoicemillError | None:
    """The error a step ended with, by name; nothing when it went well.

    Engines and encoders are anybody's code: whatever they raise fails the item in hand, with a
    name, and the batch goes on. What is meant to end the process does.
    """
    try:
        step(*args, **kwargs)
    except VoicemillError as error:
        return error
    except (Exception, CancelledError) as error:
        logger.exception("an item failed")
        return fault_of(error) or SynthesisError(
            f"{type(error).__name__} was raised while the item was spoken."
        )
    return None


def options_of(item: ItemInput) -> SynthesisOptions:
    """How an item is to be spoken."""
    return SynthesisOptions(item.language, item.speed, item.instructions, item.options)


def sounding(item: ItemInput) -> tuple[str, str | None, SynthesisOptions]:
    """What items that one call speaks have alike."""
    return item.voice, item.voice_revision, options_of(item)


def groups(items: Sequence[ItemInput], most: int) -> Iterator[list[ItemInput]]:
    """Neighbours that one call may speak together: same voice and options, ``most`` at a time.

    What is to sound as an earlier item does comes last, one by one: it may be there by then.
    """
    first = [item for item in items if item.same_as is None]
    for _, alike in groupby(first, key=sounding):
        together = list(alike)
        for start in range(0, len(together), max(1, most)):
            yield together[start : start + max(1, most)]
    yield from ([item] for item in items if item.same_as is not None)

"""One item could not become audio."""

from __future__ import annotations

from typing import ClassVar

from voicemill.errors.base import VoicemillError


class SynthesisError(VoicemillError):
    """An item could not become audio on this attempt."""

    code = "synthesis_failed"
    title = "The engine failed"
    retryable = True
    redraws: ClassVar[bool] = True
    """Another attempt is spoken with other seeds, since chance may be to blame."""


class OutOfMemoryError(SynthesisError):
    """The device or the host had no memory left for the segment."""

    code = "out_of_memory"
    title = "Out of memory"
    redraws = False


class EnginePoisonedError(SynthesisError):
    """The engine's process can't be used any more; its child leaves."""

    code = "engine_poisoned"
    title = "The engine's process is broken"


class EngineLostError(EnginePoisonedError):
    """The engine's own process died, or said what can't be understood; its child leaves."""

    code = "engine_lost"
    title = "The engine's process is gone"
    redraws = False


class UnsupportedCharactersError(SynthesisError):
    """The voice can't say any of the text."""

    code = "unsupported_characters"
    title = "The voice can't say this text"
    retryable = False


class OutputTooLongError(SynthesisError):
    """The audio is longer than the item may have, by a setting, its tenant or its job."""

    code = "output_too_long"
    title = "The audio is too long"
    retryable = False


class ItemTimeoutError(SynthesisError):
    """The engine took longer than it may for one item, by a setting, its tenant or its job."""

    code = "item_timeout"
    title = "The item took too long"
    retryable = False


class MemoryQuotaExceededError(SynthesisError):
    """A segment takes more memory than its item may have, by a setting, its tenant or its job."""

    code = "memory_quota_exceeded"
    title = "The item needs too much memory"
    retryable = False
    redraws = False


class InvalidAudioError(SynthesisError):
    """The engine gave samples that are not finite, or none at all."""

    code = "invalid_audio"
    title = "The engine gave no usable audio"


class SilentAudioError(SynthesisError):
    """The engine gave silence for text that should be heard."""

    code = "silent_audio"
    title = "The engine gave silence"


class OutputError(SynthesisError):
    """The audio file could not be written."""

    code = "output_failed"
    title = "The audio could not be written"
    redraws = False


class WorkerLostError(SynthesisError):
    """The process died with the item in hand, on every attempt it had."""

    code = "worker_lost"
    title = "The worker died"
    retryable = True
    redraws = False


class SynthesisTimeoutError(SynthesisError):
    """The batch took so much longer than estimated that its process was killed as hung."""

    code = "synthesis_timeout"
    title = "The synthesis hung"
    retryable = True
    redraws = False

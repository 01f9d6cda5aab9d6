"""Every failure Voicemill can name.

    VoicemillError
    ├── SettingsError            the start stops and names the variable
    ├── RequestError             what a client sent, or asked for
    │   └── InputError           one field of it, with a JSON pointer
    ├── StoreError               Redis is away, or refuses
    ├── SynthesisError           one item could not become audio
    └── ConcatenationError       the audio of a job's items could not become one file

Each leaf carries a stable ``code``, the ``http_status`` the API answers with
(RFC 9457) and whether the same call may succeed later (``retryable``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar


class VoicemillError(Exception):
    """Root of the tree; ``message`` is one sentence for a person."""

    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something failed on our side"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SettingsError(VoicemillError):
    """A setting has a value that can't be used."""

    code = "settings_invalid"
    title = "A setting can't be used"


# --- what a client sent -----------------------------------------------------


class RequestError(VoicemillError):
    """The request can't be carried out as sent."""

    code = "bad_request"
    title = "The request can't be read"
    http_status = 400


class UnauthorizedError(RequestError):
    """No api key, or one that is not known."""

    code = "unauthorized"
    title = "An api key is needed"
    http_status = 401


class JobNotFoundError(RequestError):
    """No job with this id."""

    code = "job_not_found"
    title = "No such job"
    http_status = 404


class WorkerNotFoundError(RequestError):
    """No worker or child of this id was heard of lately."""

    code = "worker_not_found"
    title = "Worker not found"
    http_status = 404


class ItemNotFoundError(RequestError):
    """The job has no item with this custom_id."""

    code = "item_not_found"
    title = "No such item"
    http_status = 404


class RouteNotFoundError(RequestError):
    """No route at this path."""

    code = "not_found"
    title = "Nothing is served here"
    http_status = 404


class MethodNotAllowedError(RequestError):
    """The path exists, the method does not."""

    code = "method_not_allowed"
    title = "The path does not take this method"
    http_status = 405


class JobActiveError(RequestError):
    """The job has not ended, and must have for this."""

    code = "job_active"
    title = "The job has not ended"
    http_status = 409
    retryable = True


class NotReadyError(RequestError):
    """The item has no audio yet."""

    code = "not_ready"
    title = "The audio is not ready yet"
    http_status = 409
    retryable = True


class NoAudioError(RequestError):
    """The item ended without audio; its record says why."""

    code = "no_audio"
    title = "The item ended without audio"
    http_status = 409


class AudioGoneError(RequestError):
    """The item succeeded and its file is no longer there."""

    code = "audio_gone"
    title = "The audio was removed"
    http_status = 410


class DataRemovedError(RequestError):
    """The texts of the job were kept for as long as they should be, and are gone."""

    code = "data_removed"
    title = "The job's audio and texts were removed"
    http_status = 410


class PayloadTooLargeError(RequestError):
    """More bytes or more inputs than one request may carry."""

    code = "payload_too_large"
    title = "The request is too large"
    http_status = 413


class UnsupportedMediaTypeError(RequestError):
    """The body is not application/json."""

    code = "unsupported_media_type"
    title = "The body must be application/json"
    http_status = 415


class RangeNotSatisfiableError(RequestError):
    """The Range header lies outside the audio."""

    code = "range_not_satisfiable"
    title = "The range lies outside the audio"
    http_status = 416


class QuotaExceededError(RequestError):
    """The tenant would have more waiting than it may; some of it has to be spoken first."""

    code = "quota_exceeded"
    title = "The tenant has too much waiting"
    http_status = 429
    retryable = True


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with the input."""

    code: str
    detail: str
    pointer: str = ""
    """JSON pointer (RFC 6901) into the body; empty for the whole of it."""


class InvalidInputError(RequestError):
    """The body was read and can't be accepted; ``faults`` say where and why."""

    code = "invalid_input"
    title = "The input can't be accepted"
    http_status = 422

    def __init__(self, faults: list[Fault]) -> None:
        count = len(faults)
        super().__init__(
            faults[0].detail if count == 1 else f"{count} things are wrong with the input."
        )
        self.faults = faults


class InputError(VoicemillError):
    """A field of one input; in a job sent inline it becomes a ``Fault``."""

    code = "invalid_value"
    title = "A value can't be used"
    http_status = 422

    def at(self, pointer: str) -> Fault:
        """This error as a fault at a place in the body."""
        return Fault(self.code, self.message, pointer)


class MissingFieldError(InputError):
    """A field that is needed is absent."""

    code = "missing_field"
    title = "A field is missing"


class UnknownFieldError(InputError):
    """A field nobody reads."""

    code = "unknown_field"
    title = "A field is not known"


class NoSpeakableTextError(InputError):
    """The text holds no letter and no digit."""

    code = "no_speakable_text"
    title = "There is nothing to speak"


class TextTooLongError(InputError):
    """More characters than one input may have."""

    code = "text_too_long"
    title = "The text is too long"


class InvalidTextError(InputError):
    """The text is not Unicode that can be written down (a lone surrogate)."""

    code = "invalid_text"
    title = "The text is not valid Unicode"


class InvalidCustomIdError(InputError):
    """A custom_id has characters other than letters, digits, ``.``, ``_`` and ``-``."""

    code = "invalid_custom_id"
    title = "The custom_id can't be used"


class DuplicateCustomIdError(InputError):
    """Two inputs of one job share a custom_id."""

    code = "duplicate_custom_id"
    title = "The custom_id is used twice"


class ModelNotFoundError(InputError):
    """No worker has ever offered this model."""

    code = "model_not_found"
    title = "The model is not known"


class VoiceNotFoundError(InputError):
    """The model has no such voice."""

    code = "voice_not_found"
    title = "The voice is not known"


class UnsupportedFeatureError(InputError):
    """The model can't do what was asked, and does not pretend to."""

    code = "unsupported_feature"
    title = "The model can't do this"


# --- the store --------------------------------------------------------------


class StoreUnavailableError(VoicemillError):
    """Redis can't be reached, or does not answer in time."""

    code = "store_unavailable"
    title = "The queue can't be reached"
    http_status = 503
    retryable = True


class StoreRefusedError(VoicemillError):
    """Redis answers, and refuses to write (out of memory, read-only)."""

    code = "store_refused"
    title = "The queue takes no writes"
    http_status = 503
    retryable = True


class QueueFullError(VoicemillError):
    """All that waits, of all tenants, takes as much memory as it may."""

    code = "queue_full"
    title = "The queue is full"
    http_status = 503
    retryable = True


# --- synthesis --------------------------------------------------------------


class SynthesisError(VoicemillError):
    """An item could not become audio on this attempt."""

    code = "synthesis_failed"
    title = "The engine failed"
    retryable = True


class OutOfMemoryError(SynthesisError):
    """The device or the host had no memory left for the segment."""

    code = "out_of_memory"
    title = "Out of memory"


class EnginePoisonedError(SynthesisError):
    """The engine's process can't be used any more; its child leaves."""

    code = "engine_poisoned"
    title = "The engine's process is broken"


class UnsupportedCharactersError(SynthesisError):
    """The voice can't say any of the text."""

    code = "unsupported_characters"
    title = "The voice can't say this text"
    retryable = False


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


class StorageError(SynthesisError):
    """The output folder takes no audio now, whatever the item; it costs no attempt."""

    code = "storage_failed"
    title = "The output folder takes no audio"


class DiskFullError(StorageError):
    """The disk, or a quota on it, has no room for the audio."""

    code = "disk_full"
    title = "The disk is full"


class AccessDeniedError(StorageError):
    """The worker may not write to the output folder."""

    code = "output_denied"
    title = "The output folder may not be written to"


class ReadOnlyError(StorageError):
    """The output folder is on a file system that is mounted read-only."""

    code = "output_read_only"
    title = "The output folder is read-only"


class MountMissingError(StorageError):
    """The output folder is gone, or what is there now is another (an empty mount point)."""

    code = "output_missing"
    title = "The output folder is missing"


class WorkerLostError(SynthesisError):
    """The process died with the item in hand, on every attempt it had."""

    code = "worker_lost"
    title = "The worker died"
    retryable = True


class SynthesisTimeoutError(SynthesisError):
    """The batch took so much longer than estimated that its process was killed as hung."""

    code = "synthesis_timeout"
    title = "The synthesis hung"
    retryable = True


# --- one file of a job ------------------------------------------------------


class ConcatenationError(VoicemillError):
    """The audio of a job's items could not become one file."""

    code = "concatenation_failed"
    title = "The items could not be joined"
    retryable = True


class MixedSampleRatesError(ConcatenationError):
    """The items' audio has different sample rates, as of two revisions of a model."""

    code = "mixed_sample_rates"
    title = "The items have different sample rates"
    retryable = False


def leaves(root: type[VoicemillError] = VoicemillError) -> Iterator[type[VoicemillError]]:
    """Every class of the tree, the root first; each has a code of its own."""
    yield root
    for child in root.__subclasses__():
        yield from leaves(child)

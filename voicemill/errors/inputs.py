"""What is wrong with the fields that a client sent."""

from __future__ import annotations

from dataclasses import dataclass

from voicemill.errors.base import VoicemillError
from voicemill.errors.requests import RequestError


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


class RevisionNotFoundError(InputError):
    """The model has no revision of this name."""

    code = "revision_not_found"
    title = "The model has no such revision"


class VoiceNotFoundError(InputError):
    """The model has no such voice, and none was enrolled by this name or it was deleted."""

    code = "voice_not_found"
    title = "The voice is not known"


class UnsupportedFeatureError(InputError):
    """The model can't do what was asked, and does not pretend to."""

    code = "unsupported_feature"
    title = "The model can't do this"

"""What is wrong with a clip that a voice is to be cloned from, and with what is asked of voices."""

from __future__ import annotations

from voicemill.errors.inputs import InputError
from voicemill.errors.requests import RequestError


class NoSuchVoiceError(RequestError):
    """No voice with this id that is yours to look at or to change."""

    code = "no_such_voice"
    title = "No such voice"
    http_status = 404


class VoiceExistsError(RequestError):
    """A voice has this name; delete it first, or take another name."""

    code = "voice_exists"
    title = "The name of the voice is taken"
    http_status = 409


class TooManyVoicesError(RequestError):
    """The tenant has as many voices as it may; delete one it does not need."""

    code = "too_many_voices"
    title = "The tenant has too many voices"
    http_status = 409


class NoSampleError(RequestError):
    """An engine's own voice has no clip that could be sent."""

    code = "no_sample"
    title = "The voice has no sample"
    http_status = 404


class InvalidVoiceNameError(InputError):
    """A name of a voice has other characters than letters, digits, ``.``, ``_`` and ``-``."""

    code = "invalid_voice_name"
    title = "The name of the voice can't be used"


class PromptAudioInvalidError(InputError):
    """The clip that a voice is to be cloned from can't be used."""

    code = "prompt_audio_invalid"
    title = "The prompt audio can't be used"


class PromptUndecodableError(PromptAudioInvalidError):
    """The clip is no audio file that can be read."""

    code = "prompt_undecodable"
    title = "The prompt is no audio that can be read"


class PromptLengthError(PromptAudioInvalidError):
    """The clip is too short or too long."""

    code = "prompt_length"
    title = "The prompt is too short or too long"


class PromptSampleRateError(PromptAudioInvalidError):
    """The clip has too low a sample rate."""

    code = "prompt_sample_rate"
    title = "The prompt has too low a sample rate"


class PromptSilentError(PromptAudioInvalidError):
    """The clip is silent, or nearly so."""

    code = "prompt_silent"
    title = "The prompt is silent"


class PromptClippedError(PromptAudioInvalidError):
    """The clip was recorded too loud: its peaks are cut off."""

    code = "prompt_clipped"
    title = "The prompt is clipped"


class PromptNoisyError(PromptAudioInvalidError):
    """The speech in the clip hardly stands out from its noise."""

    code = "prompt_noisy"
    title = "The prompt is too noisy"


class PromptTextMismatchError(PromptAudioInvalidError):
    """A recogniser hears something else in the clip than the transcript says."""

    code = "prompt_text_mismatch"
    title = "The transcript is not what is said in the prompt"


class PromptTextImplausibleError(PromptAudioInvalidError):
    """The transcript is far too long or too short for what is spoken in the clip."""

    code = "prompt_text_implausible"
    title = "The transcript does not fit the prompt"

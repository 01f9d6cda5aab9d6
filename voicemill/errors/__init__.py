"""Every failure Voicemill can name.

    VoicemillError
    ├── SettingsError            the start stops and names the variable
    ├── RequestError             what a client asked for
    ├── InputError               one field of what it sent, with a JSON pointer
    │   └── PromptAudioInvalidError   the clip a voice is to be cloned from
    ├── StoreUnavailableError    Redis is away; StoreRefusedError: it takes no writes
    ├── SynthesisError           one item could not become audio
    │   └── StorageError         the output folder takes no audio, whatever the item
    └── ConcatenationError       the audio of a job's items could not become one file

Each leaf carries a stable ``code``, the ``http_status`` the API answers with
(RFC 9457) and whether the same call may succeed later (``retryable``).
"""

from voicemill.errors.base import (
    SettingsError,
    VoicemillError,
    leaves,
)
from voicemill.errors.concatenation import (
    ConcatenationCancelledError,
    ConcatenationError,
    MixedSampleRatesError,
)
from voicemill.errors.inputs import (
    DuplicateCustomIdError,
    Fault,
    InputError,
    InvalidCustomIdError,
    InvalidInputError,
    InvalidTextError,
    MissingFieldError,
    ModelNotFoundError,
    NoSpeakableTextError,
    TextTooLongError,
    UnknownFieldError,
    UnsupportedFeatureError,
    VoiceNotFoundError,
)
from voicemill.errors.outputs import (
    AccessDeniedError,
    DiskFullError,
    MountMissingError,
    ReadOnlyError,
    StorageError,
)
from voicemill.errors.requests import (
    AudioGoneError,
    AudioUnreadableError,
    ChildLoadingError,
    DataRemovedError,
    ItemNotFoundError,
    JobActiveError,
    JobNotFoundError,
    MethodNotAllowedError,
    NoAudioError,
    NotReadyError,
    NoWorkersError,
    PayloadTooLargeError,
    QuotaExceededError,
    RangeNotSatisfiableError,
    RequestError,
    RouteNotFoundError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
    WorkerNotFoundError,
)
from voicemill.errors.store import (
    QueueFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from voicemill.errors.synthesis import (
    EngineLostError,
    EnginePoisonedError,
    InvalidAudioError,
    ItemTimeoutError,
    MemoryQuotaExceededError,
    OutOfMemoryError,
    OutputError,
    OutputTooLongError,
    SilentAudioError,
    SynthesisError,
    SynthesisTimeoutError,
    UnsupportedCharactersError,
    WorkerLostError,
)
from voicemill.errors.voices import (
    InvalidVoiceNameError,
    NoSampleError,
    NoSuchVoiceError,
    PromptAudioInvalidError,
    PromptClippedError,
    PromptLengthError,
    PromptNoisyError,
    PromptSampleRateError,
    PromptSilentError,
    PromptTextImplausibleError,
    PromptUndecodableError,
    TooManyVoicesError,
    VoiceExistsError,
)

__all__ = [
    "AccessDeniedError",
    "AudioGoneError",
    "AudioUnreadableError",
    "ChildLoadingError",
    "ConcatenationCancelledError",
    "ConcatenationError",
    "DataRemovedError",
    "DiskFullError",
    "DuplicateCustomIdError",
    "EngineLostError",
    "EnginePoisonedError",
    "Fault",
    "InputError",
    "InvalidAudioError",
    "InvalidCustomIdError",
    "InvalidInputError",
    "InvalidTextError",
    "InvalidVoiceNameError",
    "ItemNotFoundError",
    "ItemTimeoutError",
    "JobActiveError",
    "JobNotFoundError",
    "MemoryQuotaExceededError",
    "MethodNotAllowedError",
    "MissingFieldError",
    "MixedSampleRatesError",
    "ModelNotFoundError",
    "MountMissingError",
    "NoAudioError",
    "NoSampleError",
    "NoSpeakableTextError",
    "NoSuchVoiceError",
    "NoWorkersError",
    "NotReadyError",
    "OutOfMemoryError",
    "OutputError",
    "OutputTooLongError",
    "PayloadTooLargeError",
    "PromptAudioInvalidError",
    "PromptClippedError",
    "PromptLengthError",
    "PromptNoisyError",
    "PromptSampleRateError",
    "PromptSilentError",
    "PromptTextImplausibleError",
    "PromptUndecodableError",
    "QueueFullError",
    "QuotaExceededError",
    "RangeNotSatisfiableError",
    "ReadOnlyError",
    "RequestError",
    "RouteNotFoundError",
    "SettingsError",
    "SilentAudioError",
    "StorageError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "SynthesisError",
    "SynthesisTimeoutError",
    "TextTooLongError",
    "TooManyVoicesError",
    "UnauthorizedError",
    "UnknownFieldError",
    "UnsupportedCharactersError",
    "UnsupportedFeatureError",
    "UnsupportedMediaTypeError",
    "VoiceExistsError",
    "VoiceNotFoundError",
    "VoicemillError",
    "WorkerLostError",
    "WorkerNotFoundError",
    "leaves",
]

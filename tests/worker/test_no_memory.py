"""Whatever is raised because memory ran out while an engine was loaded has one name."""

from __future__ import annotations

import errno

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from voicemill.errors import EnginePoisonedError, OutOfMemoryError, SettingsError
from worker.engines.no_memory import named_want


class TorchOutOfMemoryError(RuntimeError):
    """As torch has one, which is found by its name."""


TorchOutOfMemoryError.__name__ = "OutOfMemoryError"


def told_as(error: Exception, cause: Exception) -> Exception:
    """What an engine raises in place of what its library raised."""
    error.__cause__ = cause
    return error


WANTS = (
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("CUDA error: out of memory"),
    TorchOutOfMemoryError("Tried to allocate 20.00 MiB."),
    RuntimeException("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : std::bad_alloc"),
)


@pytest.mark.parametrize("error", WANTS, ids=lambda error: type(error).__name__)
def test_want_of_memory_is_named_however_it_is_told(error: Exception) -> None:
    for raised in (error, told_as(SettingsError("model_path can't be used"), error)):
        with pytest.raises(OutOfMemoryError, match="No memory was left to load"), named_want():
            raise raised


def test_an_engine_s_own_words_for_it_are_kept() -> None:
    own = OutOfMemoryError("The device had no memory left for a context.")
    with pytest.raises(OutOfMemoryError) as caught, named_want():
        raise own
    assert caught.value is own


@pytest.mark.parametrize(
    "error",
    [
        SettingsError("VOICEMILL_ENGINE_OPTIONS: window='out of memory' can't be used"),
        told_as(SettingsError("a folder that holds a model"), FileNotFoundError(2, "model")),
        EnginePoisonedError("CUDA failed"),
        RuntimeError("CUDA error: device-side assert triggered"),
        Fail("[ONNXRuntimeError] : 1 : FAIL : Load model failed"),
        OSError(errno.ENOENT, "No such file or directory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_faults_stay_as_they_are(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, named_want():
        raise error
    assert caught.value is error

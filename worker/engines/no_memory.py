"""Whether an engine could not be loaded because memory ran out, whoever says it in which words."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from voicemill.errors import OutOfMemoryError
from worker.engines.torch_memory import fault_of

ONNX_SIGNS = ("bad_alloc", "bad allocation", "failed to allocate", "out of memory")
"""What ONNX Runtime says, in small letters."""


@contextmanager
def named_want() -> Iterator[None]:
    """Raises ``OutOfMemoryError`` for whatever was raised because memory ran out."""
    try:
        yield
    except OutOfMemoryError:
        raise
    # Each library has errors of its own for it, and an engine may have put them in other words.
    except Exception as error:
        if any(map(is_want, causes(error))):
            raise OutOfMemoryError("No memory was left to load the model.") from error
        raise


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, and so on."""
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__


def is_want(error: BaseException) -> bool:
    """Whether this error itself tells of memory that ran out."""
    if isinstance(error, OutOfMemoryError) or isinstance(fault_of(error), OutOfMemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return type(error).__module__.startswith("onnxruntime.") and says_want(str(error))


def says_want(message: str) -> bool:
    """Whether ONNX Runtime means want of memory by this."""
    return any(sign in message.lower() for sign in ONNX_SIGNS)

"""What torch says of CUDA, in our words: its memory, and what its errors mean.

Needs no torch: the figures come as a mapping, the errors as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from voicemill.errors import EnginePoisonedError, OutOfMemoryError, SynthesisError
from worker.cached_memory import CachedMemory

OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)
CUDA_FAILED = ("CUDA error", "CUDA driver error", "CUBLAS_STATUS", "CUDNN_STATUS")
OF_THIS_CALL_ALONE = (
    "invalid argument",
    "invalid configuration argument",
    "invalid device ordinal",
    "no kernel image is available",
    "operation not supported",
    "CUBLAS_STATUS_INVALID_VALUE",
    "CUBLAS_STATUS_NOT_SUPPORTED",
    "CUDNN_STATUS_BAD_PARAM",
    "CUDNN_STATUS_NOT_SUPPORTED",
)
"""CUDA refused the call, and its context is sound. All that is not here is held to outlive it."""
LARGEST_CONTEXT = 2**30
"""Bytes; a context takes some hundred MiB. A larger difference is somebody else's doing."""
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
SIZE = r"([0-9.]+) (bytes|KiB|MiB|GiB)"
ASKED = re.compile(rf"Tried to allocate {SIZE}")
FREE = re.compile(rf"of which {SIZE} is free|{SIZE} is reserved by PyTorch but unallocated")


def cached_memory(
    stats: Mapping[str, int], *, failed_while_free: bool = False, is_emptied: bool = True
) -> CachedMemory | None:
    """What ``torch.cuda.memory_stats()`` says; nothing where torch holds nothing."""
    reserved = stats.get("reserved_bytes.all.current", 0)
    if not reserved and not failed_while_free:
        return None
    return CachedMemory(
        reserved=reserved,
        allocated=stats.get("allocated_bytes.all.current", 0),
        inactive_split=stats.get("inactive_split_bytes.all.current", 0),
        failed_while_free=failed_while_free,
        is_emptied=is_emptied,
    )


def context_bytes(used_before: int, used_after: int, reserved: int) -> int:
    """What a context took of a device, by all that was used of it; 0 where that can't be told."""
    taken = used_after - used_before - reserved
    return taken if 0 < taken <= LARGEST_CONTEXT else 0


def failed_while_free(message: str) -> bool:
    """Whether torch's message says that as much was free as it asked for, though in pieces."""
    asked = ASKED.search(message)
    free = [size(*(part for part in found if part)) for found in FREE.findall(message)]
    return asked is not None and bool(free) and size(*asked.groups()) <= sum(free)


def size(number: str, unit: str) -> float:
    """Bytes of a size as torch writes it."""
    return float(number) * UNITS[unit]


def fault_of(error: BaseException) -> SynthesisError | None:
    """Torch's error by our name; nothing where it is none of memory or CUDA."""
    if isinstance(error, MemoryError):
        return OutOfMemoryError("The host had no memory left for the segments.")
    if not isinstance(error, RuntimeError):
        return None
    kinds = {one.__name__ for one in type(error).__mro__}
    message = str(error)
    if "OutOfMemoryError" in kinds or any(sign in message for sign in OUT_OF_MEMORY):
        return OutOfMemoryError("No memory was left for the segments.")
    if any(sign in message for sign in OF_THIS_CALL_ALONE):
        return None
    if "AcceleratorError" in kinds or any(sign in message for sign in CUDA_FAILED):
        return EnginePoisonedError("CUDA failed; the process has to be replaced.")
    return None


@contextmanager
def named_faults() -> Iterator[None]:
    """Torch's errors by our names.

    ``OutOfMemoryError`` leaves the process sound; ``EnginePoisonedError`` stands for what outlives
    the call, in the process's CUDA context.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        fault = fault_of(error)
        if fault is None:
            raise
        raise fault from error

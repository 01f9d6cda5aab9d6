"""What torch says of CUDA, read without CUDA and without torch."""

from __future__ import annotations

import pytest

from voicemill.errors import EnginePoisonedError, OutOfMemoryError, SynthesisError
from worker.cached_memory import CachedMemory
from worker.engines.torch_memory import (
    cached_memory,
    context_bytes,
    failed_while_free,
    fault_of,
    named_faults,
)

MIB = 2**20
OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 79.15 GiB of "
    "which {free} is free. Including non-PyTorch memory, this process has 70.00 GiB memory in use. "
    "Of the allocated memory 60.00 GiB is allocated by PyTorch, and {unallocated} is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


TorchOutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
TorchAcceleratorError = type("AcceleratorError", (RuntimeError,), {})
"""Torch's own names, without torch."""


def test_the_statistics_of_torch_become_what_the_policy_asks_for() -> None:
    stats = {
        "reserved_bytes.all.current": 900 * MIB,
        "allocated_bytes.all.current": 500 * MIB,
        "inactive_split_bytes.all.current": 390 * MIB,
        "active_bytes.all.peak": 1,
    }
    assert cached_memory(stats) == CachedMemory(900 * MIB, 500 * MIB, 390 * MIB)
    failed = cached_memory(stats, failed_while_free=True)
    assert failed == CachedMemory(900 * MIB, 500 * MIB, 390 * MIB, failed_while_free=True)


@pytest.mark.parametrize(("is_emptied", "wasted"), [(True, 400), (False, 390)])
def test_what_a_cache_in_use_keeps_is_no_waste_but_for_the_gaps(
    is_emptied: bool, wasted: int
) -> None:
    assert CachedMemory(900, 500, 390, is_emptied=is_emptied).wasted == wasted


def test_where_torch_holds_nothing_there_is_nothing_to_waste() -> None:
    assert cached_memory({}) is None
    assert cached_memory({"reserved_bytes.all.current": 0}) is None
    assert cached_memory({}, failed_while_free=True) == CachedMemory(0, 0, failed_while_free=True)


@pytest.mark.parametrize(
    ("before", "after", "reserved", "told"),
    [
        (100 * MIB, 602 * MIB, 2 * MIB, 500 * MIB),
        (100 * MIB, 90 * MIB, 2 * MIB, 0),
        (100 * MIB, 5000 * MIB, 2 * MIB, 0),
    ],
    ids=["alone", "a neighbour left", "a neighbour loaded"],
)
def test_a_context_is_what_came_to_the_device_meanwhile(
    before: int, after: int, reserved: int, told: int
) -> None:
    assert context_bytes(before, after, reserved) == told


@pytest.mark.parametrize(
    ("asked", "free", "unallocated", "found"),
    [
        ("2.00 GiB", "1.50 GiB", "700.00 MiB", True),
        ("2.00 GiB", "1.50 GiB", "300.00 MiB", False),
        ("20.00 MiB", "512 bytes", "31.25 MiB", True),
        ("512 bytes", "0 bytes", "1.50 KiB", True),
    ],
)
def test_a_failure_though_as_much_was_free_is_told_from_one_for_want_of_memory(
    asked: str, free: str, unallocated: str, found: bool
) -> None:
    message = OUT_OF_MEMORY.format(asked=asked, free=free, unallocated=unallocated)
    assert failed_while_free(message) is found


@pytest.mark.parametrize("message", ["", "CUDA error: out of memory", "Tried to allocate 1 bytes"])
def test_a_message_without_figures_proves_no_fragmentation(message: str) -> None:
    assert not failed_while_free(message)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (TorchOutOfMemoryError(""), OutOfMemoryError),
        (RuntimeError(OUT_OF_MEMORY), OutOfMemoryError),
        (TorchAcceleratorError("CUDA error: out of memory"), OutOfMemoryError),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), OutOfMemoryError),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemoryError),
        (MemoryError(), OutOfMemoryError),
        (TorchAcceleratorError("CUDA error: device-side assert triggered"), EnginePoisonedError),
        (
            TorchAcceleratorError("CUDA error: an illegal memory access was encountered"),
            EnginePoisonedError,
        ),
        (RuntimeError("CUDA error: unspecified launch failure"), EnginePoisonedError),
        (RuntimeError("CUDA error: misaligned address"), EnginePoisonedError),
        (
            RuntimeError("CUDA error: uncorrectable ECC error encountered"),
            EnginePoisonedError,
        ),
        (RuntimeError("CUDA driver error: unknown error"), EnginePoisonedError),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), EnginePoisonedError),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling"), EnginePoisonedError),
        (TorchAcceleratorError("a text of another version"), EnginePoisonedError),
        (TorchAcceleratorError("CUDA error: invalid configuration argument"), None),
        (RuntimeError("CUDA error: no kernel image is available for execution"), None),
        (RuntimeError("shapes do not match"), None),
        (ValueError("CUDA error: device-side assert triggered"), None),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, BaseException) else "",
)
def test_an_error_of_torch_has_a_name_of_ours(
    error: BaseException, ours: type[SynthesisError] | None
) -> None:
    fault = fault_of(error)
    assert fault is None if ours is None else type(fault) is ours


def test_what_has_no_name_of_ours_is_raised_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="shapes"), named_faults():
        raise RuntimeError("shapes do not match")
    with pytest.raises(EnginePoisonedError) as caught, named_faults():
        raise RuntimeError("CUDA error: misaligned address")
    assert str(caught.value.__cause__) == "CUDA error: misaligned address"

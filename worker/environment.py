"""The environment as CUDA and the operating system mean it: what no setting of ours says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from voicemill.cores import threads_for, usable_cores
from voicemill.settings import Settings

PARENT = "VOICEMILL_PARENT_PID"
"""Tells a child whose it is, so that it notices when it has been orphaned before it could ask."""
CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
TORCH_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""What libraries of arithmetic read once, when they are loaded."""
NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Libraries under the engines tell their makers about each process, unless these say not to."""


def visible_devices() -> str | None:
    """What CUDA was told that this process may use; nothing when it was told nothing."""
    return os.environ.get(CUDA_DEVICES)


def threads_environment(settings: Settings) -> dict[str, str]:
    """How many threads a child's libraries of arithmetic may have, where nothing was said of one.

    Children of the stack's other engines use the cores too.
    """
    children = sum(settings.pools.values())
    threads = settings.threads_per_child or threads_for(usable_cores(), children)
    return {name: str(threads) for name in THREADS if not os.environ.get(name)}


def forbid_telemetry() -> None:
    """Have libraries that are loaded from now on call nobody, where nothing was said of it."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)


def parent_pid() -> int:
    """The worker that this child was started by."""
    return int(os.environ[PARENT])


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """What processes that are started meanwhile find in their environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

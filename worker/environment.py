"""The environment as CUDA, Python and the system mean it: what no setting of ours says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

PARENT = "VOICEMILL_PARENT_PID"
"""Tells a child whose it is, so that it notices when it has been orphaned before it could ask."""
SLOT = "VOICEMILL_SLOT"
"""Tells a child which slot of its worker it holds."""
CORES = "VOICEMILL_CORES"
"""Tells a child which cores it has to keep to, where it may not use all that its parent may."""
CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"
"""Tells libraries of arithmetic, and engines, how many threads they may have."""
TORCH_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
OF_THIS_PYTHON = ("PYTHON", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
OF_OURS = ("VOICEMILL_",)
NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Libraries under the engines tell their makers about each process, unless these say not to."""


def visible_devices() -> str | None:
    """What CUDA was told that this process may use; nothing when it was told nothing."""
    return os.environ.get(CUDA_DEVICES)


def unsaid(names: Iterable[str]) -> list[str]:
    """Those of these variables of which nothing was said."""
    return [name for name in names if not os.environ.get(name)]


def thread_share() -> int:
    """Threads of arithmetic that an engine may have; 1 where nothing that can be read was said.

    A list has one number for each depth of nested threads, as OpenMP reads it.
    """
    outermost = os.environ.get(THREADS, "").partition(",")[0].strip()
    return max(1, int(outermost)) if outermost.isdecimal() else 1


def forbid_telemetry() -> None:
    """Have libraries that are loaded from now on call nobody, where nothing was said of it."""
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)


def parent_pid() -> int:
    """The worker that this child was started by."""
    return int(os.environ[PARENT])


def slot() -> int:
    """The slot that this child holds."""
    return int(os.environ[SLOT])


def environment_of_another(python: Path) -> dict[str, str]:
    """What a process of another Python is to find: all but what is of this one, and our settings.

    The folder of that Python is the first on its ``PATH``, as in a virtual environment; that of
    this one is not there.
    """
    own = str(Path(sys.prefix, "bin"))
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*OF_THIS_PYTHON, *OF_OURS))
    }
    folders = [one for one in kept.get("PATH", os.defpath).split(os.pathsep) if one != own]
    return {**kept, "PATH": os.pathsep.join([str(python.parent), *folders])}


def keep_to_cores() -> None:
    """Have this process, and all that it starts, run on the cores that it was told of.

    Nothing changes where none of them may be used any more.
    """
    told = os.environ.get(CORES)
    if told:
        with suppress(OSError):
            os.sched_setaffinity(0, {int(core) for core in told.split(",")})


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

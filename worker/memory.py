"""Host memory of processes and of what they may use."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import psutil

from voicemill.cgroup import memory_groups


def resident_bytes(others: Iterable[int] = ()) -> int:
    """Resident sets of this process and of others that are its own, as far as they still run."""
    whole = int(psutil.Process().memory_info().rss)
    for pid in others:
        with suppress(psutil.NoSuchProcess):
            whole += int(psutil.Process(pid).memory_info().rss)
    return whole


def allowed_bytes() -> int:
    """What its control groups allow, or else the machine's memory."""
    machine = int(psutil.virtual_memory().total)
    return min([machine, *(group.limit for group in memory_groups())])


def available_bytes() -> int:
    """What one more process could take: of the groups' limits, and of the machine."""
    machine = int(psutil.virtual_memory().available)
    return min([machine, *(group.free for group in memory_groups())])

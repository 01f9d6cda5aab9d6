"""Host memory of this process and of what it may use."""

from __future__ import annotations

import psutil

from voicemill.cgroup import memory_groups


def resident_bytes() -> int:
    """Resident set of this process."""
    return int(psutil.Process().memory_info().rss)


def allowed_bytes() -> int:
    """What its control groups allow, or else the machine's memory."""
    machine = int(psutil.virtual_memory().total)
    return min([machine, *(group.limit for group in memory_groups())])


def available_bytes() -> int:
    """What one more process could take: of the groups' limits, and of the machine."""
    machine = int(psutil.virtual_memory().available)
    return min([machine, *(group.free for group in memory_groups())])

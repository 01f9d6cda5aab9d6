"""The cores that this process may use, and how many threads that leaves for each child."""

from __future__ import annotations

import math
import os

from voicemill.cgroup import core_quotas


def usable_cores() -> int:
    """Those of its cpuset, and no more than its control groups allow the time of; 1 or more."""
    return cores_within(len(affinity()), list(core_quotas()))


def affinity() -> set[int]:
    """Numbers of the cores that this process may run on."""
    # Only Linux says which.
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cores_within(cores: int, quotas: list[float]) -> int:
    """Whole cores under every quota: the part of one that is left over keeps a thread busy too."""
    return max(1, min([cores, *(math.ceil(quota) for quota in quotas)]))


def threads_for(cores: int, children: int) -> int:
    """Threads of arithmetic of each of so many children; 1 where there are more than cores."""
    return max(1, cores // children)

"""Host memory of this process and of what it may use."""

from __future__ import annotations

from pathlib import Path

import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def resident_bytes() -> int:
    """Resident set of this process."""
    return int(psutil.Process().memory_info().rss)


def allowed_bytes(limit_file: Path = CGROUP_LIMIT) -> int:
    """What the cgroup allows, or else the machine's memory."""
    machine = int(psutil.virtual_memory().total)
    try:
        text = limit_file.read_text("ascii").strip()
    except OSError:
        return machine
    return min(machine, int(text)) if text.isdecimal() else machine

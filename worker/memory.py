"""Host memory of this process and of what it may use."""

from __future__ import annotations

from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")


def resident_bytes() -> int:
    """Resident set of this process."""
    return int(psutil.Process().memory_info().rss)


def allowed_bytes(cgroup: Path = CGROUP) -> int:
    """What the cgroup allows, or else the machine's memory."""
    machine = int(psutil.virtual_memory().total)
    limit = number_in(cgroup / "memory.max")
    return machine if limit is None else min(machine, limit)


def available_bytes(cgroup: Path = CGROUP) -> int:
    """What one more process could take: of the cgroup's limit, and of the machine."""
    machine = int(psutil.virtual_memory().available)
    limit, used = number_in(cgroup / "memory.max"), number_in(cgroup / "memory.current")
    if limit is None or used is None:
        return machine
    return max(0, min(machine, limit - used + reclaimable_bytes(cgroup)))


def reclaimable_bytes(cgroup: Path) -> int:
    """File pages that the kernel counts as used and gives back when asked."""
    try:
        lines = (cgroup / "memory.stat").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)


def number_in(file: Path) -> int | None:
    """The number a control file holds; nothing where there is no file or no limit."""
    try:
        text = file.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None

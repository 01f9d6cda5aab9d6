"""What the control groups of this process say of memory, in version 2 and version 1.

A process is in one group of each hierarchy, and every group above it may set a limit too. Inside
a container the root is often the container's own group, and its path is seen from outside alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class Files:
    """Names that differ between the versions."""

    limit: str
    used: str
    inactive: str
    """In ``memory.stat``: file pages counted as used that the kernel gives back when asked."""


V2 = Files("memory.max", "memory.current", "inactive_file")
V1 = Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A group that limits memory; bytes."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        """What its processes may still take."""
        return max(0, self.limit - self.used)


def memory_groups(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[MemoryGroup]:
    """Those that this process is in and that have a limit, innermost first."""
    for top, path, files in hierarchies(root, membership):
        folder = top / path
        for one in (folder, *folder.parents):
            group = read_group(one, files)
            if group is not None:
                yield group
            if one == top:
                break


def hierarchies(root: Path, membership: Path) -> Iterator[tuple[Path, str, Files]]:
    """Where the groups of memory are: top folder, path below it, names of files (cgroups(7))."""
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield root, path.lstrip("/"), V2
        elif "memory" in controllers.split(","):
            yield root / "memory", path.lstrip("/"), V1


def read_group(folder: Path, files: Files) -> MemoryGroup | None:
    """One group; nothing where it has no limit."""
    limit, used = number_in(folder / files.limit), number_in(folder / files.used)
    if limit is None or used is None:
        return None
    return MemoryGroup(limit, used - reclaimable_bytes(folder, files))


def reclaimable_bytes(folder: Path, files: Files) -> int:
    """File pages that count as used and can be had."""
    try:
        lines = (folder / "memory.stat").read_text("ascii").splitlines()
    except OSError:
        return 0
    figures = dict(line.split(maxsplit=1) for line in lines)
    return int(figures.get(files.inactive, 0))


def number_in(file: Path) -> int | None:
    """The number a control file holds; nothing where there is no file or no limit."""
    try:
        text = file.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None

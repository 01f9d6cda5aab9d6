"""What the control groups of this process say of memory and cores, in version 2 and version 1.

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
    quota: tuple[str, ...]
    """Microseconds of all cores in a period, and the period; in one file, or one each."""


V2 = Files("memory.max", "memory.current", "inactive_file", ("cpu.max",))
V1 = Files(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
    ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
)


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
    for folder, files in group_folders("memory", root, membership):
        group = read_group(folder, files)
        if group is not None:
            yield group


def core_quotas(root: Path = ROOT, membership: Path = MEMBERSHIP) -> Iterator[float]:
    """How many cores' time the groups that this process is in may use, where they limit it."""
    for folder, files in group_folders("cpu", root, membership):
        words = [word for name in files.quota for word in text_in(folder / name).split()]
        if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
            yield int(words[0]) / int(words[1])


def group_folders(controller: str, root: Path, membership: Path) -> Iterator[tuple[Path, Files]]:
    """The groups of a controller that this process is in, innermost first."""
    for top, path, files in hierarchies(controller, root, membership):
        folder = top / path
        for one in (folder, *folder.parents):
            yield one, files
            if one == top:
                break


def hierarchies(controller: str, root: Path, membership: Path) -> Iterator[tuple[Path, str, Files]]:
    """Where a controller's groups are: top folder, path below it, names of files (cgroups(7))."""
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield root, path.lstrip("/"), V2
        elif controller in controllers.split(","):
            yield root / controller, path.lstrip("/"), V1


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
    text = text_in(file)
    return int(text) if text.isdecimal() else None


def text_in(file: Path) -> str:
    """What a control file holds; empty where there is none."""
    try:
        return file.read_text("ascii").strip()
    except OSError:
        return ""

"""Audio kept at hand for further jobs of its tenant: second names of files that jobs have.

A name says all that is known of the audio, so it comes and goes in one step. Nothing is copied:
what no job has any more is left with one name, and goes.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from voicemill.jobs import ItemAudio
from voicemill.outputs import opened
from voicemill.tenants import TENANT_ID

logger = logging.getLogger(__name__)

FOLDER = ".cache"
"""In the output folder. No job can have this name."""
SHELF = re.compile(r"[0-9a-f]{2}")
NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})\.(\d{1,15})\.(\d{1,6})\.[a-z0-9]+")

NO_SHELF = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL})
"""There is none, or a link or a file in its place, or the tenant can have none."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the cache, as its name and the file system say."""

    tenant: str
    name: str
    digest: str
    """Of how it sounds."""
    sha256: str
    duration_seconds: float
    sample_rate: int
    """Hz."""
    size_bytes: int
    used_at: int
    """When it was used last, in nanoseconds since the epoch."""
    names: int
    """Of the file, this one among them."""


class Cache:
    """The cache of one output folder. No link is followed; any number may work on it at once."""

    def __init__(self, output_dir: Path) -> None:
        self._outputs = output_dir

    def entries(self, tenant: str, digest: str) -> list[Entry]:
        """What there is of a tenant for one sound."""
        return [one for one in self._on_shelf(tenant, digest[:2]) if one.digest == digest]

    def path(self, entry: Entry) -> Path:
        """Where an entry is."""
        return self._outputs / FOLDER / entry.tenant / entry.digest[:2] / entry.name

    def keep(self, tenant: str, digest: str, audio: ItemAudio, response_format: str) -> None:
        """Give a file a name in the cache; where it can't have one, it is not kept."""
        microseconds = round(audio.duration_seconds * 1e6)
        parts = (digest, audio.sha256, microseconds, audio.sample_rate, response_format)
        name = ".".join(map(str, parts))
        try:
            with self._shelf(tenant, digest[:2], make=True) as shelf, suppress(FileExistsError):
                os.link(audio.audio_path, name, dst_dir_fd=shelf, follow_symlinks=False)
                self._use(shelf, name)
        except OSError as error:
            logger.info("not kept for other jobs: %s", error)

    def note_use(self, entry: Entry) -> None:
        """It was used now; what was not for the longest time goes first."""
        with suppress(OSError), self._shelf(entry.tenant, entry.digest[:2]) as shelf:
            self._use(shelf, entry.name)

    def remove(self, entry: Entry) -> None:
        """Take a name away; jobs that have the file keep it under theirs."""
        with suppress(FileNotFoundError), self._shelf(entry.tenant, entry.digest[:2]) as shelf:
            os.unlink(entry.name, dir_fd=shelf)

    def trim(self, most_bytes: int) -> int:
        """Remove what no job has any more, and what was not used for longest where all is too much.

        Gives how many. Of what goes for want of room some may have been used later than what stays,
        by a hundredth of the time since. Needs memory for one shelf, which is a 256th of what a
        tenant has, 1 KiB for each file on it, and for some thousand numbers. Raises ``OSError``.
        """
        now, removed = time.time_ns(), 0
        sizes: Counter[int] = Counter()
        for entry in self._all():
            if entry.names > 1 and entry.size_bytes <= most_bytes:
                sizes[age(entry, now)] += entry.size_bytes
            else:
                self.remove(entry)
                removed += 1
        excess, oldest = sizes.total() - most_bytes, 0
        for oldest in sorted(sizes, reverse=True):
            if excess <= sizes[oldest]:
                break
            excess -= sizes[oldest]
        return removed + (self._remove_old(oldest, excess, now) if excess > 0 else 0)

    def _remove_old(self, least: int, excess: int, now: int) -> int:
        """Remove what is older than ``least``, and ``excess`` bytes of what is as old."""
        removed = 0
        for entry in self._all():
            if (known := age(entry, now)) < least or (known == least and excess <= 0):
                continue
            self.remove(entry)
            removed += 1
            if known == least:
                excess -= entry.size_bytes
        return removed

    def _all(self) -> Iterator[Entry]:
        with suppress(FileNotFoundError), opened(self._outputs) as top, opened(FOLDER, top) as all_:
            for tenant in filter(TENANT_ID.fullmatch, os.listdir(all_)):
                with suppress(NotADirectoryError), opened(tenant, all_) as mine:
                    for shelf in filter(SHELF.fullmatch, os.listdir(mine)):
                        yield from self._on_shelf(tenant, shelf)

    def _on_shelf(self, tenant: str, number: str) -> list[Entry]:
        found = []
        try:
            with self._shelf(tenant, number) as shelf, os.scandir(shelf) as files:
                for file in files:
                    with suppress(FileNotFoundError):
                        entry = read_entry(tenant, file.name, file.stat(follow_symlinks=False))
                        found += [entry] if entry else []
        except OSError as error:
            if error.errno not in NO_SHELF:
                logger.warning("what is kept for other jobs can't be read now: %s", error)
        return found

    def _use(self, shelf: int, name: str) -> None:
        written = os.stat(name, dir_fd=shelf, follow_symlinks=False).st_mtime_ns
        os.utime(name, ns=(time.time_ns(), written), dir_fd=shelf, follow_symlinks=False)

    @contextmanager
    def _shelf(self, tenant: str, number: str, *, make: bool = False) -> Iterator[int]:
        if not TENANT_ID.fullmatch(tenant):
            raise OSError(errno.EINVAL, "no name of a tenant", tenant)
        with ExitStack() as stack:
            folder = stack.enter_context(opened(self._outputs))
            for name in (FOLDER, tenant, number):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                folder = stack.enter_context(opened(name, folder))
            yield folder


def age(entry: Entry, now: int) -> int:
    """How long ago it was used, as a step of a scale on which 100 steps are 2.7 times as long."""
    return round(100 * math.log(max(1, now - entry.used_at)))


def read_entry(tenant: str, name: str, seen: os.stat_result) -> Entry | None:
    """The entry that a file is; nothing where it is none of ours."""
    known = NAME.fullmatch(name)
    if known is None or not stat.S_ISREG(seen.st_mode):
        return None
    return Entry(
        tenant,
        name,
        known[1],
        known[2],
        int(known[3]) / 1e6,
        int(known[4]),
        seen.st_size,
        seen.st_atime_ns,
        seen.st_nlink,
    )

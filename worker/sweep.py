"""Removes files that no record points to: what a killed writer or a loser left behind.

Only files that bear a name of ours, in the folder of a job that the store knows, are looked at; no
link is followed. A sweep goes through a few jobs at a time and is taken up where it stopped.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from voicemill.outputs import JOB_FOLDER, opened, remove_job
from voicemill.storage import MARKER, probed
from voicemill.store import Store
from voicemill.store.removal import Attempted, Outputs

logger = logging.getLogger(__name__)

AUDIO = re.compile(r"(\d{6,})-.+\.(\d+)(?:-[0-9a-z]+)?\.[a-z0-9]+")
JOINED = re.compile(r"audio\.(\d+)\.[a-z0-9]+")
"""All audio of a job in one file, in its folder."""
TEMPORARY = re.compile(r"\.(\d{6,}-|audio\.).+\.tmp")
DRAFT_OF_MARKER = re.compile(re.escape(MARKER) + r"\..+\.tmp")
GROUP = re.compile(r"\d{4,}")
"""The folder of some items of a job."""
LONGEST_REST_SECONDS = 600.0
PAGE_FILES = 1000
"""Of which one request asks."""
MOST_JOBS = 10_000
"""Whose names are at hand."""


class Sweep:
    """Goes round and round the output folder, a job at a time."""

    def __init__(self, store: Store, folder: Path, seconds: float) -> None:
        self._store = store
        self._folder = folder
        self._seconds = seconds
        self._jobs: list[str] = []
        self._rests_until = 0.0

    def step(self, seconds: float = 1.0) -> int:
        """Go on for about so long; gives how many files were removed.

        Raises what the store raises, and ``OSError``.
        """
        deadline, removed = time.monotonic() + seconds, 0
        if time.monotonic() < self._rests_until:
            return 0
        if not self._jobs:
            removed += self._sweep_top()
            self._jobs = self._jobs_after(self._store.swept() or "")
        while self._jobs and time.monotonic() < deadline:
            removed += self._sweep_job(self._jobs[-1])
            last = self._jobs.pop()
            self._store.note_swept(last)
            self._jobs = self._jobs or self._jobs_after(last)
        if not self._jobs:
            self._store.note_swept(None)
            self._rests_until = time.monotonic() + min(LONGEST_REST_SECONDS, self._seconds)
        if removed:
            logger.info("%d files that no record points to were removed", removed)
        return removed

    def _jobs_after(self, last: str) -> list[str]:
        """Folders of the next jobs, the first of them last."""
        names = (
            entry.name for entry in os.scandir(self._folder) if JOB_FOLDER.fullmatch(entry.name)
        )
        return heapq.nsmallest(MOST_JOBS, (name for name in names if name > last))[::-1]

    def _sweep_top(self) -> int:
        with opened(self._folder) as top:
            return sum(
                self._remove(top, name)
                for name in self._old_files(top)
                if DRAFT_OF_MARKER.fullmatch(name)
            )

    def _sweep_job(self, job_id: str) -> int:
        try:
            outputs = self._store.outputs(job_id)
            if outputs is Outputs.REMOVED:
                # Who was frozen when its files were removed has written since.
                remove_job(self._folder, job_id)
                logger.info("files that came late for job %s were removed", job_id)
            if outputs is not Outputs.KEPT:
                return 0
            with opened(self._folder) as top, opened(job_id, top) as job:
                names = [entry.name for entry in os.scandir(job) if GROUP.fullmatch(entry.name)]
                removed = self._sweep_joined(job_id, job)
                return removed + sum(self._sweep_group(job_id, job, name) for name in names)
        # Not a folder, a link, or removed meanwhile with its job.
        except (NotADirectoryError, FileNotFoundError):
            return 0
        except OSError as error:
            logger.warning("the folder of job %s is not swept: %s", job_id, error)
            return 0

    def _sweep_joined(self, job_id: str, job: int) -> int:
        files = list(self._old_files(job))
        found = [match for match in map(JOINED.fullmatch, files) if match]
        garbage = [file for file in files if TEMPORARY.fullmatch(file)]
        if found:
            joined = self._store.joined(job_id)
            garbage += [match[0] for match in found if is_garbage(match[0], int(match[1]), joined)]
        return sum(self._remove(job, file) for file in garbage)

    def _sweep_group(self, job_id: str, job: int, name: str) -> int:
        with opened(name, job) as group:
            files = list(self._old_files(group))
            found = [match for match in map(AUDIO.fullmatch, files) if match]
            garbage = [file for file in files if TEMPORARY.fullmatch(file)]
            for start in range(0, len(found), PAGE_FILES):
                page = found[start : start + PAGE_FILES]
                attempted = self._store.attempted(job_id, [int(match[1]) for match in page])
                garbage += [
                    match[0]
                    for match, one in zip(page, attempted, strict=True)
                    if is_garbage(match[0], int(match[2]), one)
                ]
            return sum(self._remove(group, file) for file in garbage)

    def _old_files(self, folder: int) -> Iterator[str]:
        before = self._file_time() - self._seconds
        for entry in os.scandir(folder):
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(seen.st_mode) and seen.st_mtime < before:
                yield entry.name

    def _file_time(self) -> float:
        """Now, by the clock of the disk, which is the one that gives files their times."""
        with probed(self._folder) as probe:
            return os.fstat(probe.fileno()).st_mtime

    def _remove(self, folder: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return False
        return True


def is_garbage(name: str, attempt: int, one: Attempted) -> bool:
    """True for the audio of an attempt that has been lost and can't be published any more."""
    if one.file_name == name:
        return False
    return not (one.is_running and attempt >= one.attempts)

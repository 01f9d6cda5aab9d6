"""The end of jobs that ask for one file of all their audio.

Any number of clerks may: each join has a number and writes to a file of its own, and the record is
set by whoever took the job last. What is left half-done is done again from the start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from voicemill.errors import (
    AudioGoneError,
    ConcatenationError,
    OutputError,
    StorageError,
    StoreRefusedError,
    StoreUnavailableError,
    VoicemillError,
)
from voicemill.jobs import ItemError, ItemStatus, Job, JobAudio
from voicemill.outputs import drafted, joined_path
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Join, Store

if TYPE_CHECKING:
    from worker.joining import Part

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PAUSE_SECONDS = 1.0
TROUBLE_SECONDS, LONGEST_TROUBLE_SECONDS = 2.0, 60.0
"""How long a job waits before it is looked at again for room: twice as long each time."""
PAGE_ITEMS = 1000


class GivenUpError(Exception):
    """The job is another's, or this process is to stop."""


class Finalizer:
    """Joins the audio of one job after the other."""

    def __init__(self, store: Store, settings: Settings, stopping: threading.Event) -> None:
        self._store = store
        self._settings = settings
        self._stopping = stopping
        self._storage = Storage(store, settings)

    def run(self) -> None:
        """Go on until told to stop; a store that is away is waited for.

        Whatever else ends it ends the clerk, which is then started again.
        """
        try:
            while not self._stopping.is_set():
                if not self._try():
                    self._stopping.wait(PAUSE_SECONDS)
        finally:
            self._stopping.set()

    def _try(self) -> bool:
        try:
            return self.tick()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("no job finalised this time: %s", error)
            return False

    def tick(self) -> bool:
        """Finalise the job that is due, if one is; raises what the store raises."""
        join = self._store.take_finalizing(self._settings.lease_seconds)
        if join is None:
            return False
        began = time.monotonic()
        try:
            self._end(join, self._join(join))
        except GivenUpError:
            self._give_back(join, 0.0)
        except (StoreUnavailableError, StoreRefusedError):
            raise
        except StorageError as error:
            # What was written in vain for long is not begun again at once.
            pause = max(pause_after(join.waits), time.monotonic() - began)
            logger.warning("job %s waits to be finalised: %s", join.job_id, error.message)
            self._give_back(join, pause, trouble=error.code)
        except VoicemillError as error:
            logger.error("the audio of job %s is not joined: %s", join.job_id, error.message)
            if error.retryable and join.lost + 1 < self._settings.max_attempts:
                self._give_back(join, self._settings.retry_seconds or 0.0, is_lost=True)
            else:
                self._end(join, ItemError(error.code, error.message, error.retryable))
        return True

    def _join(self, join: Join) -> JobAudio:
        if join.lost >= self._settings.max_attempts:
            raise ConcatenationError(
                f"{join.lost} times nothing more was heard of the clerk that joined the audio; "
                "its log, or the kernel's (out of memory?), says why."
            )
        trouble = self._patiently(self._storage.look)
        if trouble is not None:
            raise trouble
        job = self._patiently(self._store.job, join.job_id)
        try:
            return self._write(join, job, self._parts(job))
        except (VoicemillError, GivenUpError):
            raise
        except Exception as error:
            logger.exception("job %s is not finalised", job.id)
            raise ConcatenationError(
                f"{type(error).__name__} was raised while the audio was joined."
            ) from error

    def _parts(self, job: Job) -> list[Part]:
        """The audio of what succeeded; the texts of a large job would not fit into memory."""
        # A clerk needs no audio code until a job asks for it.
        from worker.joining import Part

        found: list[Part] = []
        for start in range(0, job.counts.total, PAGE_ITEMS):
            page = self._patiently(self._store.items, job.id, after=start - 1, limit=PAGE_ITEMS)
            found += [
                Part(
                    item.input.custom_id,
                    Path(audio.audio_path),
                    audio.size_bytes,
                    audio.sample_rate,
                )
                for item in page
                if item.status is ItemStatus.SUCCEEDED and (audio := item.audio) is not None
            ]
        return found

    def _write(self, join: Join, job: Job, parts: Sequence[Part]) -> JobAudio:
        from worker.joining import expected_bytes, join_files

        silence_ms = job.concatenation.silence_ms if job.concatenation else 0
        response_format = parts[0].path.suffix.removeprefix(".")
        path = joined_path(self._settings.output_dir, job.id, join.number, response_format)
        self._storage.check_room(expected_bytes(parts, silence_ms))
        try:
            with drafted(path) as file:
                joined = join_files(parts, file, response_format, silence_ms, self._keeper(join))
        except AudioGoneError:
            # It may be the folder that is gone.
            self._storage.check()
            raise
        except (OutputError, StorageError) as error:
            raise self._storage.refused(error, 0) from error
        return JobAudio(
            audio_path=str(path),
            sha256=joined.sha256,
            size_bytes=joined.size_bytes,
            duration_seconds=joined.duration_seconds,
            sample_rate=joined.sample_rate,
            response_format=response_format,
            items_left_out=job.counts.total - len(parts),
        )

    def _keeper(self, join: Join) -> Callable[[], None]:
        """To be called while a join goes on; raises ``GivenUpError`` once it is to stop."""
        lease = self._settings.lease_seconds
        due = 0.0

        def keep() -> None:
            nonlocal due
            if self._stopping.is_set():
                raise GivenUpError
            if time.monotonic() < due:
                return
            due = time.monotonic() + lease / 4
            try:
                is_ours = self._store.keep_finalizing(join, lease)
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("job %s: lease not renewed: %s", join.job_id, error)
                return
            if not is_ours:
                raise GivenUpError

        return keep

    def _end(self, join: Join, ending: JobAudio | ItemError) -> None:
        if self._patiently(self._store.end_finalizing, join, ending):
            logger.info("job %s is finalised", join.job_id)
        elif isinstance(ending, JobAudio):
            Path(ending.audio_path).unlink(missing_ok=True)

    def _give_back(
        self, join: Join, pause_seconds: float, *, trouble: str = "", is_lost: bool = False
    ) -> None:
        self._patiently(
            self._store.return_finalizing, join, pause_seconds, trouble=trouble, is_lost=is_lost
        )

    def _patiently(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A call to the store; while that is away again, until this process is to stop."""
        while True:
            try:
                return call(*args, **kwargs)
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("the store is away, trying again: %s", error)
                if self._stopping.wait(PAUSE_SECONDS):
                    raise


def pause_after(waits: int) -> float:
    """Seconds until a job that has waited so often is looked at again."""
    return min(LONGEST_TROUBLE_SECONDS, TROUBLE_SECONDS * 2.0 ** min(waits, 10))

"""What a clerk does beside its rounds: removing files, which takes as long as it takes."""

from __future__ import annotations

import logging
import threading
import time

from voicemill import outputs
from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.health import MEBIBYTE
from voicemill.settings import Settings
from voicemill.storage import claim, read_marker
from voicemill.store import Store
from worker.cache import Cache
from worker.enrolling import remove_clips, sweep_clips
from worker.sweep import LONGEST_REST_SECONDS, Sweep

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
TRIM_SECONDS = 60.0
"""How long the cache may be larger than it should, or have what no job has any more."""


class Housekeeper:
    """Removes what is to be removed. Any number may; each step can be repeated."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._sweep = Sweep(store, settings.output_dir, settings.sweep_seconds)
        self._cache = Cache(settings.output_dir)
        self._trimmed_at = float("-inf")
        self._swept_voices_at = float("-inf")

    def tick(self) -> None:
        """One round; raises what the store raises.

        Nothing is done to a folder that is not the one that audio was written to.
        """
        if not self._is_at_hand():
            return
        self._remove_deleted()
        self._remove_expired()
        self._remove_voices()
        try:
            self._sweep.step()
            self._trim()
            self._sweep_voices()
        except OSError as error:
            logger.warning("the output folder is not swept: %s", error)
        self._store.rewrite_append_only_file()

    def _is_at_hand(self) -> bool:
        folder = self._settings.output_dir
        try:
            marker = claim(self._store, folder)
            return read_marker(folder) == marker
        except OSError:
            return False

    def _trim(self) -> None:
        if time.monotonic() < self._trimmed_at + TRIM_SECONDS:
            return
        self._trimmed_at = time.monotonic()
        removed = self._cache.trim(self._settings.cache_mb * MEBIBYTE)
        if removed:
            logger.info("%d files are no longer kept for other jobs", removed)

    def _remove_voices(self) -> None:
        expired = self._store.expire_voices()
        removed = remove_clips(self._store, self._settings.output_dir)
        if expired or removed:
            logger.info("%d unlisted voices deleted, %d clips removed", expired, removed)

    def _sweep_voices(self) -> None:
        seconds = self._settings.sweep_seconds
        if time.monotonic() < self._swept_voices_at + min(LONGEST_REST_SECONDS, seconds):
            return
        self._swept_voices_at = time.monotonic()
        removed = sweep_clips(self._store, self._settings.output_dir, seconds)
        if removed:
            logger.info("%d files that no voice has were removed", removed)

    def _remove_deleted(self) -> None:
        for job_id in self._store.removals():
            if self._removed(job_id):
                self._store.purge(job_id)
                logger.info("job %s was deleted and is gone", job_id)

    def _remove_expired(self) -> None:
        for job_id in self._store.expired_outputs():
            if self._removed(job_id):
                self._store.remove_texts(job_id)
                self._store.outputs_removed(job_id)
                logger.info("the audio and texts of job %s have expired and are gone", job_id)

    def run(self, stopping: threading.Event) -> None:
        """Go round until told to stop; a store that is away is waited for.

        Whatever else ends it ends the clerk, which is then started again.
        """
        try:
            while not stopping.wait(PAUSE_SECONDS):
                self._try()
        finally:
            stopping.set()

    def _try(self) -> None:
        try:
            self.tick()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("nothing removed this time: %s", error)

    def _removed(self, job_id: str) -> bool:
        try:
            outputs.remove_job(self._settings.output_dir, job_id)
        except OSError as error:
            logger.warning("the files of job %s are not all removed: %s", job_id, error)
            return False
        return True

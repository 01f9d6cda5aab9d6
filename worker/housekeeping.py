"""What a clerk does beside its rounds: removing files, which takes as long as it takes."""

from __future__ import annotations

import logging
import threading

from voicemill import outputs
from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0


class Housekeeper:
    """Removes what is to be removed. Any number may; each step can be repeated."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def tick(self) -> None:
        """One round; raises what the store raises."""
        for job_id in self._store.removals():
            if self._removed(job_id):
                self._store.purge(job_id)
                logger.info("job %s was deleted and is gone", job_id)
        self._store.rewrite_append_only_file()

    def run(self, stopping: threading.Event) -> None:
        """Go round until told to stop; a store that is away is waited for."""
        while not stopping.wait(PAUSE_SECONDS):
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

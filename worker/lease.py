"""Keeps the lease of a running task alive from a thread of its own."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.store import StartedTask, Store

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 1.0
"""How late a running batch may learn that its job was cancelled."""


class LeaseKeeper:
    """Renews a lease while the ``with`` block runs."""

    def __init__(self, store: Store, task: StartedTask, lease_seconds: float) -> None:
        self._store = store
        self._task = task
        self._lease_seconds = lease_seconds
        self._done = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    @property
    def is_over(self) -> bool:
        """True once the job is stopping or the lease is lost: no more work on this task."""
        return self._over.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        pause = min(LONGEST_PAUSE_SECONDS, self._lease_seconds / 3)
        while not self._done.wait(pause):
            try:
                state = self._store.renew(self._task, self._lease_seconds)
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("task %s: lease not renewed: %s", self._task.id, error)
                continue
            if state != "held":
                logger.info("task %s: %s", self._task.id, state)
                self._over.set()
                return

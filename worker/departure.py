"""How a worker leaves that can't be stopped: its children finish, as far as they need no parent."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from voicemill.errors import StoreRefusedError, StoreUnavailableError, WorkerLostError
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import child_id
from worker.release import release

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
KILL_SECONDS = 5.0


class Departure:
    """Leases, results and files are a child's own business, so it may end its batch."""

    def __init__(self, store: Store, settings: Settings, node: str, pids: Sequence[int]) -> None:
        self._store = store
        self._settings = settings
        self._children = {child_id(node, os.getpid(), pid): pid for pid in pids}

    def wait(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Have the children drained, and wait for the batches in hand; so long at most.

        ``meanwhile`` says that they are not lost.
        """
        deadline = time.monotonic() + seconds
        drained = False
        while time.monotonic() < deadline:
            try:
                meanwhile()
                drained = drained or self._drain()
                if not self._store.busy_children(list(self._children)):
                    return
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("what children have in hand is not known: %s", error)
            time.sleep(POLL_SECONDS)
        logger.warning("its children did not finish in time and are killed")

    def end(self) -> None:
        """Kill the children and give to others what they still hold."""
        processes = []
        for pid in self._children.values():
            with suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(pid))
                processes[-1].kill()
        psutil.wait_procs(processes, KILL_SECONDS)
        for child in self._children:
            release(self._store, self._settings, child, WorkerLostError("Its worker left."))

    def _drain(self) -> bool:
        for child in self._children:
            self._store.order(child, "drain")
        return True

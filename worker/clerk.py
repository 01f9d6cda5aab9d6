"""Timed loops over the store: dispatch ticks, recalling, reaping, finalising. No Celery, no engine.

Any number may run at once; every step is atomic. ``python -m worker.clerk``
"""

from __future__ import annotations

import logging
import signal
import threading
import uuid

from voicemill.dispatch import Dispatcher
from voicemill.errors import SettingsError, StoreRefusedError, StoreUnavailableError
from voicemill.logs import configure_logging
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store
from worker.enrolling import Enroller
from worker.exits import EXIT_MISCONFIGURED
from worker.finalizing import Finalizer
from worker.housekeeping import Housekeeper
from worker.rollouts import RolloutKeeper

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
ABANDON_SECONDS = 60.0
"""A submission without a new page for so long has lost its writer."""
LEASE_SECONDS = 15.0
MOST_EXPIRED = 100
"""Jobs that one round stops, each by a call of its own."""


class Clerk:
    """Does what nobody is waiting for, once a second."""

    def __init__(self, store: Store, queue: Queue, settings: Settings) -> None:
        self._id = f"clerk-{uuid.uuid4().hex}"
        self._store = store
        self._settings = settings
        self._dispatcher = Dispatcher(store, queue, settings)
        self._rollouts = RolloutKeeper(store)

    def tick(self) -> None:
        """One round; raises what the store raises."""
        self._store.beat_clerk(self._id, LEASE_SECONDS)
        reaped = self._store.reap(
            max_attempts=self._settings.max_attempts,
            retry_seconds=self._settings.retry_seconds or 0.0,
        )
        if reaped:
            logger.warning("%d leases ran out; their items go to others", reaped)
        self._store.abandon_unfinished(ABANDON_SECONDS)
        for _ in range(MOST_EXPIRED):
            if not self._store.expire_jobs():
                break
        self._rollouts.tick()
        self._dispatcher.recall()
        self._dispatcher.admit()

    def run(self, stopping: threading.Event) -> None:
        """Tick until told to stop; a store that is away is waited for."""
        while not stopping.is_set():
            try:
                self.tick()
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("no round this time: %s", error)
            stopping.wait(TICK_SECONDS)


def wait_for_durable(store: Store, stopping: threading.Event) -> None:
    """Look at the server once it answers; leave when it would lose jobs."""
    while not stopping.is_set():
        try:
            store.refuse_forgetful()
        except SettingsError as error:
            logger.critical("%s", error.message)
            raise SystemExit(EXIT_MISCONFIGURED) from error
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("waiting for Redis: %s", error)
            stopping.wait(TICK_SECONDS)
        else:
            return


def main() -> None:
    """Run a clerk until TERM or INT."""
    settings = Settings.from_env()
    configure_logging(settings.log_level)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    store = Store.connect(settings.redis_url)
    if settings.redis_check:
        wait_for_durable(store, stopping)
    housekeeper = Housekeeper(store, settings)
    threading.Thread(target=housekeeper.run, args=(stopping,), name="housekeeper").start()
    finalizer = Finalizer(store, settings, stopping)
    threading.Thread(target=finalizer.run, name="finalizer").start()
    enroller = Enroller(store, settings, stopping)
    threading.Thread(target=enroller.run, name="enroller").start()
    try:
        Clerk(store, Queue(settings), settings).run(stopping)
    finally:
        stopping.set()


if __name__ == "__main__":
    main()

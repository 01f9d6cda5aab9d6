"""The heartbeat of a worker: keeps its name, says how it is, leaves when it takes no more work."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from voicemill.errors import SettingsError, StoreRefusedError, StoreUnavailableError
from voicemill.queue import UNACKED_PREFIX, Queue
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import Claim, WorkerRecord, child_id
from worker.departure import Departure
from worker.exits import EXIT_STUCK
from worker.intake import Intake
from worker.namesake import born_at, claim_name, this_machine
from worker.patience import patiently
from worker.watch import Finding, Watch

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 1.0
STORE_PATIENCE_SECONDS = 10.0
WAITING_SECONDS = 3.0
"""A message that waits for less is on its way."""


class Heartbeat:
    """A thread of the parent, beside Celery's event loop, which may hang."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        node: str,
        intake: Intake,
        record: Callable[[], WorkerRecord],
    ) -> None:
        """``record`` says how the worker is."""
        self.incarnation = f"{UNACKED_PREFIX}{node}:{uuid.uuid4().hex}"
        self._store = store
        self._settings = settings
        self._node = node
        self._intake = intake
        self._record = record
        self._queue = Queue(settings)
        born = born_at(os.getpid()) or 0.0
        self._claim = Claim(self.incarnation, os.getpid(), this_machine(), born)
        limit = settings.stuck_seconds
        self._watch = None if limit is None else Watch(limit, time.monotonic())
        self._farewell: list[str] = []
        self._counts: deque[tuple[str, dict[str, str], float]] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-heartbeat", daemon=True)

    def start(self) -> bool:
        """Take the node name, and keep it; raises ``SettingsError`` while another worker has it.

        False: the store is away, and whether another has it is not known yet.
        """
        is_ours = False
        try:
            patiently(STORE_PATIENCE_SECONDS, self._keep_name)
            is_ours = True
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("whether %s runs already is not known: %s", self._node, error)
        self._thread.start()
        return is_ours

    def stop(self) -> None:
        """Say no more that the worker lives."""
        self._stopping.set()
        self._thread.join()

    def say_goodbye(self) -> None:
        """Give the name back."""
        try:
            self._report_counts()
            self._store.forget_worker(self._node, self._claim)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the end of the worker could not be noted: %s", error)

    def turned(self) -> None:
        """The event loop has gone round."""
        if self._watch is not None:
            self._watch.turned(time.monotonic())

    def watch_no_more(self) -> None:
        """A worker that stops need not take work."""
        self._watch = None

    def count(self, name: str, labels: dict[str, str], by: float = 1.0) -> None:
        """Add to a counter, at the next beat."""
        self._counts.append((name, labels, by))

    def _run(self) -> None:
        try:
            self._go_on()
        finally:
            if not self._stopping.is_set():
                # It would work on unseen, and nothing would end what it holds on to.
                logger.critical("the heartbeat has failed; the worker stops, to be started anew")
                os.kill(os.getpid(), signal.SIGTERM)

    def _go_on(self) -> None:
        pause = min(LONGEST_PAUSE_SECONDS, self._settings.lease_seconds / 4)
        while True:
            try:
                self._beat()
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("heartbeat of the node not heard: %s", error)
            if self._stopping.wait(pause):
                return

    def _beat(self) -> None:
        try:
            self._live()
        except SettingsError as error:
            self._leave(error.message, seconds=0.0)
        self._report_counts()
        self._end_overdue()
        self._look()

    def _live(self) -> None:
        self._keep_name()
        record = self._record()
        said = replace(record, alerts=[*record.alerts, *self._farewell])
        self._store.beat_worker(self.incarnation, said, self._settings.lease_seconds)

    def _keep_name(self) -> None:
        claim_name(self._store, self._node, self._claim, self._settings.lease_seconds)

    def _report_counts(self) -> None:
        while self._counts:
            self._store.add_metric(*self._counts[0])
            self._counts.popleft()

    def _end_overdue(self) -> None:
        grace = self._settings.cancel_grace_seconds
        ids = {child_id(self._node, os.getpid(), pid): pid for pid in self._pids()}
        if grace is None or not ids:
            return
        for child in self._store.overdue_children(list(ids), grace):
            logger.warning("child %d holds on to a stopped job and is killed", ids[child])
            with suppress(ProcessLookupError):
                os.kill(ids[child], signal.SIGKILL)

    def _look(self) -> None:
        watch, seconds = self._watch, self._settings.stop_seconds
        if watch is None:
            return
        finding = watch.look(time.monotonic(), unheard=self._is_unheard())
        if finding is Finding.UNHEARD:
            logger.warning("a message waits and does not reach this worker; it subscribes again")
            self._intake.subscribe_again()
        elif finding is Finding.DEAF:
            why = "a message has waited beside a free child, and did not reach this worker,"
            self._leave(f"{why} for {watch.limit:g} s.", seconds)
        elif finding is Finding.HUNG:
            logger.error("what the event loop hangs in:\n%s", stack_of(threading.main_thread()))
            self._leave(f"its event loop has not gone round for {watch.limit:g} s.", seconds)

    def _is_unheard(self) -> bool:
        if all(one.state != "ready" for one in self._record().processes):
            return False
        engine = self._settings.engine
        late = self._store.stale_admitted(WAITING_SECONDS)
        ids = {task.id for task in late if task.engine == engine}
        return bool(ids and ids & self._queue.held(engine, ()))

    def _leave(self, why: str, seconds: float) -> NoReturn:
        logger.critical(
            "the worker leaves with status %d: %s Its children have %g s for the batch in hand. "
            "Its supervisor starts it anew; where there is none, start it.",
            *(EXIT_STUCK, why, seconds),
        )
        self._farewell = [f"It leaves: {why}"]
        departure = Departure(self._store, self._settings, self._node, self._pids())
        try:
            departure.wait(seconds, meanwhile=self._live)
        except SettingsError as error:
            logger.critical("others have what its children hold: %s", error.message)
        departure.end()
        self.say_goodbye()
        os._exit(EXIT_STUCK)

    def _pids(self) -> list[int]:
        return [one.pid for one in self._record().processes]


def stack_of(thread: threading.Thread) -> str:
    """Where a thread is now."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "It is gone."

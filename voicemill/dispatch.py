"""Letting work in: only as much as there are free slots, by one function."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable

from voicemill.errors import StoreUnavailableError
from voicemill.queue import Queue
from voicemill.rollouts import engine_of
from voicemill.settings import Settings
from voicemill.store import AdmittedTask, MisplacedTask, StartedTask, Store

logger = logging.getLogger(__name__)

TIME_LIMIT_FACTOR = 20
"""A batch that takes this many times its estimate hangs; its child is killed."""
RECALL_SECONDS = 3.0
FIRST_DETOUR_SECONDS, LONGEST_DETOUR_SECONDS = 0.001, 0.1


class Dispatcher:
    """Admits batches and sees to it that admitted ones arrive."""

    def __init__(self, store: Store, queue: Queue, settings: Settings) -> None:
        self._store = store
        self._queue = queue
        self._settings = settings

    def admit(self, engines: Iterable[str] | None = None) -> int:
        """Admit while there are free slots; gives how many batches went in.

        A batch whose message can't be sent stays admitted until ``recall`` finds it.
        """
        admitted = 0
        for engine in self._store.lanes() if engines is None else engines:
            tasks = self._store.admit(
                engine,
                self._store.cost(engine),
                self._settings.batch_seconds,
                interactive_slots=self._settings.interactive_slots or 0,
            )
            admitted += len(tasks)
            for task in tasks:
                self._send(task)
        return admitted

    def follow(self, ended: StartedTask, engine: str) -> None:
        """Close a task and admit what its slot is free for now."""
        one = self._settings
        for task in self._store.end_and_admit(
            ended,
            engine,
            self._store.cost(engine),
            one.batch_seconds,
            max_attempts=one.max_attempts,
            retry_seconds=one.retry_seconds or 0.0,
            interactive_slots=one.interactive_slots or 0,
        ):
            self._send(task)

    def pass_on(self, misplaced: MisplacedTask) -> None:
        """Send a batch to another child than the one it came to, less often each time.

        Where no child has its revision any more, what it carries waits again.
        """
        time.sleep(min(LONGEST_DETOUR_SECONDS, FIRST_DETOUR_SECONDS * 2**misplaced.detours))
        task = misplaced.task
        if self._store.snapshot().slots.get(task.engine):
            self._send(task)
        else:
            self._store.recall_task(task.id)

    def recall(self) -> int:
        """Have what was admitted and is nowhere to be found wait again; gives how many batches.

        Kombu on Redis can lose a message with the worker that popped it, and a live worker can
        forget one it held when its connection broke: that it is unacknowledged counts for as
        long as a lease. Workers that were told to revoke a task drop its message whenever it
        comes, so what it carried goes out in another. Should the old one turn up after all, it
        finds nothing to start.
        """
        stale = self._store.stale_admitted(RECALL_SECONDS)
        if not stale:
            return 0
        nodes = self._store.live_nodes()
        overdue = {task.id for task in self._store.stale_admitted(self._settings.lease_seconds)}
        engines = {engine_of(task.engine) for task in stale}
        waiting = set().union(*(self._queue.held(engine, ()) for engine in engines))
        held = set().union(*(self._queue.held(engine, nodes) for engine in engines))
        recalled = 0
        for task in stale:
            is_held = task.id in (waiting if task.id in overdue else held)
            if not is_held and self._store.recall_task(task.id):
                logger.warning("task %s was lost on its way; its items wait again", task.id)
                recalled += 1
        return recalled

    def _send(self, task: AdmittedTask) -> None:
        limit = time_limit(task.seconds, self._settings)
        try:
            self._queue.send(task.engine, task.id, time_limit=limit, job_class=task.job_class)
        except StoreUnavailableError as error:
            logger.warning("task %s stays admitted, not sent: %s", task.id, error)


def time_limit(estimate: float, settings: Settings) -> int:
    """Whole seconds after which a batch of this estimate is taken to hang."""
    floor, ceiling = settings.min_batch_limit_seconds, settings.max_batch_limit_seconds
    return math.ceil(min(ceiling, max(floor, TIME_LIMIT_FACTOR * estimate)))

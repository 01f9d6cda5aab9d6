"""Celery's prefork pool, asked to leave by our policy and honest about lost children.

The only module that stands on private names of Celery and billiard:
``asynpool.Worker`` (``_make_child_methods maxtasks max_memory_per_child
wait_for_job``) and ``asynpool.AsynPool`` (``_pool _state on_process_alive
_event_process_exit _join_exited_workers``). Their minor versions are pinned.
"""

from __future__ import annotations

import sys
from typing import Any

import billiard.pool
from celery.concurrency import asynpool, prefork

from worker import process
from worker.recycle import Policy

# Tenths of a second a leaving child waits for its last answers to be read; 300 by default,
# which a container's grace period does not have.
billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 30

REAP_PAUSE_SECONDS = 0.01
REAP_TRIES = 1000


class ChildProcess(asynpool.Worker):
    """Asks the policy before each job it reads from its pipe; never inside one."""

    def _make_child_methods(self, *args: Any, **kwargs: Any) -> None:
        super()._make_child_methods(*args, **kwargs)
        theirs: Any = self
        max_tasks, theirs.maxtasks = theirs.maxtasks, None
        max_memory_kib, theirs.max_memory_per_child = theirs.max_memory_per_child, None
        receive = theirs.wait_for_job

        def wait_for_job(*args: Any, **kwargs: Any) -> Any:
            child = process.current_child()
            policy = Policy.from_settings(
                child.settings, max_tasks=max_tasks, max_memory_kib=max_memory_kib
            )
            reason = child.reason_to_leave(policy)
            if reason is not None:
                child.leave(reason)
                sys.exit(billiard.pool.EX_RECYCLE)
            return receive(*args, **kwargs)

        theirs.wait_for_job = wait_for_job


class ChildPool(asynpool.AsynPool):
    """Reaps exited children at once and says so to the store."""

    Worker = ChildProcess

    def on_process_alive(self, pid: int) -> None:
        """A child has sent that it is up, which it does once its engine is loaded."""
        super().on_process_alive(pid)
        process.child_up()

    def _event_process_exit(self, hub: Any, proc: Any) -> None:
        super()._event_process_exit(hub, proc)
        self._reap(hub, proc, REAP_TRIES)

    def _reap(self, hub: Any, proc: Any, tries: int) -> None:
        """The pipe of a child closes before ``waitpid`` sees it gone (celery#9588): look again."""
        if proc not in self._pool or self._state != billiard.pool.RUN or not tries:
            return
        self.maintain_pool()
        hub.call_later(REAP_PAUSE_SECONDS, self._reap, hub, proc, tries - 1)

    def _join_exited_workers(self, shutdown: bool = False) -> Any:
        before = list(self._pool)
        try:
            return super()._join_exited_workers(shutdown)
        finally:
            for proc in before:
                if proc not in self._pool:
                    process.child_gone(proc.pid, proc.exitcode)


class TaskPool(prefork.TaskPool):
    """What ``worker_pool`` names."""

    Pool = ChildPool

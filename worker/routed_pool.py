"""Celery's prefork pool, told which child may have which batch.

Stands on private names of Celery and billiard, as ``pool`` does; what goes where is decided in
``routing``.
"""

from __future__ import annotations

from typing import Any

import billiard.pool
from celery.concurrency import asynpool

from voicemill.queue import LANE
from worker.handover import Handovers
from worker.routing import Routing


class RoutedPool(asynpool.AsynPool):
    """Gives batches that wait for a revision to children that have it, others to any."""

    _quick_put: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._handovers = Handovers()
        self._routing = Routing()
        self._apart: set[int] = set()
        self._paused: set[int] = set()
        self._hub: Any = None
        super().__init__(*args, **kwargs)

    def _create_write_handlers(self, hub: Any, *args: Any, **kwargs: Any) -> None:
        super()._create_write_handlers(hub, *args, **kwargs)
        put: Any = self._quick_put

        def put_or_hold(told: Any) -> None:
            put(told)
            lane = lane_of(told)
            if lane is not None:
                self._routing.hold(lane, self.outbound_buffer.pop())
            if lane is not None or self._apart:
                self._route()
                self._hub.call_soon(self._show)

        self._quick_put = put_or_hold

    def _route(self) -> None:
        """Write what is held to children that serve its lane and are idle."""
        if not (self._routing or self._apart) or self._state != billiard.pool.RUN:
            return
        children = {child.pid: child for child in self._pool if self._takes_jobs(child)}
        while self.outbound_buffer and self._routing.are_apart(children):
            self._routing.hold(None, self.outbound_buffer.popleft())
        idle = [pid for pid, child in children.items() if not self._has_jobs(child)]
        for pid, job in self._routing.release(idle, children):
            fd = children[pid].inqW_fd
            is_apart = fd not in self._all_inqueues
            self.outbound_buffer.appendleft(job)
            self._all_inqueues.add(fd)
            self._hub.consolidate_callback([fd])
            if is_apart:
                self._all_inqueues.discard(fd)
                self._busy_workers.discard(fd)

    def _takes_jobs(self, child: Any) -> bool:
        if child.pid in self._paused | self._handovers.leaving:
            return False
        return child.inqW_fd in self._all_inqueues or child.pid in self._apart

    def _has_jobs(self, child: Any) -> bool:
        fd = child.inqW_fd
        return fd in self._busy_workers or fd in self._active_writes or bool(self._jobs_of(child))

    def on_lanes(self, pid: int, lanes: tuple[str, ...]) -> None:
        """A child says from which lanes it takes work."""
        child = self._by_pid(pid)
        if child is None:
            return
        self._routing.told(pid, lanes)
        was_apart, is_apart = pid in self._apart, self._routing.is_apart(pid)
        if is_apart and not was_apart:
            self._apart.add(pid)
            self._stop_writing_to(child)
        elif was_apart and not is_apart:
            self._apart.discard(pid)
            self._write_to_again(child)
        self._route()
        self._show()

    def _write_to_again(self, child: Any) -> None:
        if child.pid in self._paused | self._apart | self._handovers.leaving:
            return
        self._all_inqueues.add(child.inqW_fd)
        if self._jobs_of(child):
            self._busy_workers.add(child.inqW_fd)

    def _stop_writing_to(self, child: Any) -> None:
        self._all_inqueues.discard(child.inqW_fd)
        # Celery writes to a free child only while fewer are busy than take jobs.
        self._busy_workers.discard(child.inqW_fd)
        if child.inqW_fd not in self._active_writes:
            self._hub.remove_writer(child.inqW_fd)

    def flush(self) -> None:
        """The connection is lost or the worker stops; what is held comes again."""
        self._routing.clear()
        super().flush()

    def _show(self) -> None:
        """Let the parent see the children as they are now."""
        raise NotImplementedError

    def _jobs_of(self, child: Any) -> list[Any]:
        return [job for job in self._cache.values() if job._write_to is child and not job.ready()]

    def _by_pid(self, pid: int) -> Any:
        return next((child for child in self._pool if child.pid == pid), None)


def lane_of(told: Any) -> str | None:
    """The lane of a single revision that the batch in a pool's message waited in, if it did."""
    _, (_, _, _, args, _) = told
    request: dict[str, Any] = args[2]
    lane: str | None = request.get(LANE)
    return lane

"""Which child of a worker gets which batch, where some children have another revision. Pure.

Celery gives a batch to any child that is free. Those that wait for one revision are held here until
a child that has it is free; children that speak for some tenants alone are kept apart from the
others, and get nothing but what they are given here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voicemill.rollouts import engine_of


@dataclass(frozen=True, slots=True)
class Held:
    """A batch that waits for a child that serves its lane; ``job`` is Celery's own."""

    lane: str
    job: Any


class Routing:
    """What is held, and which lanes each child serves."""

    def __init__(self) -> None:
        self._held: deque[Held] = deque()
        self._lanes: dict[int, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def told(self, pid: int, lanes: tuple[str, ...]) -> None:
        """A child says which lanes it serves."""
        self._lanes[pid] = lanes

    def gone(self, pid: int) -> None:
        """A child has ended."""
        self._lanes.pop(pid, None)

    def is_apart(self, pid: int) -> bool:
        """Whether a child speaks for some tenants alone."""
        lanes = self._lanes.get(pid)
        return lanes is not None and all(lane != engine_of(lane) for lane in lanes)

    def hold(self, lane: str, job: Any) -> None:
        """A batch of a lane has come."""
        self._held.append(Held(lane, job))

    def clear(self) -> None:
        """The worker stops, or its connection is lost: the broker sends them all again."""
        self._held.clear()

    def release(self, idle: Collection[int], living: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Batches with the idle child that each goes to, which is idle no more.

        Where none of the ``living`` serves a lane, any of the idle ones that is not apart sends its
        batches to another worker.
        """
        free = dict.fromkeys(idle)
        for one in list(self._held):
            pid = self._choice(one.lane, free, living)
            if pid is not None:
                del free[pid]
                self._held.remove(one)
                yield pid, one.job

    def _choice(self, lane: str, free: Mapping[int, None], living: Collection[int]) -> int | None:
        fitting = [pid for pid in free if lane in self._lanes.get(pid, ())]
        if fitting:
            return fitting[0]
        if any(lane in self._lanes.get(pid, ()) for pid in living):
            return None
        return next((pid for pid in free if not self.is_apart(pid)), None)

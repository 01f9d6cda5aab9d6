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

    lane: str | None
    """Nothing: that of all others, which children serve that are not apart."""
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

    def are_apart(self, living: Collection[int]) -> bool:
        """Whether nobody is left for batches that any child may have."""
        return bool(living) and all(map(self.is_apart, living))

    def hold(self, lane: str | None, job: Any) -> None:
        """A batch of a lane has come."""
        self._held.append(Held(lane, job))

    def clear(self) -> None:
        """The worker stops, or its connection is lost: the broker sends them all again."""
        self._held.clear()

    def release(self, idle: Collection[int], living: Collection[int]) -> Iterator[tuple[int, Any]]:
        """Batches with the idle child that each goes to, which is idle no more.

        Where none of the ``living`` serves a lane, an idle one sends its batches to another worker;
        one that is apart only where all are.
        """
        free = dict.fromkeys(idle)
        for one in list(self._held):
            pid = self._choice(one.lane, free, living)
            if pid is not None:
                del free[pid]
                self._held.remove(one)
                yield pid, one.job

    def _choice(
        self, lane: str | None, free: Mapping[int, None], living: Collection[int]
    ) -> int | None:
        able = [pid for pid in living if self._serves(pid, lane)]
        able = able or [pid for pid in living if not self.is_apart(pid)] or list(living)
        return next((pid for pid in free if pid in able), None)

    def _serves(self, pid: int, lane: str | None) -> bool:
        return not self.is_apart(pid) if lane is None else lane in self._lanes.get(pid, ())

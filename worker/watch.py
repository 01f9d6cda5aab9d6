"""Whether a worker still takes work: its event loop goes round, and messages reach it. Pure.

Celery's consumer can lose its place when a connection breaks: the loop hangs, or goes round and
listens no more, while the threads beside it go on.
"""

from __future__ import annotations

from enum import Enum

GAP_SECONDS = 3.0
"""What was not done between two looks that are further apart says nothing."""


class Finding(Enum):
    """What a look gives."""

    WELL = "well"
    UNHEARD = "unheard"
    """Told once, half-way to ``DEAF``: to subscribe again may help."""
    DEAF = "deaf"
    HUNG = "hung"


class Watch:
    """Times are seconds of any one steady clock."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._turned = self._heard = self._looked = self._excused = now
        self._told = False

    def turned(self, now: float) -> None:
        """The event loop has gone round."""
        self._turned = now

    def look(self, now: float, *, unheard: bool) -> Finding:
        """Judge, each second, unless the store is away or this process is frozen.

        ``unheard``: a message waits at the broker, and a child for a message.
        """
        if now - self._looked > GAP_SECONDS:
            self._excused = now
        self._looked = now
        if not unheard or now - self._turned > GAP_SECONDS:
            self._heard, self._told = now, False
        deaf = now - max(self._heard, self._excused)
        if now - max(self._turned, self._excused) > self.limit:
            return Finding.HUNG
        if deaf > self.limit:
            return Finding.DEAF
        if deaf > self.limit / 2 and not self._told:
            self._told = True
            return Finding.UNHEARD
        return Finding.WELL

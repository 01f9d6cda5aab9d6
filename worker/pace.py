"""How fast a child speaks now, against how fast it did when it was fresh."""

from __future__ import annotations

from collections import deque
from itertools import islice
from statistics import median

WINDOW = 32
"""Items that a figure rests on; its median forgives a few odd texts."""
LEAST_AUDIO_SECONDS = 0.5
"""Shorter audio says more of the fixed cost of a call than of the pace."""


class Pace:
    """Real-time factors (seconds of device time per second of audio) of one child."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=WINDOW)

    def add(self, device_seconds: float, audio_seconds: float) -> None:
        """One item was spoken."""
        if audio_seconds < LEAST_AUDIO_SECONDS:
            return
        factor = device_seconds / audio_seconds
        if len(self._first) < WINDOW:
            self._first.append(factor)
        else:
            self._last.append(factor)

    @property
    def baseline(self) -> float | None:
        """Of the first good window; unknown before it is full."""
        return median(self._first) if len(self._first) == WINDOW else None

    @property
    def now(self) -> float | None:
        """Of the last items, as many as there are."""
        recent = self._last or self._first
        return median(islice(recent, WINDOW)) if recent else None

    @property
    def slowdown(self) -> float | None:
        """How many times slower than at first; unknown before two windows are full."""
        baseline, now = self.baseline, self.now
        if not baseline or now is None or len(self._last) < WINDOW:
            return None
        return now / baseline

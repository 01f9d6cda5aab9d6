"""How fast a child speaks now, against how fast it did when it was fresh.

Short audio and small batches take more time for each second of audio, so a call is compared
with the first calls of its own kind, and what people send next is not taken for rot.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from statistics import median

WINDOW = 32
"""Calls that a figure rests on; its median forgives a few odd texts."""
FIRST = 8
"""Calls of one kind that say how fast a fresh child is with it."""
LEAST_AUDIO_SECONDS = 0.5
"""Shorter audio says more of the fixed cost of a call than of the pace."""

Kind = tuple[int, int]
"""Segments in the call, and seconds of audio, both by size: see ``size``."""


class Pace:
    """Real-time factors (seconds of device time per second of audio) of one child."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._last: deque[float] = deque(maxlen=WINDOW)
        self._fresh: defaultdict[Kind, list[float]] = defaultdict(list)
        self._slowdowns: deque[float] = deque(maxlen=WINDOW)

    def add(self, device_seconds: float, audio_seconds: float, segments: int = 1) -> None:
        """The engine was called and gave so much audio for so many segments."""
        if audio_seconds < LEAST_AUDIO_SECONDS:
            return
        factor = device_seconds / audio_seconds
        self._last.append(factor)
        if len(self._first) < WINDOW:
            self._first.append(factor)
        fresh = self._fresh[size(segments), size(audio_seconds)]
        if len(fresh) < FIRST:
            fresh.append(factor)
        elif factor_when_fresh := median(fresh):
            self._slowdowns.append(factor / factor_when_fresh)

    @property
    def baseline(self) -> float | None:
        """Of the first window; unknown before it is full."""
        return median(self._first) if len(self._first) == WINDOW else None

    @property
    def now(self) -> float | None:
        """Of the last calls, as many as there are."""
        return median(self._last) if self._last else None

    @property
    def slowdown(self) -> float | None:
        """How many times slower than at first; unknown before there are calls enough."""
        return median(self._slowdowns) if len(self._slowdowns) == WINDOW else None


def size(value: float) -> int:
    """Equal for values that differ by less than the root of two: too little to look like rot."""
    return math.floor(2 * math.log2(value))

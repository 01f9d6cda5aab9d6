"""What calls of the engine take of memory: foretold by what earlier ones took, and watched.

A call is judged by what the process has at its peak beyond what it had before that very call: what
earlier ones have left behind is not its fault. What they left may well be a cache in which it finds
what it needs, so only the first call of each task tells what others will take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from voicemill.costs import Observations
from voicemill.errors import MemoryQuotaExceededError
from voicemill.health import MEBIBYTE
from voicemill.limits import Limits
from worker.peaks import PeakWatch

LEAST_CALLS = 3
"""First calls of tasks that must have been watched before anything is foretold."""


class Quota:
    """Keeps the calls of one engine in one child to a quota; ``look`` gives the bytes it has."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._most_bytes: int | None = None
        self._is_at_rest = False
        self._calls = 0
        self._seen = Observations()
        self.was_exceeded = False
        """Some call took more than it might: the child had better be replaced."""

    def begin(self, limits: Limits) -> None:
        """A task with these limits begins; nothing runs now. Without a quota nothing is watched."""
        most = limits.max_memory_mb
        self._most_bytes = None if most is None else most * MEBIBYTE
        self._is_at_rest = True

    def foretold(self, characters: int) -> int | None:
        """Bytes that a call of so many characters will take; nothing where too little is known."""
        if self._calls < LEAST_CALLS:
            return None
        line = self._seen.fit()
        return round(line.base + line.per_character * characters)

    def fitting(self, lengths: Sequence[int], most: int) -> int:
        """How many of the segments of these lengths the next call may have, ``most`` at the most.

        One while too little is known. Raises ``MemoryQuotaExceededError`` where the first alone
        would take too much.
        """
        if self._most_bytes is None:
            return most
        for count in range(min(most, len(lengths)), 0, -1):
            foretold = self.foretold(sum(lengths[:count]))
            if foretold is None:
                return 1
            if foretold <= self._most_bytes:
                return count
        raise exceeded("takes about", lengths[0], foretold or 0, self._most_bytes)

    @contextmanager
    def watched(self, lengths: Sequence[int]) -> Iterator[None]:
        """Watch the call that the ``with`` block makes.

        Raises ``MemoryQuotaExceededError`` at its end where one segment alone took too much. Of
        several nobody can tell which one did: the next calls will have fewer.
        """
        if self._most_bytes is None:
            yield
            return
        is_at_rest, self._is_at_rest = self._is_at_rest, False
        before, characters = self._look(), sum(lengths)
        with PeakWatch(self._look) as peak:
            yield
        took = max(0, peak.bytes - before)
        if is_at_rest:
            self._calls += 1
            self._seen = self._seen.and_one(characters, took)
        if took <= self._most_bytes:
            return
        self.was_exceeded = True
        if len(lengths) == 1:
            raise exceeded("took", characters, took, self._most_bytes)


def exceeded(verb: str, characters: int, taken: int, most_bytes: int) -> MemoryQuotaExceededError:
    """What a segment took or would take, and what it may."""
    return MemoryQuotaExceededError(
        f"A segment of {characters} characters {verb} {taken / MEBIBYTE:.1f} MiB of memory and may "
        f"take {most_bytes / MEBIBYTE:g}; give it in shorter sentences, or raise the quota."
    )

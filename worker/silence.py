"""Who neither works nor reads what the parent says: outside a batch nothing else limits a hang."""

from __future__ import annotations

from collections.abc import Iterable

PATIENCE_TICKS = 30
"""By ticks, not by the clock: a parent that was held up itself has not listened either."""


class Silence:
    """Counts for how many ticks of the parent's loop each child has been silent."""

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}

    def note(self, silent: Iterable[int]) -> list[int]:
        """Those who are silent at this tick; gives the pids that were for too long, each once."""
        self._ticks = {pid: self._ticks.get(pid, 0) + 1 for pid in silent}
        return [pid for pid, ticks in self._ticks.items() if ticks == PATIENCE_TICKS]

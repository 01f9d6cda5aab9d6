"""Whether a child may leave for another revision before its successor, where two don't fit.

One of the fleet at a time, and never the last that takes work: the revision may be one that can't
be loaded. What leaves for any other reason is as good as before when it comes back, and need not
ask.
"""

from __future__ import annotations

import logging
import os

from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.store import Store
from voicemill.workers import child_id, place_of
from worker.handover import Leaver
from worker.recycle import Reason

logger = logging.getLogger(__name__)


class Breaks:
    """Asks for the children of one worker."""

    def __init__(self, store: Store, node: str, engine: str, hold_seconds: float) -> None:
        """``hold_seconds`` is how long others wait for a worker that ended meanwhile."""
        self._store = store
        self._node = node
        self._engine = engine
        self._hold_seconds = hold_seconds
        self._allowed: set[int] = set()
        self._refused: dict[int, str] = {}

    @property
    def alerts(self) -> list[str]:
        """Who waits, and for what."""
        return list(self._refused.values())

    def may_leave(self, leaver: Leaver) -> bool:
        """Whether it may go before its successor is there; not while the store is away."""
        if leaver.wish.reason != Reason.MODEL or self._is_allowed(leaver):
            self._refused.pop(leaver.slot, None)
            return True
        if leaver.slot not in self._refused:
            self._refused[leaver.slot] = (
                f"Child {leaver.pid} keeps its revision: another does not fit beside it, and it is "
                "the last that takes work, or it is not its turn."
            )
            logger.warning("%s", self._refused[leaver.slot])
        return False

    def settle(self, slot: int) -> None:
        """Its child has loaded."""
        self._refused.pop(slot, None)
        if slot not in self._allowed:
            return
        self._allowed.discard(slot)
        try:
            self._store.end_break(self._engine, place_of(self._node, slot))
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("others wait for slot %d longer than they need: %s", slot, error)

    def forget(self, first: int) -> None:
        """Slots from ``first`` on are no more."""
        self._refused = {slot: one for slot, one in self._refused.items() if slot < first}

    def _is_allowed(self, leaver: Leaver) -> bool:
        child = child_id(self._node, os.getpid(), leaver.pid)
        place = place_of(self._node, leaver.slot)
        try:
            allowed = self._store.claim_break(self._engine, place, child, self._hold_seconds)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("whether child %d may leave can't be said: %s", leaver.pid, error)
            return False
        if allowed:
            self._allowed.add(leaver.slot)
        return allowed

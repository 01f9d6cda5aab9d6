"""Whether a successor may start beside the child it replaces: looks, and says why not."""

from __future__ import annotations

import logging
import time

from worker import memory
from worker.devices import Devices
from worker.handover import Leaver
from worker.headroom import FreeMemory, lack_of_room

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""How long memory of a child that left may take to come back."""


class Room:
    """Host and device memory for one more child of a worker."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._until: dict[int, float] = {}

    def is_left_for(self, leaver: Leaver, promised_bytes: int) -> bool:
        """Whether its successor fits when others that load have what they will take."""
        return self.lack(leaver, promised_bytes) is None

    def is_awaited_for(self, leaver: Leaver) -> bool:
        """True for some seconds while the memory of a child that left is not back."""
        until = self._until.setdefault(leaver.slot, time.monotonic() + PATIENCE_SECONDS)
        lack = self.lack(leaver)
        if lack is not None and time.monotonic() < until:
            return True
        del self._until[leaver.slot]
        if lack is not None:
            logger.error("slot %d is filled though there is little room: %s", leaver.slot, lack)
        return False

    def lack(self, leaver: Leaver, promised_bytes: int = 0) -> str | None:
        """Why its successor does not fit beside it, in words; nothing where it does."""
        host = memory.available_bytes() - promised_bytes
        free = FreeMemory(host, self._devices.free_bytes(leaver.device))
        return lack_of_room(leaver.wish.footprint, free)

"""Whether a child may load on its device now, beside those of every worker that uses it.

What children take shows in the driver's figures once they have loaded. Until then it is promised
to them in the store, so that two workers never fill the same gap.
"""

from __future__ import annotations

import logging

from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.settings import Settings
from voicemill.store import Store
from worker.devices import Devices
from worker.headroom import least_free

logger = logging.getLogger(__name__)

MEBIBYTE = 1024 * 1024


class Placement:
    """Asks for the slots of one worker. Where nothing is measured there is always room."""

    def __init__(
        self, store: Store, devices: Devices, node: str, engine: str, hold_seconds: float
    ) -> None:
        """``hold_seconds`` is how long a promise outlives a worker that ended while it loaded."""
        self._store = store
        self._devices = devices
        self._node = node
        self._engine = engine
        self._hold_seconds = hold_seconds
        self._promised: set[int] = set()

    def lack(self, slot: int) -> str | None:
        """What is not free for a child of this slot, in words; nothing once it may load."""
        return self._ask(slot, None)

    def is_promised(self, slot: int, gpu_bytes: int | None) -> bool:
        """Whether a successor that would fit may load, as nobody was promised that memory."""
        return gpu_bytes is None or self._ask(slot, gpu_bytes) is None

    def keep(self, slot: int, gpu_bytes: int | None) -> None:
        """Nobody else gets what a child gives back that leaves before its successor starts."""
        if gpu_bytes is not None:
            self._ask(slot, gpu_bytes, force=True)

    def settle(self, slot: int) -> None:
        """Its child has loaded, or has ended before it could."""
        if slot not in self._promised:
            return
        self._promised.discard(slot)
        try:
            self._store.release_room(self._devices.of(slot), self._name(slot))
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the promise to slot %d will run out: %s", slot, error)

    def _ask(self, slot: int, gpu_bytes: int | None, *, force: bool = False) -> str | None:
        device = self._devices.of(slot)
        sizes = self._devices.sizes(device)
        if sizes is None:
            return None
        try:
            wanted = self._measured() if gpu_bytes is None else gpu_bytes
            if wanted is None:
                return None
            return self._claim(slot, device, wanted, *sizes, force=force)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("slot %d loads without a promise of memory: %s", slot, error)
            return None

    def _measured(self) -> int | None:
        capabilities = self._store.engines().get(self._engine)
        if capabilities is None:
            return None
        footprint = self._store.footprint(self._engine, capabilities.model_revision)
        return footprint.gpu if footprint else None

    def _claim(
        self, slot: int, device: str, wanted: int, total: int, free: int, *, force: bool
    ) -> str | None:
        needed = least_free(wanted, total)
        granted, others = self._store.claim_room(
            *(device, self._name(slot), needed, free, self._hold_seconds), force=force
        )
        if granted:
            self._promised.add(slot)
            return None
        promised = f", {others // MEBIBYTE} of them promised to others" if others else ""
        return (
            f"{self._engine} needs {needed // MEBIBYTE} MiB of {device}, which has "
            f"{free // MEBIBYTE} free{promised}"
        )

    def _name(self, slot: int) -> str:
        return f"{self._node}/{slot}"


def slots_before(settings: Settings) -> int:
    """Children of those of the stack's engines that come before this worker's."""
    engines = list(settings.pools)
    return sum(settings.pools[engine] for engine in engines[: engines.index(settings.engine)])

"""The devices of one worker: which slot has which, what is free, who still holds memory."""

from __future__ import annotations

import time

from worker import numa
from worker.environment import CUDA_DEVICES, visible_devices
from worker.nvml import Driver

HOST = "host"
"""The name of the one device of a machine without GPUs."""
TEARDOWN_SECONDS = 15.0


class Devices:
    """Hands the GPUs out to slots, in turn; a successor gets the device of its slot."""

    def __init__(self, taken: int = 0) -> None:
        """``taken`` slots of other workers of the node come first."""
        self._taken = taken
        self._driver = Driver(visible_devices())
        self._uuids = [device.uuid for device in self._driver.look().devices]
        self._departed: dict[int, tuple[str, float]] = {}
        self._held: dict[int, str] = {}

    @property
    def alerts(self) -> list[str]:
        """Devices whose memory is still held by a process that ended."""
        return list(self._held.values())

    def of(self, slot: int) -> str:
        """The UUID of a slot's device, or ``host``."""
        return self._uuids[(self._taken + slot) % len(self._uuids)] if self._uuids else HOST

    def environment_of(self, slot: int) -> dict[str, str]:
        """What a child of this slot must find in its environment before it imports anything."""
        return {CUDA_DEVICES: self.of(slot)} if len(self._uuids) > 1 else {}

    def cores_near(self, slot: int, allowed: frozenset[int]) -> frozenset[int]:
        """Of the allowed cores, those beside a slot's device; none where there is no difference."""
        pci = self._driver.pci(self.of(slot)) if self._uuids else None
        return numa.cores_near(pci, allowed, numa.SYS) if pci else frozenset()

    def free_bytes(self, device: str) -> int | None:
        """Free memory of a device; not known without a driver."""
        sizes = self.sizes(device)
        return None if sizes is None else sizes[1]

    def sizes(self, device: str) -> tuple[int, int] | None:
        """Bytes of a device in all, and those that are free; not known without a driver."""
        for one in self._driver.look().devices:
            if one.uuid == device:
                return one.total_bytes, one.total_bytes - one.used_bytes
        return None

    def departed(self, pid: int, slot: int) -> None:
        """A child of this slot ended: its GPU memory must come back."""
        if self._uuids:
            self._departed[pid] = (self.of(slot), time.monotonic() + TEARDOWN_SECONDS)

    def watch(self) -> None:
        """Look whether the memory of those who ended came back; an alert where it did not."""
        if not self._departed:
            return
        look = self._driver.look()
        holders = {one.uuid: one.processes or {} for one in look.devices}
        for pid, (device, until) in list(self._departed.items()):
            if device not in holders:
                continue
            if pid not in holders[device]:
                del self._departed[pid]
                self._held.pop(pid, None)
            elif time.monotonic() > until and pid not in self._held:
                self._held[pid] = f"process {pid} ended and still holds memory of {device}"

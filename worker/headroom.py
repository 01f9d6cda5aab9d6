"""Whether one more child fits into memory beside the others."""

from __future__ import annotations

from dataclasses import dataclass

from worker.handover import Footprint

MARGIN = 1.2
"""A loading engine takes more for a moment than a warm one."""


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """What is free now, in bytes."""

    host: int
    gpu: int | None = None
    """On the device in question; not known without a driver."""


def lack_of_room(footprint: Footprint, free: FreeMemory) -> str | None:
    """What does not fit, in words; nothing when a child of this footprint does."""
    needs = [("host memory", footprint.host, free.host)]
    if footprint.gpu is not None and free.gpu is not None:
        needs.append(("GPU memory", footprint.gpu, free.gpu))
    for name, used, available in needs:
        if used * MARGIN > available:
            return f"{used * MARGIN / 2**20:.0f} MiB of {name} needed, {available / 2**20:.0f} free"
    return None

"""Whether one more child fits into memory beside the others."""

from __future__ import annotations

from dataclasses import dataclass

from voicemill.workers import Footprint

MARGIN = 1.2
"""A loading engine takes more for a moment than a warm one."""


EMPTY_SHARE = 0.9
"""Free share of a device on which nobody else is; the driver keeps a little for itself."""


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


def least_free(footprint_bytes: int, total_bytes: int) -> int:
    """Bytes that must be free of a device for a child to load there.

    An engine that takes all there is can start where next to nothing is used.
    """
    return min(footprint_bytes, int(EMPTY_SHARE * total_bytes))

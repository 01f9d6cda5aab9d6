"""What the recycle policy is told of a child between two batches."""

from __future__ import annotations

from dataclasses import dataclass

from voicemill.health import MEBIBYTE
from voicemill.parsers import MemoryLimit
from worker.cached_memory import CachedMemory


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of one kind at one instant, in bytes."""

    used: int
    total: int
    """Of the device, or what the cgroup allows."""
    baseline: int
    """Used by this child when it was warm."""

    def share_of(self, limit: MemoryLimit) -> float:
        """How much of the limit is used; above 1 it is passed."""
        match limit.kind:
            case "mebibytes":
                allowed = limit.value * MEBIBYTE
            case "share":
                allowed = limit.value * self.total
            case "baseline":
                allowed = limit.value * self.baseline
        return self.used / allowed if allowed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What is known of a child between two batches."""

    tasks: int = 0
    items: int = 0
    ready_at: float = 0.0
    """Seconds since the epoch, as is ``at``."""
    at: float = 0.0
    age_seconds: float = 0.0
    """Since it was ready, by a clock that nobody sets."""
    host_memory: MemoryUse | None = None
    gpu_memory: tuple[MemoryUse, ...] = ()
    """One for each device whose figure is known."""
    cached_memory: CachedMemory | None = None
    """Nothing where torch holds no device memory."""
    slowdown: float | None = None
    """How many times slower than when it was fresh."""
    errors_in_a_row: int = 0
    """Engine failures over different items since the last success."""
    poisoned: bool = False
    """The engine said that its process can't be used any more."""
    out_of_memory: bool = False
    """The engine had no memory left for an item that a fresh child may have it for."""
    requested: bool = False
    model_is_wanted: bool = True

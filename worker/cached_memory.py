"""What an engine may tell of torch's caching allocator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CachedMemory:
    """Device memory that torch holds, in bytes."""

    reserved: int
    allocated: int
    inactive_split: int = 0
    """Free pieces of blocks that are partly in use."""
    failed_while_free: bool = False
    """True once an allocation failed though as much was free."""
    is_emptied: bool = True
    """Whether the cache was emptied since it was last used; else much of it may be of use."""

    @property
    def wasted(self) -> int:
        """Held and of no use."""
        kept = self.reserved - self.allocated if self.is_emptied else 0
        return max(kept, self.inactive_split)

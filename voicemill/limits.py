"""What one item may take: of audio, of time, of memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that an item may take; nothing is no limit."""

    max_output_seconds: float | None = None
    """Of audio."""
    max_item_seconds: float | None = None
    """Of device time: its share of the calls of the engine that spoke it."""
    max_memory_mb: int | None = None
    """MiB that a call of the engine may take beyond what its process had before."""

    def within(self, other: Limits) -> Limits:
        """The stricter of the two, limit by limit."""
        return Limits(
            **{
                one.name: stricter(getattr(self, one.name), getattr(other, one.name))
                for one in fields(Limits)
            }
        )

    def to_record(self) -> dict[str, Any]:
        """The JSON object that the store keeps: what is limited."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Limits:
        """The limits that a record of this release or another one holds."""
        return cls(**{one.name: record.get(one.name) for one in fields(cls)})

    def __str__(self) -> str:
        shown = (
            (self.max_output_seconds, "s audio"),
            (self.max_item_seconds, "s device"),
            (self.max_memory_mb, " MiB"),
        )
        return ", ".join(f"{most:g}{unit}" for most, unit in shown if most is not None)


def stricter(one: Any, other: Any) -> Any:
    """The lower of two limits, each of which may be none."""
    return min((limit for limit in (one, other) if limit is not None), default=None)

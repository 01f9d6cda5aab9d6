"""How many seconds of device time a text takes: base + per_character x characters. Pure."""

from __future__ import annotations

from dataclasses import astuple, dataclass

DECAY = 0.99
"""Weight an observation keeps with each later one: about the last hundred count."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """The line through what was measured."""

    base: float
    """Seconds."""
    per_character: float
    """Seconds."""

    def seconds(self, characters: int) -> float:
        """Estimated device time."""
        return self.base + self.per_character * characters


UNMEASURED = CostModel(base=0.1, per_character=0.005)


@dataclass(frozen=True, slots=True)
class Observations:
    """Decaying sums over pairs of characters (x) and seconds (y)."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def and_one(self, x: float, y: float) -> Observations:
        """These with one more."""
        sums = zip(astuple(self), (1.0, x, y, x * x, x * y), strict=True)
        return Observations(*(DECAY * old + new for old, new in sums))

    def fit(self) -> CostModel:
        """Least squares with neither term below zero."""
        if self.n <= 0 or self.x <= 0:
            return UNMEASURED
        proportional = CostModel(0.0, self.xy / self.xx)
        spread = self.n * self.xx - self.x * self.x
        if spread <= 1e-9 * self.n * self.xx:
            return proportional
        slope = (self.n * self.xy - self.x * self.y) / spread
        base = (self.y - slope * self.x) / self.n
        if slope < 0:
            return CostModel(self.y / self.n, 0.0)
        if base < 0:
            return proportional
        return CostModel(base, slope)

"""The picture of a soak. The only part that needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

Points = Sequence[tuple[float, float]]
COLOURS = ("#1b6e9c", "#c4561a")


@dataclass(frozen=True, slots=True)
class Curves:
    """One side; seconds from the start, and what was measured then."""

    mebibytes: Points
    factors: Points


def draw(sides: Mapping[str, Curves], limit_mebibytes: float, file: Path) -> None:
    """Memory above, real-time factor below."""
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(9, 6), layout="constrained")
    for colour, (name, curves) in zip(COLOURS, sides.items(), strict=True):
        minutes = [at / 60 for at, _ in curves.mebibytes]
        above.plot(minutes, [value for _, value in curves.mebibytes], colour, lw=1, label=name)
        minutes = [at / 60 for at, _ in curves.factors]
        factors = [value for _, value in curves.factors]
        below.plot(minutes, factors, ".", color=colour, ms=2, label=name)
    above.axhline(limit_mebibytes, color="grey", ls="--", lw=1, label="limit")
    above.set(ylabel="memory of the largest child, MiB", yscale="log")
    below.set(ylabel="real-time factor of each item", xlabel="minutes", yscale="log")
    for panel in (above, below):
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.3)
        panel.legend(loc="upper left")
    figure.savefig(file, format="png", dpi=90)

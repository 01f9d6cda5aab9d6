"""What will be done to a stack, drawn from a seed before anything happens. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Deed = Literal["kill", "freeze", "term", "cut", "stall", "slow", "fill"]

PARTS = ("child", "child", "worker", "redis", "api", "clerk")
DEEDS: tuple[Deed, ...] = (
    "kill",
    "kill",
    "kill",
    "freeze",
    "freeze",
    "term",
    "cut",
    "stall",
    "slow",
)
"""As likely as they are frequent here; a disk is filled once in a round."""
FROZEN_SECONDS = (0.5, 8.0)
LONGEST_OUTAGE_SECONDS = 2.5
"""Of what everything waits for, so that a round comes to its end."""
PAUSE_SECONDS = (0.0, 1.5)
BURST = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    deed: Deed
    part: str = ""
    """Whom it befalls; the network and the disk are nobody's."""
    seconds: float = 0.0
    """How long it lasts."""

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.deed} {self.part}".strip() + lasting


@dataclass(frozen=True, slots=True)
class Burst:
    """Faults that follow each other closely, some before the stack is up again."""

    faults: tuple[Fault, ...]
    pauses: tuple[float, ...]
    """Seconds after each."""


def plan(seed: int, rounds: int, faults: int, *, can_fill: bool) -> list[list[Burst]]:
    """So many faults for each round; the same for the same seed."""
    chance = random.Random(seed)
    return [plan_round(chance, faults, can_fill=can_fill) for _ in range(rounds)]


def plan_round(chance: random.Random, count: int, *, can_fill: bool) -> list[Burst]:
    """Bursts with ``count`` faults in all."""
    faults = [draw(chance) for _ in range(count)]
    if can_fill:
        faults[chance.randrange(count)] = Fault("fill", seconds=chance.uniform(1.0, 3.0))
    bursts = []
    while faults:
        size = chance.randint(1, min(BURST, len(faults)))
        pauses = tuple(chance.uniform(*PAUSE_SECONDS) for _ in range(size))
        bursts.append(Burst(tuple(faults[:size]), pauses))
        del faults[:size]
    return bursts


def draw(chance: random.Random) -> Fault:
    """Any fault but a full disk."""
    deed = chance.choice(DEEDS)
    if deed == "cut":
        return Fault(deed)
    if deed in {"stall", "slow"}:
        return Fault(deed, seconds=chance.uniform(0.5, LONGEST_OUTAGE_SECONDS))
    part = chance.choice(PARTS)
    if deed == "freeze":
        longest = LONGEST_OUTAGE_SECONDS if part == "redis" else FROZEN_SECONDS[1]
        return Fault(deed, part, chance.uniform(FROZEN_SECONDS[0], longest))
    return Fault(deed, part)


def count(bursts: Sequence[Burst]) -> int:
    """Faults in all."""
    return sum(len(burst.faults) for burst in bursts)

"""What will be done to a stack, drawn from a seed before anything happens. Pure.

Faults are dealt like cards: each kind falls once, in an order that the seed gives, before any falls
again. So a short run, too, has met all that it is long enough for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Deed = Literal["kill", "term", "freeze", "outlast", "cut", "stall", "slow", "fill"]

LEASE_SECONDS = 5.0
"""Of the stack that is hurt; a child that is frozen for longer has lost what it held."""
PAUSE_SECONDS = (0.0, 1.0)
BURST = 3


@dataclass(frozen=True, slots=True)
class Kind:
    """What may go wrong, and for how long."""

    deed: Deed
    part: str = ""
    """Whom it befalls; the network and the disk are nobody's."""
    shortest: float = 0.0
    longest: float = 0.0


PARTS = ("child", "worker", "clerk", "api")
KINDS = (
    *(Kind("kill", part) for part in PARTS),
    *(Kind("term", part) for part in PARTS),
    *(Kind("freeze", part, 0.5, 1.6 * LEASE_SECONDS) for part in PARTS),
    Kind("outlast", "child", 1.6 * LEASE_SECONDS, 2 * LEASE_SECONDS),
    # What everything waits for is back soon, so that a round comes to its end.
    Kind("kill", "redis", 0.0, 1.5),
    Kind("term", "redis", 0.0, 1.5),
    Kind("freeze", "redis", 0.5, 2.5),
    Kind("stall", "", 0.5, 2.5),
    Kind("slow", "", 0.5, 2.5),
    Kind("fill", "", 1.0, 3.0),
    Kind("cut"),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    deed: Deed
    part: str = ""
    seconds: float = 0.0
    """How long it lasts; of a server that is ended, how long it stays away."""
    pick: int = 0
    """Which of the processes of its part, counted round."""

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
    dealt = deal(chance, [kind for kind in KINDS if can_fill or kind.deed != "fill"])
    return [list(bursts(chance, list(islice(dealt, faults)))) for _ in range(rounds)]


def deal(chance: random.Random, kinds: Sequence[Kind]) -> Iterator[Fault]:
    """Faults without end, each kind once before any comes again."""
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            seconds = chance.uniform(kind.shortest, kind.longest)
            yield Fault(kind.deed, kind.part, seconds, chance.randrange(2**16))


def bursts(chance: random.Random, faults: Sequence[Fault]) -> Iterator[Burst]:
    """The same faults, a few at a time."""
    while faults:
        size = chance.randint(1, min(BURST, len(faults)))
        yield Burst(
            tuple(faults[:size]), tuple(chance.uniform(*PAUSE_SECONDS) for _ in range(size))
        )
        faults = faults[size:]


def count(bursts: Sequence[Burst]) -> int:
    """Faults in all."""
    return sum(len(burst.faults) for burst in bursts)

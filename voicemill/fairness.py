"""Who goes next on a device that many share: start-time fair queueing by cost. Pure.

``lua/parts/fair.lua`` keeps the same tags in Redis; a test drives both and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

PRIORITIES: Final = range(-2, 3)
LEAD_SECONDS: Final = 60.0
"""How far ahead of its turn a tenant may be and still have its interactive work go first."""
KEEPING_SLOTS_FROM: Final = 4
"""Below that many slots none is kept: one of two would halve what bulk work gets."""
INTERACTIVE_CHARACTERS: Final = 1000
"""A job of one text, up to so long, is interactive unless it says otherwise."""


class JobClass(StrEnum):
    """Whether somebody is waiting for a job."""

    INTERACTIVE = "interactive"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a job stands among those that wait."""

    job_class: JobClass = JobClass.BULK
    priority: int = 0
    """Among the jobs of its tenant and class, -2 to 2; higher goes first."""
    fairness_key: str = ""
    """Jobs of one tenant with different keys share what the tenant gets."""


def default_class(lengths: Iterable[int]) -> JobClass:
    """The class of a job that does not say: one short text is what somebody waits for."""
    match list(lengths):
        case [characters] if characters <= INTERACTIVE_CHARACTERS:
            return JobClass.INTERACTIVE
    return JobClass.BULK


def kept_slots(slots: int, wanted: int) -> int:
    """How many of an engine's slots bulk work may not take."""
    return min(wanted, slots - 1) if slots >= KEEPING_SLOTS_FROM else 0


def class_to_serve(interactive: float | None, bulk: float | None) -> JobClass | None:
    """Which class has the next turn, by the lowest start tag in each; nothing when none waits.

    Interactive work goes first, until its tenant is so far ahead that others would starve.
    """
    if interactive is None:
        return None if bulk is None else JobClass.BULK
    if bulk is None or interactive <= bulk + LEAD_SECONDS:
        return JobClass.INTERACTIVE
    return JobClass.BULK


@dataclass(slots=True)
class Tags:
    """Start and finish tags of those who share a device: seconds divided by their weight."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """1 for who is not named."""
    virtual: float = 0.0
    """The start tag of what was served last: who comes now begins here, without credit."""
    start: dict[str, float] = field(default_factory=dict)
    """Of each member that has something waiting."""
    finish: dict[str, float] = field(default_factory=dict)
    """Where each member that was ever served may go on."""

    def enter(self, member: str) -> None:
        """A member has something waiting."""
        self.start.setdefault(member, max(self.virtual, self.finish.get(member, 0.0)))

    def leave(self, member: str) -> None:
        """A member has nothing waiting any more."""
        self.start.pop(member, None)

    def first(self) -> str | None:
        """Who goes next: the lowest start tag, then the name."""
        return min(self.start, key=lambda member: (self.start[member], member), default=None)

    def charge(self, member: str, seconds: float) -> None:
        """A member is served, for so long as is estimated."""
        begun = self.start[member]
        self.virtual = max(self.virtual, begun)
        self.start[member] = self.finish[member] = begun + seconds / self.weight(member)

    def correct(self, member: str, seconds: float) -> None:
        """What a member was served took so much longer than estimated (or shorter, below 0).

        The tag it waits with is corrected too: that is the one that decides. Who was away
        meanwhile and came back at a later tag keeps that one.
        """
        before = self.finish[member]
        after = self.finish[member] = before + seconds / self.weight(member)
        waiting = self.start.get(member)
        if waiting is not None:
            self.start[member] = after if waiting == before else max(waiting, after)

    def weight(self, member: str) -> float:
        """A member's share, relative to the others'."""
        return self.weights.get(member, 1.0)

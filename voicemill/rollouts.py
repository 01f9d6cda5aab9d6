"""How another revision of a model comes into use: a few children first, then all or none. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

BASE = "base"
"""The revision that the workers' own settings make."""
REVISION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
REVISION_SEPARATOR = "@"


@dataclass(frozen=True, slots=True)
class Revision:
    """A model as its children load it, by a name that is given once."""

    name: str = BASE
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the engine, put over those of the worker's settings."""

    def of_model(self, model_revision: str) -> str:
        """What records call a model of this revision whose own revision is ``model_revision``."""
        return model_revision if self.name == BASE else f"{model_revision}+{self.name}"


def lane(engine: str, revision: str | None) -> str:
    """Where items wait: with all others of their engine, or with those of one revision."""
    return engine if revision is None else f"{engine}{REVISION_SEPARATOR}{revision}"


def engine_of(lane: str) -> str:
    """The engine whose children a lane waits for."""
    return lane.partition(REVISION_SEPARATOR)[0]


def revision_of(lane: str) -> str | None:
    """The revision that a lane waits for; nothing for that of all others."""
    return lane.partition(REVISION_SEPARATOR)[2] or None


class RolloutStatus(StrEnum):
    """How far a rollout is."""

    CANARY = "canary"
    """Some children have the new revision, the others the old one."""
    PROMOTING = "promoting"
    """One child after the other gets the new one."""
    ROLLING_BACK = "rolling_back"
    """Those that had got the new one get the old one back."""
    COMPLETED = "completed"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    """It was rolled back because a child could not load it."""


ENDED = frozenset({RolloutStatus.COMPLETED, RolloutStatus.ROLLED_BACK, RolloutStatus.FAILED})


@dataclass(frozen=True, slots=True)
class Canary:
    """Who gets the new revision first: so many children, or a share of them.

    With ``tenants``, these children speak for them alone, and the others for everybody else.
    """

    children: int | None = None
    percent: float | None = None
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """When the new revision is good enough, or too bad, next to the old one."""

    min_attempts: int = 100
    """Of items, by each of the two, before anything is judged."""
    max_failure_increase: float = 0.01
    """By how much its share of failed attempts may be higher."""
    max_slowdown: float = 1.2
    """How many times its real-time factor may be that of the old one."""
    max_memory: float = 1.2
    """How many times its memory may be that of the old one."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Rule:
        """The rule that a record of this release or another one holds."""
        return cls(**{one.name: record[one.name] for one in fields(cls) if one.name in record})


USUAL_RULE = Rule()


@dataclass(frozen=True, slots=True)
class Figures:
    """What the children of one revision did since the rollout began."""

    attempts: int = 0
    """At items, that ended well or not."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Attempts that failed, by the code of their error."""
    audio_seconds: float = 0.0
    device_seconds: float = 0.0
    children: int = 0
    """That live now."""
    host_bytes: int = 0
    """Of the largest of them."""
    gpu_bytes: int | None = None

    @property
    def failure_share(self) -> float:
        """Of its attempts."""
        return sum(self.failures.values()) / self.attempts if self.attempts else 0.0

    @property
    def real_time_factor(self) -> float | None:
        """Device time per audio."""
        return self.device_seconds / self.audio_seconds if self.audio_seconds else None

    @property
    def memory_bytes(self) -> int:
        """Of a device where it is known, else of the host."""
        return self.host_bytes if self.gpu_bytes is None else self.gpu_bytes


@dataclass(frozen=True, slots=True)
class Rollout:
    """One change from a revision to another."""

    id: str
    engine: str
    revision: Revision
    previous: str
    """Name of the revision that it is to replace."""
    status: RolloutStatus
    canary: Canary
    rule: Rule | None
    """Nothing: it goes on by hand."""
    created_at: float
    promoted_at: float | None = None
    ended_at: float | None = None
    reason: str | None = None
    """Why it was promoted or rolled back."""

    @property
    def wanted(self) -> str:
        """Name of the revision that all children are to have once it ends."""
        is_new = self.status in {RolloutStatus.PROMOTING, RolloutStatus.COMPLETED}
        return self.revision.name if is_new else self.previous


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule says."""

    action: Literal["promote", "roll_back"]
    reason: str


def judge(rule: Rule, old: Figures, new: Figures) -> Verdict | None:
    """What becomes of a canary; nothing while too little is known.

    For one that fails too often the old one need not have as many attempts, nor where no child is
    left to make them.
    """
    if new.attempts < rule.min_attempts:
        return None
    if new.failure_share > old.failure_share + rule.max_failure_increase:
        return Verdict("roll_back", f"{compared(new, old)} of its attempts failed.")
    if old.attempts < rule.min_attempts and old.children:
        return None
    slower = ratio(new.real_time_factor, old.real_time_factor)
    if slower > rule.max_slowdown:
        return Verdict(
            "roll_back", f"It is {slower:.2f} times as slow and may be {rule.max_slowdown:g} times."
        )
    larger = ratio(new.memory_bytes, old.memory_bytes)
    if larger > rule.max_memory:
        return Verdict(
            "roll_back", f"It takes {larger:.2f} times the memory and may take {rule.max_memory:g}."
        )
    return Verdict(
        "promote",
        f"{compared(new, old)} of its attempts failed; it takes {slower:.2f} times the device time "
        f"and {larger:.2f} times the memory.",
    )


def compared(new: Figures, old: Figures) -> str:
    """Shares of failed attempts."""
    return f"{new.failure_share:.1%} (before: {old.failure_share:.1%})"


def ratio(new: float | None, old: float | None) -> float:
    """How many times the old; 1 where there is nothing to compare."""
    return new / old if new and old else 1.0


def new_rollout_id() -> str:
    """A fresh rollout id."""
    return f"rollout_{uuid.uuid4().hex}"

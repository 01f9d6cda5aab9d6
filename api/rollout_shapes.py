"""The JSON of rollouts: its shapes, and how it is made."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from voicemill.rollouts import Canary, Figures, RolloutStatus
from voicemill.store import Measured


class CanaryShape(TypedDict):
    """Who has the new revision first."""

    children: int | None
    percent: float | None
    tenants: list[str]


class RuleShape(TypedDict):
    """What decides."""

    min_attempts: int
    max_failure_increase: float
    max_slowdown: float
    max_memory: float


class FiguresShape(TypedDict):
    """What the children of one revision did since the rollout began."""

    revision: str
    children: int
    """That live now."""
    attempts: int
    failures: dict[str, int]
    """Of those attempts, by the code of the error."""
    failure_share: float
    real_time_factor: float | None
    audio_seconds: float
    memory_bytes: int
    """Of the largest child: of its device where that is known, else of the host."""


class RolloutBody(TypedDict):
    """A change from one revision of a model to another."""

    id: str
    object: Literal["rollout"]
    model: str
    revision: str
    options: dict[str, Any]
    status: RolloutStatus
    reason: str | None
    canary: CanaryShape
    rule: RuleShape | None
    old: FiguresShape
    new: FiguresShape
    created_at: int
    promoted_at: int | None
    ended_at: int | None


def rollout_body(measured: Measured) -> RolloutBody:
    """A rollout with what its two revisions do."""
    one = measured.rollout
    return {
        "id": one.id,
        "object": "rollout",
        "model": one.engine,
        "revision": one.revision.name,
        "options": dict(one.revision.options),
        "status": one.status,
        "reason": one.reason,
        "canary": canary_shape(one.canary),
        "rule": None
        if one.rule is None
        else {
            "min_attempts": one.rule.min_attempts,
            "max_failure_increase": one.rule.max_failure_increase,
            "max_slowdown": one.rule.max_slowdown,
            "max_memory": one.rule.max_memory,
        },
        "old": figures_shape(one.previous, measured.old),
        "new": figures_shape(one.revision.name, measured.new),
        "created_at": int(one.created_at),
        "promoted_at": None if one.promoted_at is None else int(one.promoted_at),
        "ended_at": None if one.ended_at is None else int(one.ended_at),
    }


def canary_shape(canary: Canary) -> CanaryShape:
    """Who goes first."""
    return {
        "children": canary.children,
        "percent": canary.percent,
        "tenants": list(canary.tenants),
    }


def figures_shape(revision: str, figures: Figures) -> FiguresShape:
    """What a revision did."""
    factor = figures.real_time_factor
    return {
        "revision": revision,
        "children": figures.children,
        "attempts": figures.attempts,
        "failures": dict(figures.failures),
        "failure_share": round(figures.failure_share, 6),
        "real_time_factor": None if factor is None else round(factor, 6),
        "audio_seconds": round(figures.audio_seconds, 3),
        "memory_bytes": figures.memory_bytes,
    }

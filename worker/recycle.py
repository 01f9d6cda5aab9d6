"""When a child should be replaced, and why. Pure; everything else obeys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from voicemill.health import MEBIBYTE
from voicemill.parsers import MemoryLimit
from voicemill.settings import Settings
from worker.cached_memory import CachedMemory
from worker.measurements import Measurements, MemoryUse
from worker.schedule import Schedule

MOST_JITTER = 0.1
"""Share of a limit by which the children of a worker differ, lest they come to it together."""


class Reason(StrEnum):
    """Why a child is replaced; in the order in which they are looked at."""

    ERRORS = "errors"
    REQUESTED = "requested"
    MODEL = "model"
    FRAGMENTATION = "fragmentation"
    GPU_MEMORY = "gpu_memory"
    HOST_MEMORY = "host_memory"
    SLOW = "slow"
    TASKS = "tasks"
    AGE = "age"
    SCHEDULE = "schedule"


AT_ONCE = frozenset({Reason.ERRORS})
"""Reasons for which a child leaves before its successor is there: it does harm."""
IN_TURN = frozenset({Reason.SCHEDULE})
"""Reasons that all children of a node have at once, whatever their devices, and that can wait."""
ROT = frozenset({Reason.GPU_MEMORY, Reason.FRAGMENTATION, Reason.HOST_MEMORY, Reason.SLOW})
"""What a new process cures, for a while."""
NEEDS_A_LIFE = ROT | {Reason.AGE, Reason.SCHEDULE}
"""Reasons that wait until the child has lived for a while, lest it does nothing but load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits in force; nothing means off."""

    max_tasks: int | None = None
    max_items: int | None = None
    min_age_seconds: float = 0.0
    max_age_seconds: float | None = None
    host_memory: MemoryLimit | None = None
    gpu_memory: MemoryLimit | None = None
    fragmentation: float | None = None
    """Share of torch's memory that may be wasted."""
    fragmentation_floor: int = 0
    """Bytes that may be wasted whatever their share."""
    slowdown: float | None = None
    max_errors: int | None = None
    schedule: Schedule | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> Policy:
        """What the settings say; raises ``SettingsError`` for a schedule that is none."""
        return cls(
            max_items=settings.max_items_per_child,
            min_age_seconds=settings.min_age_seconds,
            max_age_seconds=settings.max_age_seconds,
            host_memory=settings.host_memory_limit,
            gpu_memory=settings.gpu_memory_limit,
            fragmentation=settings.fragmentation_limit,
            fragmentation_floor=settings.fragmentation_floor_mb * MEBIBYTE,
            slowdown=settings.max_slowdown,
            max_errors=settings.max_errors,
            schedule=None if settings.recycle_at is None else Schedule.parse(settings.recycle_at),
        )

    def with_celery(self, *, max_tasks: int | None, max_memory_kib: int | None) -> Policy:
        """The same with what Celery's own options say of tasks and host memory on top."""
        host_memory = self.host_memory
        if max_memory_kib is not None:
            host_memory = MemoryLimit("mebibytes", max_memory_kib / 1024)
        return replace(self, max_tasks=max_tasks, host_memory=host_memory)

    def with_jitter(self, drawn: float) -> Policy:
        """Limits of count and age lowered by up to a tenth; ``drawn`` is in [0, 1)."""
        share = MOST_JITTER * drawn
        return replace(
            self,
            max_tasks=lowered(self.max_tasks, share),
            max_items=lowered(self.max_items, share),
            max_age_seconds=None
            if self.max_age_seconds is None
            else self.max_age_seconds * (1 - share),
        )

    def without(self, reasons: Collection[Reason]) -> Policy:
        """The same with the limits of these kinds of memory off."""
        return replace(
            self,
            gpu_memory=None if Reason.GPU_MEMORY in reasons else self.gpu_memory,
            host_memory=None if Reason.HOST_MEMORY in reasons else self.host_memory,
        )

    def __str__(self) -> str:
        limits = {
            "tasks": self.max_tasks,
            "items": self.max_items,
            "gpu_memory": self.gpu_memory,
            "fragmentation": self.fragmentation and f"{self.fragmentation:.0%}",
            "host_memory": self.host_memory,
            "slow": self.slowdown and f"{self.slowdown:g}x",
            "errors": self.max_errors,
            "age": self.max_age_seconds and f"{self.max_age_seconds:g}s",
            "schedule": self.schedule,
        }
        return " ".join(f"{name}={'off' if v is None else v}" for name, v in limits.items())


def lowered(limit: int | None, share: float) -> int | None:
    """A count a little lower, never below one; limits under ten stay as they are."""
    return None if limit is None else max(1, limit - int(limit * share))


def pressures(policy: Policy, now: Measurements) -> dict[Reason, float]:
    """How near each limit is: 1 means it is reached. Limits that are off do not show."""
    found: dict[Reason, float | None] = {
        Reason.ERRORS: 1.0 if now.poisoned else ratio(now.errors_in_a_row, policy.max_errors),
        Reason.REQUESTED: 1.0 if now.requested else None,
        Reason.MODEL: None if now.model_is_wanted else 1.0,
        Reason.FRAGMENTATION: wasted(policy, now.cached_memory),
        Reason.GPU_MEMORY: 1.0
        if now.out_of_memory and now.gpu_memory
        else most(used(use, policy.gpu_memory) for use in now.gpu_memory),
        Reason.HOST_MEMORY: 1.0
        if now.out_of_memory and not now.gpu_memory
        else used(now.host_memory, policy.host_memory),
        Reason.SLOW: ratio(now.slowdown, policy.slowdown),
        Reason.TASKS: most(
            [ratio(now.tasks, policy.max_tasks), ratio(now.items, policy.max_items)]
        ),
        Reason.AGE: ratio(now.age_seconds, policy.max_age_seconds),
        Reason.SCHEDULE: scheduled(policy.schedule, now),
    }
    return {reason: share for reason, share in found.items() if share is not None}


def reason_to_leave(policy: Policy, now: Measurements) -> Reason | None:
    """The first limit that is reached, or nothing.

    A healthy child lives for a while first, and does one task at least where the reason is that
    it rots: where a limit lies below what a fresh child needs, work still goes on.
    """
    for reason, share in pressures(policy, now).items():
        is_young = now.age_seconds < policy.min_age_seconds
        if reason in NEEDS_A_LIFE and is_young:
            continue
        if reason in ROT and now.tasks == 0:
            continue
        if share >= 1:
            return reason
    return None


def over_by_nature(policy: Policy, warm: Measurements) -> list[Reason]:
    """Memory limits that a child passes before it has done anything; obeying them never ends."""
    found = pressures(policy, warm)
    return [one for one in (Reason.GPU_MEMORY, Reason.HOST_MEMORY) if found.get(one, 0.0) >= 1]


def used(use: MemoryUse | None, limit: MemoryLimit | None) -> float | None:
    """The share of a memory limit that is used, where both are known."""
    return None if use is None or limit is None else use.share_of(limit)


def most(shares: Iterable[float | None]) -> float | None:
    """The highest of those that are known."""
    return max((share for share in shares if share is not None), default=None)


def ratio(value: float | None, limit: float | None) -> float | None:
    """The share of a limit that a value is, where both are known."""
    return None if value is None or limit is None else value / limit


def wasted(policy: Policy, cached: CachedMemory | None) -> float | None:
    """How near torch's waste is to its limit."""
    if cached is None or policy.fragmentation is None:
        return None
    if cached.failed_while_free:
        return 1.0
    allowed = max(policy.fragmentation * cached.reserved, policy.fragmentation_floor)
    return cached.wasted / allowed if allowed else 0.0


def scheduled(schedule: Schedule | None, now: Measurements) -> float | None:
    """How much of the time from ready to the scheduled moment has gone by."""
    if schedule is None:
        return None
    moment = schedule.next_after(now.ready_at)
    return (now.at - now.ready_at) / (moment - now.ready_at)

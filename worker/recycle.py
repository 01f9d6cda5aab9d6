"""When a child should leave, and why. One pure function; everything else obeys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from voicemill.health import MEBIBYTE
from voicemill.settings import MemoryLimit, Settings


class Reason(StrEnum):
    """Why a child is replaced."""

    TASKS = "tasks"
    GPU_MEMORY = "gpu_memory"
    HOST_MEMORY = "host_memory"
    AGE = "age"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of one kind at one instant, in bytes."""

    used: int
    total: int
    """Of the device, or what the cgroup allows."""
    baseline: int
    """Used by this child when it was warm."""

    def exceeds(self, limit: MemoryLimit) -> bool:
        """True when the use is over the limit."""
        match limit.kind:
            case "mebibytes":
                return self.used > limit.value * MEBIBYTE
            case "share":
                return self.used > limit.value * self.total
            case "baseline":
                return self.used > limit.value * self.baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """What is known of a child between two batches."""

    tasks: int = 0
    items: int = 0
    age_seconds: float = 0.0
    """Since it was ready."""
    host_memory: MemoryUse | None = None
    gpu_memory: tuple[MemoryUse, ...] = ()
    """On each device where it is known; none where there is no driver."""
    poisoned: bool = False
    """The engine said that its process can't be used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits in force; nothing means off."""

    max_tasks: int | None = None
    max_items: int | None = None
    max_age_seconds: float | None = None
    host_memory: MemoryLimit | None = None
    gpu_memory: MemoryLimit | None = None

    @classmethod
    def from_settings(
        cls, settings: Settings, *, max_tasks: int | None, max_memory_kib: int | None
    ) -> Policy:
        """The settings, with what Celery's own options say of tasks and host memory on top."""
        host_memory = settings.host_memory_limit
        if max_memory_kib is not None:
            host_memory = MemoryLimit("mebibytes", max_memory_kib / 1024)
        return cls(
            max_tasks=max_tasks,
            max_items=settings.max_items_per_child,
            max_age_seconds=settings.max_age_seconds,
            host_memory=host_memory,
            gpu_memory=settings.gpu_memory_limit,
        )

    def __str__(self) -> str:
        limits = {
            "tasks": self.max_tasks,
            "items": self.max_items,
            "age": self.max_age_seconds and f"{self.max_age_seconds:g}s",
            "host_memory": self.host_memory,
            "gpu_memory": self.gpu_memory,
        }
        return " ".join(f"{name}={'off' if v is None else v}" for name, v in limits.items())


def reason_to_leave(policy: Policy, now: Measurements) -> Reason | None:
    """The first limit that is passed, or nothing.

    A healthy child does one task at least: where a limit lies below what a fresh
    child needs, work still goes on.
    """
    if now.tasks == 0 and not now.poisoned:
        return None
    passed = {
        Reason.ERRORS: now.poisoned,
        Reason.GPU_MEMORY: any(is_over(use, policy.gpu_memory) for use in now.gpu_memory),
        Reason.HOST_MEMORY: is_over(now.host_memory, policy.host_memory),
        Reason.TASKS: reaches(now.tasks, policy.max_tasks) or reaches(now.items, policy.max_items),
        Reason.AGE: reaches(now.age_seconds, policy.max_age_seconds),
    }
    return next((reason for reason, holds in passed.items() if holds), None)


def is_over(use: MemoryUse | None, limit: MemoryLimit | None) -> bool:
    """True when both are known and the use is over the limit."""
    return use is not None and limit is not None and use.exceeds(limit)


def reaches(value: float, limit: float | None) -> bool:
    """True when there is a limit and the value has come to it."""
    return limit is not None and value >= limit

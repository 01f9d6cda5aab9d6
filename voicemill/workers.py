"""What workers and their children say of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

RECYCLES_KEPT = 10
Order = Literal["recycle", "drain", "resume"]
ChildState = Literal["loading", "ready", "busy", "draining", "leaving"]


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """How many sessions of attempts a child has opened, and destroyed."""

    opened: int = 0
    destroyed: int = 0

    @property
    def open(self) -> int:
        """How many there are now: none while the child does nothing."""
        return self.opened - self.destroyed

    def __add__(self, more: SessionCounts) -> SessionCounts:
        return SessionCounts(self.opened + more.opened, self.destroyed + more.destroyed)

    def __sub__(self, less: SessionCounts) -> SessionCounts:
        return SessionCounts(self.opened - less.opened, self.destroyed - less.destroyed)


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """What a child says of itself with each heartbeat."""

    id: str
    node: str
    pid: int
    engine: str
    model_revision: str
    ready_at: float
    revision: str | None = None
    """As a rollout names it; an older release says nothing of it."""
    warmup_seconds: float = 0.0
    tasks: int = 0
    items: int = 0
    rss_bytes: int = 0
    rss_baseline_bytes: int = 0
    gpu: dict[str, Any] = field(default_factory=dict)
    """Memory per device as ``worker.gpu`` reads it, or why it is not known."""
    gpu_baseline_bytes: dict[str, int] = field(default_factory=dict)
    """Own memory when it was warm, by device."""
    real_time_factor: float | None = None
    real_time_factor_baseline: float | None = None
    next_reason: str | None = None
    """The limit it is nearest to."""
    nearness: float = 0.0
    """How near: 1 is the limit."""
    over_by_nature: list[str] = field(default_factory=list)
    """Limits that a fresh child passes already; they are not obeyed."""
    trouble: str | None = None
    """Code of what keeps it from taking work."""
    trouble_detail: str | None = None
    takes_work: bool = True
    """As its last beat said."""
    sessions: SessionCounts = field(default_factory=SessionCounts)
    """Since it was ready."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that one more child of this kind needs, in bytes."""

    host: int = 0
    gpu: int | None = None
    """On its device; not known without a driver."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A child's process as its parent sees it, loaded or not."""

    pid: int
    slot: int
    state: ChildState


@dataclass(frozen=True, slots=True)
class RecycleRecord:
    """One child that was replaced."""

    at: float
    pid: int
    successor: int | None
    """Nothing where the child left before its successor was started."""
    reason: str
    handover_seconds: float | None = None
    """From the start of the successor until it was ready."""
    warmup_seconds: float | None = None
    """What of that its engine took to load and to speak."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What a worker's parent says each second."""

    node: str
    pid: int
    engine: str
    started_at: float
    processes: list[ProcessRecord] = field(default_factory=list)
    recycles: list[RecycleRecord] = field(default_factory=list)
    """The last ones, newest last."""
    failure: str | None = None
    """Why the last successor did not come up; nothing once one did."""
    alerts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who has a node name: one process of one worker."""

    incarnation: str
    pid: int
    machine: str
    """Where its pid means something."""
    born: float
    """What tells it from other processes of its pid."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What operators asked of a child and of its node."""

    recycles: int = 0
    """How often a recycle was asked for, ever; more than when it was ready means now."""
    drain: bool = False
    revision: str | None = None
    """The one that this child should have; nothing was said of it yet."""
    voice_deletions: int = 0
    """Voices that were ever deleted; more than at the last beat means that one may be forgotten."""
    lanes: tuple[str, ...] = ()
    """That the child takes work from."""


def child_id(node: str, parent_pid: int, pid: int) -> str:
    """The name of a child's process, the same on both sides of its start."""
    return f"{node}:{parent_pid}:{pid}"


def place_of(node: str, slot: int) -> str:
    """The name of a slot of a worker, which one child after another holds."""
    return f"{node}/{slot}"


def child_from_record(record: dict[str, Any]) -> ChildRecord:
    """Read back what ``dataclasses.asdict`` made; fields of a later version are left alone."""
    sessions = SessionCounts(**known_fields(SessionCounts, record.get("sessions", {})))
    return ChildRecord(**{**known_fields(ChildRecord, record), "sessions": sessions})


def worker_from_record(record: dict[str, Any]) -> WorkerRecord:
    """The same for a worker."""
    parts: dict[str, type[Any]] = {"processes": ProcessRecord, "recycles": RecycleRecord}
    lists = {
        name: [kind(**known_fields(kind, one)) for one in record[name]]
        for name, kind in parts.items()
    }
    return WorkerRecord(**known_fields(WorkerRecord, {**record, **lists}))


def claim_from_record(record: dict[str, Any]) -> Claim:
    """The same for a claim."""
    return Claim(**known_fields(Claim, record))


def known_fields(kind: type[Any], record: dict[str, Any]) -> dict[str, Any]:
    """Those fields of a record that this version knows."""
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in record.items() if name in names}

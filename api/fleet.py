"""The JSON of workers and their children: its shapes, and how it is made."""

from __future__ import annotations

import time
from typing import Any, Literal

from typing_extensions import TypedDict

from voicemill.health import gpu_of_node
from voicemill.store.fleet import Fleet
from voicemill.workers import (
    ChildRecord,
    ChildState,
    ProcessRecord,
    RecycleRecord,
    SessionCounts,
    WorkerRecord,
    child_id,
)


class SessionsBody(TypedDict):
    """Sessions of a child: each attempt at an item has one while the engine works on it."""

    open: int
    opened: int
    destroyed: int


class ChildBody(TypedDict):
    """A child; what only a loaded one can say is null while it loads."""

    id: str
    pid: int
    slot: int
    state: ChildState
    age_seconds: float | None
    """Since it was ready."""
    warmup_seconds: float | None
    model_revision: str | None
    tasks: int
    items: int
    rss_bytes: int | None
    rss_baseline_bytes: int | None
    gpu: dict[str, Any]
    gpu_baseline_bytes: dict[str, int]
    real_time_factor: float | None
    real_time_factor_baseline: float | None
    next_reason: str | None
    nearness: float
    """Of the limit it is nearest to: 1 is reached."""
    over_by_nature: list[str]
    """Limits that are not obeyed because a fresh child passes them already."""
    sessions: SessionsBody


class RecycleBody(TypedDict):
    """A child that was replaced."""

    at: float
    pid: int
    successor: int | None
    reason: str
    handover_seconds: float | None
    warmup_seconds: float | None


class WorkerBody(TypedDict):
    """A worker: one Celery parent and its children."""

    id: str
    object: Literal["worker"]
    pid: int
    engine: str
    state: Literal["loading", "ready", "draining"]
    started_at: float
    gpu: dict[str, Any]
    """Its devices, each once, with what each child has of it; or why they are not known."""
    children: list[ChildBody]
    recycles: list[RecycleBody]
    failure: str | None
    """Why the last successor did not come up."""
    alerts: list[str]


class OrderBody(TypedDict):
    """An order that was noted."""

    object: Literal["order"]
    id: str
    order: Literal["recycle", "drain", "resume"]


class QueueBody(TypedDict):
    """Whether work is admitted."""

    object: Literal["queue"]
    paused: bool


def worker_body(worker: WorkerRecord, fleet: Fleet) -> WorkerBody:
    """A worker as its parent and its children tell it."""
    loaded = {child.pid: child for child in fleet.children.values() if child.node == worker.node}
    seen = [{"pid": pid, "gpu": child.gpu} for pid, child in loaded.items()]
    children = [
        child_body(worker, process, loaded.get(process.pid)) for process in worker.processes
    ]
    return {
        "id": worker.node,
        "object": "worker",
        "pid": worker.pid,
        "engine": worker.engine,
        "state": worker_state(worker, fleet),
        "started_at": worker.started_at,
        "gpu": gpu_of_node(seen),
        "children": sorted(children, key=lambda child: (child["slot"], child["pid"])),
        "recycles": [recycle_body(one) for one in reversed(worker.recycles)],
        "failure": worker.failure,
        "alerts": worker.alerts,
    }


def loading_children(fleet: Fleet) -> frozenset[str]:
    """Ids of the children whose engine still loads."""
    return frozenset(
        child_id(worker.node, worker.pid, process.pid)
        for worker in fleet.workers
        for process in worker.processes
        if process.state == "loading"
    )


def recycle_body(recycle: RecycleRecord) -> RecycleBody:
    """A child that was replaced."""
    return {
        "at": recycle.at,
        "pid": recycle.pid,
        "successor": recycle.successor,
        "reason": recycle.reason,
        "handover_seconds": recycle.handover_seconds,
        "warmup_seconds": recycle.warmup_seconds,
    }


def worker_state(worker: WorkerRecord, fleet: Fleet) -> Literal["loading", "ready", "draining"]:
    """What the children together are."""
    if worker.node in fleet.draining:
        return "draining"
    states = {process.state for process in worker.processes}
    if states & {"ready", "busy"}:
        return "ready"
    return "draining" if "draining" in states else "loading"


def child_body(
    worker: WorkerRecord, process: ProcessRecord, child: ChildRecord | None
) -> ChildBody:
    """One child's process, with what it says of itself once it is loaded."""
    return {
        "id": child_id(worker.node, worker.pid, process.pid),
        "pid": process.pid,
        "slot": process.slot,
        "state": process.state,
        "age_seconds": max(0.0, time.time() - child.ready_at) if child else None,
        "warmup_seconds": child.warmup_seconds if child else None,
        "model_revision": child.model_revision if child else None,
        "tasks": child.tasks if child else 0,
        "items": child.items if child else 0,
        "rss_bytes": child.rss_bytes if child else None,
        "rss_baseline_bytes": child.rss_baseline_bytes if child else None,
        "gpu": child.gpu if child else {},
        "gpu_baseline_bytes": child.gpu_baseline_bytes if child else {},
        "real_time_factor": child.real_time_factor if child else None,
        "real_time_factor_baseline": child.real_time_factor_baseline if child else None,
        "next_reason": child.next_reason if child else None,
        "nearness": child.nearness if child else 0.0,
        "over_by_nature": child.over_by_nature if child else [],
        "sessions": sessions_body(child.sessions if child else SessionCounts()),
    }


def sessions_body(counts: SessionCounts) -> SessionsBody:
    """How many sessions there are and were."""
    return {"open": counts.open, "opened": counts.opened, "destroyed": counts.destroyed}

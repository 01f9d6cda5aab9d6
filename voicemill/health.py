"""Whether the stack can do its work. Judged here and nowhere else; pure but for ``observe``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.settings import Settings

if TYPE_CHECKING:
    from voicemill.store import Store

MEBIBYTE = 1024 * 1024
DEVICE = ("uuid", "name", "total_bytes", "used_bytes")
DEVICE_USE = ("own_bytes", "measured_by", "reason")
"""What a child's heartbeat says of a device, and of its own part of it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the store knows of the fleet at one instant."""

    at: float
    """Seconds since the epoch by the store's clock."""
    clerks: int
    children: tuple[dict[str, Any], ...]
    """Fields of ``workers.ChildRecord``."""
    workers: tuple[dict[str, Any], ...] = ()
    """Fields of ``workers.WorkerRecord``."""
    paused: bool = False
    """An operator has stopped admission."""
    draining: tuple[str, ...] = ()
    """Ids of the workers and children that were told to drain."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Live children that take work, by engine."""
    queued: Mapping[str, int] = field(default_factory=dict)
    """Items that wait, by engine."""
    queued_characters: Mapping[str, int] = field(default_factory=dict)
    """Characters of those items, by engine."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Batches admitted or running, by engine."""
    interactive: Mapping[str, int] = field(default_factory=dict)
    """Those of the items that wait whose jobs are interactive, by engine."""
    interactive_characters: Mapping[str, int] = field(default_factory=dict)
    """Characters of those items, by engine."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict and what it rests on."""

    checks: tuple[Check, ...]
    snapshot: Snapshot | None = None
    warnings: tuple[str, ...] = ()
    """What goes wrong though work is done."""
    free_bytes: int | None = None
    engines: tuple[str, ...] = ()
    """Those that the stack should have."""

    @property
    def ready(self) -> bool:
        """True when work that is sent now will be done."""
        return all(check.ok for check in self.checks)

    @property
    def status(self) -> str:
        """``ready``, ``degraded`` (ready, with warnings) or ``not_ready``."""
        if not self.ready:
            return "not_ready"
        return "degraded" if self.warnings else "ready"

    def to_wire(self) -> dict[str, Any]:
        """The JSON of ``/health``."""
        snapshot = self.snapshot
        return {
            "status": self.status,
            "checks": [
                {"name": check.name, "ok": check.ok, "detail": check.detail}
                for check in self.checks
            ],
            "warnings": list(self.warnings),
            "gpu": gpu_by_node(snapshot),
            "children": list(snapshot.children) if snapshot else [],
            "queue": {
                engine: {
                    "slots": snapshot.slots.get(engine, 0),
                    "queued_items": snapshot.queued.get(engine, 0),
                }
                for engine in dict.fromkeys((*self.engines, *snapshot.slots))
            }
            if snapshot
            else {},
            "disk_free_bytes": self.free_bytes,
        }


def gpu_by_node(snapshot: Snapshot | None) -> dict[str, Any]:
    """GPU memory per node: its devices, or the reason why they are not known."""
    if snapshot is None or not snapshot.children:
        return {"reason": "No child has reported."}
    nodes: dict[str, list[dict[str, Any]]] = {}
    for child in snapshot.children:
        nodes.setdefault(child["node"], []).append(child)
    return {node: gpu_of_node(children) for node, children in nodes.items()}


def gpu_of_node(children: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The devices that these children see, each once, with what each child has of it."""
    devices: dict[str, dict[str, Any]] = {}
    reasons: dict[str, None] = {}
    for child in children:
        if child["gpu"].get("reason"):
            reasons[child["gpu"]["reason"]] = None
        for seen in child["gpu"].get("devices", ()):
            device = devices.setdefault(
                seen["uuid"], {name: seen.get(name) for name in DEVICE} | {"children": []}
            )
            device["used_bytes"] = max(device["used_bytes"], seen["used_bytes"])
            device["children"].append(
                {"pid": child["pid"]} | {name: seen.get(name) for name in DEVICE_USE}
            )
    return {"devices": list(devices.values()), "reason": "; ".join(reasons) or None}


def judge(snapshot: Snapshot, free_bytes: int | OSError, settings: Settings) -> Health:
    """Ready: a child takes work, a clerk lives, and there is room on the disk.

    Of several engines one is enough; a warning names those whose work waits.
    """
    engines = tuple(settings.pools)
    down = [why_none(snapshot, engine) for engine in engines if not snapshot.slots.get(engine)]
    some_work = len(down) < len(engines)
    return Health(
        (
            Check("store", True, "Redis answers."),
            Check(
                "children",
                some_work,
                counted(snapshot, engines) if some_work else " ".join(dict.fromkeys(down)),
            ),
            Check(
                "clerk",
                snapshot.clerks > 0,
                f"{snapshot.clerks} alive." if snapshot.clerks else "No clerk was heard of lately.",
            ),
            check_disk(free_bytes, settings),
        ),
        snapshot,
        (*(down if some_work else ()), *warnings_of(snapshot)),
        None if isinstance(free_bytes, OSError) else free_bytes,
        engines,
    )


def counted(snapshot: Snapshot, engines: Sequence[str]) -> str:
    """How many children of each engine take work."""
    counts = [f"{snapshot.slots.get(engine, 0)} of {engine}" for engine in engines]
    return f"{', '.join(counts)} take work."


def why_none(snapshot: Snapshot, engine: str) -> str:
    """Why no child of an engine takes work."""
    loaded = [child for child in snapshot.children if child["engine"] == engine]
    if any(one["node"] in snapshot.draining or one["id"] in snapshot.draining for one in loaded):
        return f"{len(loaded)} of {engine} are loaded and drain; resume their worker."
    for child in loaded:
        if child.get("trouble_detail"):
            return str(child["trouble_detail"])
    return f"No child of {engine} is ready; see the worker's log."


def warnings_of(snapshot: Snapshot) -> Iterator[str]:
    """What an operator should look at."""
    if snapshot.paused:
        yield "The queue is paused: nothing is admitted until it is resumed."
    for name in snapshot.draining:
        yield f"{name} is draining: it takes no work until it is resumed."
    for child in snapshot.children:
        if child.get("trouble_detail"):
            yield f"Child {child['pid']} of {child['node']}: {child['trouble_detail']}"
        for reason in child.get("over_by_nature", ()):
            yield (
                f"Child {child['pid']} of {child['node']} is over the limit of {reason} when it is "
                f"fresh, so the limit is not obeyed: raise VOICEMILL_{reason.upper()}_LIMIT."
            )
    for worker in snapshot.workers:
        for warning in (worker.get("failure"), *worker.get("alerts", ())):
            if warning:
                yield f"{worker['node']}: {warning}"


def check_disk(free_bytes: int | OSError, settings: Settings) -> Check:
    """There is room where the audio goes; that it can't be looked at is no room."""
    if isinstance(free_bytes, OSError):
        why = free_bytes.strerror
        return Check("disk", False, f"{settings.output_dir} can't be looked at: {why}.")
    free, floor = free_bytes // MEBIBYTE, settings.free_space_floor_mb
    return Check("disk", free >= floor, f"{free} MiB free; the floor is {floor} MiB.")


def free_bytes_at(path: Path) -> int | OSError:
    """Free bytes on the file system that holds ``path``, or will once it is made; or why not."""
    try:
        return shutil.disk_usage(path).free
    except FileNotFoundError:
        return free_bytes_at(path.parent)
    except OSError as error:
        return error


def observe(store: Store, settings: Settings) -> Health:
    """Look now and judge; a store that is away makes a verdict, not an error."""
    try:
        snapshot = store.snapshot()
    except (StoreUnavailableError, StoreRefusedError) as error:
        return Health((Check("store", False, error.message),))
    return judge(snapshot, free_bytes_at(settings.output_dir), settings)

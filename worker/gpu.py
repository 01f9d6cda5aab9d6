"""What of each device's memory is this process's. No driver is a normal state.

A process stands here for all that it consists of: its engine may have processes of its own.
The driver's figure for this process comes first. Where it is not known, what the engine says it
holds; then all that is used of the device, if this process has it to itself. Never nothing: a use
that is not known is no use of 0.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from worker.measurements import MemoryUse
from worker.nvml import Driver, Seen

Source = Literal["process", "engine", "device"]

Baseline = dict[tuple[str, Source | None], int]
"""Bytes in a warm child by device and source: one source's figures say nothing of another's."""

NOT_LISTED = "The driver does not list this process, as in a container with pids of its own."
NO_FIGURE = "The driver does not say how much this process uses."
NOT_HERE = "This process holds nothing on it."
NO_CUDA = "This process has not loaded CUDA."
WHICH = "It is not known which of the devices this process uses."
SHARED = "Nor is it known to have the device to itself."


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or MIG device; figures in bytes."""

    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    own_bytes: int | None
    """Used by this process, as far as it is known."""
    measured_by: Source | None
    """Whose figure that is: the driver's for this process, the engine's, or the whole device's."""
    reason: str | None
    """Why the driver's figure for this process is not known."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The devices of this process, and why there are none or some are missing."""

    devices: tuple[Device, ...] = ()
    reason: str | None = None

    def to_record(self) -> dict[str, Any]:
        """The JSON object of a heartbeat."""
        return {"devices": [asdict(device) for device in self.devices], "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Process:
    """What a process knows of itself."""

    pids: frozenset[int]
    """Its own, and those of its engine."""
    has_cuda: bool = True
    """Whether it has loaded CUDA, without which it can't use a device."""
    engine_bytes: int | None = None
    """Device memory that its engine says it holds."""
    neighbours: frozenset[int] = frozenset()
    """Pids that are other processes' for certain."""


def read_devices(
    driver: Driver, engine_bytes: int | None = None, others: frozenset[int] = frozenset()
) -> GpuReading:
    """Ask the driver now; ``others`` are the pids of the engine's own processes."""
    look = driver.look()
    pids = others | {os.getpid()}
    listed = {one for device in look.devices for one in device.processes or ()}
    process = Process(
        pids,
        has_cuda=has_cuda() or any(map(is_cuda_of, others)),
        engine_bytes=engine_bytes,
        neighbours=frozenset(one for one in listed - pids if Path(f"/proc/{one}").exists()),
    )
    return GpuReading(own_devices(look.devices, process), look.reason)


def memory_uses(reading: GpuReading, baseline: Baseline) -> tuple[MemoryUse, ...]:
    """What the process has of each device where that is known; first figures enter ``baseline``."""
    return tuple(
        MemoryUse(
            one.own_bytes,
            one.total_bytes,
            baseline.setdefault((one.uuid, one.measured_by), one.own_bytes),
        )
        for one in reading.devices
        if one.own_bytes is not None
    )


def has_cuda() -> bool:
    """Whether this process has loaded the driver's CUDA library; it is not loaded by asking."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    return True


def is_cuda_of(pid: int) -> bool:
    """Whether another process of ours has loaded it."""
    try:
        return b"/libcuda.so" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False


def own_devices(seen: Sequence[Seen], process: Process) -> tuple[Device, ...]:
    """Each device with what the process has of it."""
    places = [one for one in seen if process.pids & (one.processes or {}).keys()]
    return tuple(own_device(one, process, places or seen) for one in seen)


def own_device(seen: Seen, process: Process, places: Sequence[Seen]) -> Device:
    """One device; ``places`` are those that the process may be on."""
    own: int | None = None
    source: Source | None = None
    reason = why_unknown(seen, process, places)
    if reason is None:
        own, source = driver_s_figure(seen, process), "process"
    elif process.has_cuda and list(places) == [seen]:
        if process.engine_bytes:
            own, source = process.engine_bytes, "engine"
        elif has_to_itself(seen, process) and seen.used_bytes:
            own, source = seen.used_bytes, "device"
        else:
            reason = f"{reason} {SHARED}"
    return Device(seen.uuid, seen.name, seen.total_bytes, seen.used_bytes, own, source, reason)


def driver_s_figure(seen: Seen, process: Process) -> int | None:
    """Bytes that the driver knows of; nothing where it lists none of its pids, or one without."""
    figures = [size for pid, size in (seen.processes or {}).items() if pid in process.pids]
    known = [size for size in figures if size is not None]
    return sum(known) if known and len(known) == len(figures) else None


def why_unknown(seen: Seen, process: Process, places: Sequence[Seen]) -> str | None:
    """Why the driver's figure for the process is not known; nothing where it is."""
    if driver_s_figure(seen, process) is not None:
        return None
    if seen not in places:
        return NOT_HERE
    if not process.has_cuda:
        return NO_CUDA
    if process.pids & (seen.processes or {}).keys():
        reason = NO_FIGURE
    elif seen.trouble:
        reason = f"The driver does not list processes: {seen.trouble}."
    else:
        reason = NOT_LISTED
    return reason if len(places) == 1 else f"{reason} {WHICH}"


def has_to_itself(seen: Seen, process: Process) -> bool:
    """Whether nobody else is on the device.

    Where the process is not listed under its own pid, a single pid that is nobody's here is its
    own, seen from outside of its container.
    """
    if seen.processes is None:
        return False
    others = seen.processes.keys() - process.pids
    if process.pids & seen.processes.keys():
        return not others
    return len(others) <= 1 and not others & process.neighbours

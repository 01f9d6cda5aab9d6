"""Device memory as the driver sees it. No driver is a normal state."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

import pynvml


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU; figures in bytes."""

    index: int
    name: str
    uuid: str
    total_bytes: int
    used_bytes: int
    own_bytes: int | None
    """Used by this process; not known where the driver's list lacks our pid."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The devices, or why they are not known."""

    devices: tuple[Device, ...] = ()
    reason: str | None = None

    def to_record(self) -> dict[str, Any]:
        """The JSON object of a heartbeat."""
        return {"devices": [asdict(device) for device in self.devices], "reason": self.reason}


def read_devices() -> GpuReading:
    """Ask NVML now; it makes no CUDA context."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuReading(reason=f"no NVIDIA driver: {error}")
    try:
        count = pynvml.nvmlDeviceGetCount()
        return GpuReading(tuple(read_device(index) for index in range(count)))
    except pynvml.NVMLError as error:
        return GpuReading(reason=f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def read_device(index: int) -> Device:
    """One device by its NVML index."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    own = [
        process.usedGpuMemory
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if process.pid == os.getpid()
    ]
    return Device(
        index=index,
        name=text(pynvml.nvmlDeviceGetName(handle)),
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        own_bytes=int(own[0]) if own and own[0] is not None else None,
    )


def text(value: str | bytes) -> str:
    """NVML's strings come as bytes from older releases."""
    return value.decode() if isinstance(value, bytes) else value

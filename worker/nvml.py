"""The NVIDIA driver's own figures, through NVML. Asking makes no CUDA context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class Seen:
    """One device as the driver shows it to anybody; figures in bytes."""

    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: Mapping[int, int | None] | None
    """What each listed process uses, by pid; nothing where the driver does not say."""
    trouble: str | None = None
    """Why there is no list of processes."""


@dataclass(frozen=True, slots=True)
class Look:
    """The devices that answer, and why others do not."""

    devices: tuple[Seen, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card: its place in the driver's order, its UUID, those of its MIG devices."""

    index: int
    uuid: str
    migs: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """What a process can use: the card, or its MIG devices where it is cut into them."""
        return self.migs or (self.uuid,)


class Driver:
    """NVML, kept open between looks, and opened anew after it failed."""

    def __init__(self, visible: str | None) -> None:
        """``visible`` is a value of ``CUDA_VISIBLE_DEVICES``; nothing shows every device."""
        self._visible = visible
        self._uuids: tuple[str, ...] | None = None
        self._is_open = False

    def look(self) -> Look:
        """The visible devices now, always the same by UUID once they were found."""
        try:
            self._open()
        except pynvml.NVMLError as error:
            return Look(reason=f"no NVIDIA driver: {error}")
        try:
            uuids, troubles = self._find()
            devices = []
            for uuid in uuids:
                try:
                    devices.append(see(uuid))
                except pynvml.NVMLError as error:
                    troubles.append(f"{uuid}: {error}")
        except pynvml.NVMLError as error:
            self._close()
            return Look(reason=f"NVML: {error}")
        if troubles:
            self._close()
        elif not uuids:
            troubles.append(self._nothing_visible())
        return Look(tuple(devices), "; ".join(troubles) or None)

    def pci(self, uuid: str) -> str | None:
        """The PCI address of a device, or of the card that it is a part of, where that is known."""
        try:
            self._open()
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            with suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            return str(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        except pynvml.NVMLError:
            return None

    def _find(self) -> tuple[tuple[str, ...], list[str]]:
        if self._uuids is not None:
            return self._uuids, []
        gpus, troubles = cards()
        uuids = visible_of(gpus, self._visible)
        if not troubles:
            self._uuids = uuids
        return uuids, troubles

    def _nothing_visible(self) -> str:
        if self._visible is None:
            return "The driver has no device."
        return f"CUDA_VISIBLE_DEVICES={self._visible!r} names no device here."

    def _open(self) -> None:
        if not self._is_open:
            pynvml.nvmlInit()
            self._is_open = True

    def _close(self) -> None:
        self._is_open = False
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def visible_of(gpus: Sequence[Gpu], visible: str | None) -> tuple[str, ...]:
    """UUIDs of the devices that ``CUDA_VISIBLE_DEVICES`` names, in its order.

    As CUDA reads it: indices, or beginnings of UUIDs; what names nothing ends the list. Its
    indices are the driver's where ``CUDA_DEVICE_ORDER=PCI_BUS_ID``, or where all cards are alike.
    """
    if visible is None:
        return tuple(uuid for gpu in gpus for uuid in gpu.devices)
    chosen: list[str] = []
    for word in visible.split(","):
        found = named(gpus, word.strip())
        if not found:
            break
        chosen += found
    return tuple(dict.fromkeys(chosen))


def named(gpus: Iterable[Gpu], word: str) -> tuple[str, ...]:
    """The devices of one word; none when it names nothing, or more than one."""
    by_name: dict[str, tuple[str, ...]] = {}
    for gpu in gpus:
        if word == str(gpu.index):
            return gpu.devices
        by_name[gpu.uuid] = gpu.devices
        by_name |= {mig: (mig,) for mig in gpu.migs}
    found = [devices for uuid, devices in by_name.items() if uuid.startswith(word)]
    return found[0] if len(found) == 1 and word.startswith(("GPU-", "MIG-")) else ()


def cards() -> tuple[list[Gpu], list[str]]:
    """All cards that answer, and what the others say."""
    gpus, troubles = [], []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            gpus.append(Gpu(index, pynvml.nvmlDeviceGetUUID(handle), mig_uuids(handle)))
        except pynvml.NVMLError as error:
            troubles.append(f"GPU {index}: {error}")
    return gpus, troubles


def mig_uuids(handle: object) -> tuple[str, ...]:
    """The MIG devices that a card is cut into; none where it is whole."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return ()
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    uuids = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(pynvml.NVMLError_NotFound):
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            uuids.append(pynvml.nvmlDeviceGetUUID(mig))
    return tuple(uuids)


def see(uuid: str) -> Seen:
    """One card or MIG device now."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    total, used = int(memory.total), int(memory.used)
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        return Seen(uuid, name, total, used, None, str(error))
    listed: dict[int, int | None] = {}
    for process in processes:
        known = listed.get(process.pid, 0)
        more = process.usedGpuMemory
        listed[process.pid] = None if known is None or more is None else known + int(more)
    return Seen(uuid, name, total, used, listed)

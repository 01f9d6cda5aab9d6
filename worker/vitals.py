"""What one child measures of itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from voicemill.errors import OutOfMemoryError, VoicemillError
from voicemill.settings import Settings
from voicemill.workers import Footprint
from worker import gpu, memory
from worker.cached_memory import CachedMemory
from worker.engines.base import (
    CachesDeviceMemory,
    Engine,
    HasProcesses,
    ReportsDeviceMemory,
    SparesMemory,
)
from worker.environment import visible_devices
from worker.measurements import Measurements, MemoryUse
from worker.nvml import Driver
from worker.pace import Pace

FORGIVEN_MEMORY_FAILURES = 1
"""Batches that may run out of memory and be halved; with one more, a fresh child is better."""


@dataclass(slots=True)
class Tally:
    """What a child has done since it was ready."""

    tasks: int = 0
    items: int = 0
    out_of_memory: bool = False
    """The engine ran out of memory, and a child that has done nothing yet might not."""
    _failed_items: set[tuple[str, int]] = field(default_factory=set)

    @property
    def errors_in_a_row(self) -> int:
        """Items for which the engine gave nothing but errors of its own since it last spoke."""
        return len(self._failed_items)

    def note_call(self, job_id: str, results: Sequence[tuple[int, object]]) -> None:
        """The engine was called for items of a job: what came of each, by index.

        What is the text's fault says nothing of the engine, nor does the same item failing again.
        """
        errors = [(at, one) for at, one in results if isinstance(one, VoicemillError)]
        if self.tasks and any(isinstance(error, OutOfMemoryError) for _, error in errors):
            self.out_of_memory = True
        if len(errors) < len(results):
            self._failed_items.clear()
            return
        self._failed_items |= {(job_id, at) for at, error in errors if error.retryable}

    def clear_errors(self) -> None:
        """They were not the engine's."""
        self._failed_items.clear()


class Vitals:
    """Looks at memory now and then, and counts. Made when the engine is warm."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.tally = Tally()
        self.pace = Pace()
        self.ready_at = time.time()
        self._ready_clock = time.monotonic()
        self._engine = engine
        self._pause = settings.memory_check_seconds
        self._looked_at = time.monotonic()
        self._driver = Driver(visible_devices())
        self._gpu_baseline: gpu.Baseline = {}
        self.gpu = self._look_at_devices()
        self.rss = self.rss_baseline = self.resident_bytes()

    def resident_bytes(self) -> int:
        """Host memory of this process and of the engine's own ones, now."""
        return memory.resident_bytes(self.others())

    @property
    def has_lost_engine(self) -> bool:
        """Whether the process that the engine worked in is gone."""
        engine = self._engine
        return isinstance(engine, HasProcesses) and engine.is_lost()

    def others(self) -> frozenset[int]:
        """Pids of the engine's own processes."""
        engine = self._engine
        return engine.pids() if isinstance(engine, HasProcesses) else frozenset()

    @property
    def age_seconds(self) -> float:
        """Since it was ready, by a clock that nobody sets."""
        return time.monotonic() - self._ready_clock

    def used_bytes(self) -> int:
        """What the process has now of its devices, or else of the host. Not from two threads."""
        devices = self._look_at_devices().devices
        own = [one.own_bytes for one in devices if one.own_bytes is not None]
        return sum(own) if own else memory.resident_bytes()

    @property
    def footprint(self) -> Footprint:
        """What a fresh child takes."""
        return Footprint(self.rss_baseline, sum(self.gpu_baseline.values()) or None)

    @property
    def gpu_baseline(self) -> dict[str, int]:
        """Own memory when it was first known, by device; of the source that counts now."""
        return {
            one.uuid: self._gpu_baseline[one.uuid, one.measured_by]
            for one in self.gpu.devices
            if (one.uuid, one.measured_by) in self._gpu_baseline
        }

    def measure(
        self,
        *,
        poisoned: bool = False,
        requested: bool = False,
        model_is_wanted: bool = True,
        took_too_much: bool = False,
    ) -> Measurements:
        """Everything the policy asks for; memory is looked at again when its time has come.

        ``took_too_much``: a call passed its memory quota.
        """
        self._look()
        return Measurements(
            tasks=self.tally.tasks,
            items=self.tally.items,
            ready_at=self.ready_at,
            at=max(time.time(), self.ready_at),
            age_seconds=self.age_seconds,
            host_memory=MemoryUse(self.rss, memory.allowed_bytes(), self.rss_baseline),
            gpu_memory=gpu.memory_uses(self.gpu, self._gpu_baseline),
            cached_memory=self._cached_memory(),
            slowdown=self.pace.slowdown,
            errors_in_a_row=self.tally.errors_in_a_row,
            poisoned=poisoned,
            out_of_memory=self.tally.out_of_memory or took_too_much or self._is_short_of_memory(),
            requested=requested,
            model_is_wanted=model_is_wanted,
        )

    def _look(self) -> None:
        if time.monotonic() - self._looked_at < self._pause:
            return
        self._looked_at = time.monotonic()
        self.rss = self.resident_bytes()
        self.gpu = self._look_at_devices()

    def _look_at_devices(self) -> gpu.GpuReading:
        engine = self._engine
        own = engine.device_bytes() if isinstance(engine, ReportsDeviceMemory) else None
        return gpu.read_devices(self._driver, own, self.others())

    def _is_short_of_memory(self) -> bool:
        engine = self._engine
        failures = engine.memory_failures() if isinstance(engine, SparesMemory) else 0
        return failures > FORGIVEN_MEMORY_FAILURES

    def _cached_memory(self) -> CachedMemory | None:
        engine = self._engine
        return engine.cached_memory() if isinstance(engine, CachesDeviceMemory) else None

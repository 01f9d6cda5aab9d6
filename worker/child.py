"""The process that holds the engine: loading, heartbeat, batches, and when to leave."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from typing import Any

from voicemill.dispatch import Dispatcher
from voicemill.errors import StoreRefusedError, StoreUnavailableError, SynthesisError
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import ChildRecord, Store
from voicemill.voices import Capabilities
from worker import audio, gpu, memory
from worker.engines import load_engine
from worker.engines.base import (
    WARM_UP_CALLS,
    Engine,
    ReportsDeviceMemory,
    Segment,
    SynthesisOptions,
)
from worker.nvml import Driver, visible_devices
from worker.patience import patiently
from worker.recycle import Measurements, MemoryUse, Policy, Reason, reason_to_leave
from worker.synthesis import Synthesizer

logger = logging.getLogger(__name__)

WARM_UP_TEXT = "This voice is warm now, and ready for work."
LONGEST_BEAT_SECONDS = 5.0


class Child:
    """One engine in one process. Made once, before the process takes work."""

    def __init__(self, settings: Settings, child_id: str, node: str) -> None:
        self.settings = settings
        self.id = child_id
        self._node = node
        self._store = Store.connect(settings.redis_url)
        self._dispatcher = Dispatcher(self._store, Queue(settings), settings)
        self._engine = load_engine(settings.engine)
        began = time.perf_counter()
        self._capabilities = self._engine.load(settings.engine_options)
        warm_up_seconds = warm_up(self._engine, self._capabilities)
        self._synthesizer = Synthesizer(self._store, self._engine, self._capabilities, settings)
        self._ready_at = time.time()
        self._ready_clock = time.monotonic()
        self._tasks = 0
        self._items = 0
        self._looked_at = 0.0
        self._driver = Driver(visible_devices())
        self._gpu = self._look_at_devices()
        self._host_memory = self._baseline_host = memory.resident_bytes()
        self._baseline_gpu: gpu.Baseline = {}
        self._leaving = threading.Event()
        self._announce(warm_up_seconds, time.perf_counter() - began)
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def run(self, task_id: str) -> list[dict[str, Any]] | None:
        """Carry out one task; nothing when another copy of it was taken before."""
        lease_seconds = self.settings.lease_seconds
        task = patiently(
            lease_seconds,
            self._store.start_task,
            task_id,
            self.id,
            lease_seconds,
            token=uuid.uuid4().hex,
        )
        if task is None:
            logger.info("task %s is not ours to start", task_id)
            return None
        outcomes = self._synthesizer.run(task)
        self._tasks += 1
        self._items += len(outcomes)
        self._admit_more()
        every = self.settings.empty_cache_every
        if every and self._tasks % every == 0:
            self._engine.after_batch()
        return [outcome.to_record() for outcome in outcomes]

    def reason_to_leave(self, policy: Policy) -> Reason | None:
        """What the policy says of this child now."""
        self._look_at_memory()
        return reason_to_leave(policy, self._measurements())

    def leave(self, reason: Reason) -> None:
        """Take no more work; the process ends after this."""
        logger.warning(
            "child %d recycles: %s after %d tasks, %d items, %.0f s, %d MiB",
            os.getpid(),
            reason,
            self._tasks,
            self._items,
            time.monotonic() - self._ready_clock,
            self._host_memory // 2**20,
        )
        self._leaving.set()
        try:
            self._store.add_metric("voicemill_recycles_total", {"reason": reason})
            self._beat_once()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the recycle could not be noted: %s", error)

    def _announce(self, synthesis_seconds: float, load_seconds: float) -> None:
        engine = self._capabilities.engine
        characters = len(WARM_UP_TEXT)
        patience = self.settings.load_timeout_seconds
        patiently(patience, self._store.publish_engine, self._capabilities)
        patiently(patience, self._store.observe_cost, engine, characters, synthesis_seconds)
        for name, value in (("sum", load_seconds), ("count", 1.0)):
            counter = f"voicemill_warmup_seconds_{name}"
            patiently(patience, self._store.add_metric, counter, {"engine": engine}, value)
        patiently(patience, self._beat_once)
        self._admit_more()
        logger.info("child %d ready: %s in %.1f s", os.getpid(), engine, load_seconds)

    def _admit_more(self) -> None:
        try:
            self._dispatcher.admit([self._capabilities.engine])
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("nothing admitted, the clerk will: %s", error)

    def _beat(self) -> None:
        pause = min(LONGEST_BEAT_SECONDS, self.settings.lease_seconds / 4)
        while not self._leaving.wait(pause):
            try:
                self._beat_once()
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("heartbeat not heard: %s", error)

    def _beat_once(self) -> None:
        record = ChildRecord(
            id=self.id,
            node=self._node,
            pid=os.getpid(),
            engine=self._capabilities.engine,
            model_revision=self._capabilities.model_revision,
            ready_at=self._ready_at,
            tasks=self._tasks,
            items=self._items,
            rss_bytes=self._host_memory,
            gpu=self._gpu.to_record(),
        )
        takes_work = not self._leaving.is_set()
        self._store.beat_child(record, self.settings.lease_seconds, takes_work=takes_work)

    def _look_at_memory(self) -> None:
        if time.monotonic() - self._looked_at < self.settings.memory_check_seconds:
            return
        self._looked_at = time.monotonic()
        self._host_memory = memory.resident_bytes()
        self._gpu = self._look_at_devices()

    def _look_at_devices(self) -> gpu.GpuReading:
        engine = self._engine
        own = engine.device_bytes() if isinstance(engine, ReportsDeviceMemory) else None
        return gpu.read_devices(self._driver, own)

    def _measurements(self) -> Measurements:
        return Measurements(
            tasks=self._tasks,
            items=self._items,
            age_seconds=time.monotonic() - self._ready_clock,
            host_memory=MemoryUse(self._host_memory, memory.allowed_bytes(), self._baseline_host),
            gpu_memory=gpu.memory_uses(self._gpu, self._baseline_gpu),
            poisoned=self._synthesizer.poisoned,
        )


def warm_up(engine: Engine, capabilities: Capabilities) -> float:
    """Speak for real, more than once; gives the seconds of the last time.

    Raises what the engine raises: a child that can't speak must not take work.
    """
    voice = capabilities.voices[0].name
    seconds = 0.0
    for _ in range(WARM_UP_CALLS):
        began = time.perf_counter()
        (spoken,) = engine.synthesize([Segment(WARM_UP_TEXT)], voice, SynthesisOptions())
        seconds = time.perf_counter() - began
        if isinstance(spoken, SynthesisError):
            raise spoken
        audio.check(spoken)
    return seconds

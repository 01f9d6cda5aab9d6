"""A child's synthesis on a store and a folder, without its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.errors import WorkerLostError
from voicemill.jobs import Item
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord
from worker.attempts import Outcome
from worker.engines.base import Samples, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.synthesis import Synthesizer
from worker.vitals import Vitals


class Killed(BaseException):
    """Here a process would die."""


class CountingEngine(ToneEngine):
    """Remembers what it was asked to speak."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.kills = False
        """Its process dies of whatever it speaks."""
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while it speaks."""

    def synthesize(self, batch: Any, voice: str, options: SynthesisOptions) -> list[Samples | Any]:
        self.texts += [segment.text for segment in batch]
        if self.kills:
            raise Killed
        self.meanwhile()
        return super().synthesize(batch, voice, options)


class Bench:
    """One child, or a few, on a store and a folder."""

    def __init__(self, store: Store, url: str, folder: Path, **env: Any) -> None:
        self.store = store
        self.folder = folder
        limits = {"retry_seconds": None, "free_space_floor_mb": 0, **env}
        self.settings = Settings(redis_url=url, engine="tone", output_dir=folder, **limits)
        self.engine = CountingEngine()
        self.synthesizer = self.child()

    def child(self, revision: str = "1") -> Synthesizer:
        capabilities = replace(
            self.engine.load(self.settings.engine_options), model_revision=revision
        )
        self.store.publish_engine(capabilities)
        storage = Storage(self.store, self.settings)
        assert storage.look() is None
        self.vitals = vitals = Vitals(self.settings, self.engine)
        return Synthesizer(self.store, self.engine, capabilities, self.settings, vitals, storage)

    def start(self, child: str = "c1", batch_seconds: float = 100.0) -> StartedTask:
        record = ChildRecord(child, "node", 1, "tone", "1", ready_at=0.0)
        self.store.beat_child(record, 60, takes_work=True)
        (admitted,) = self.store.admit("tone", CostModel(0.01, 0.0), batch_seconds, most=1)
        task = self.store.start_task(admitted.id, child, 60)
        assert task is not None
        return task

    def speak(self, job_id: str = "job_1") -> list[Item]:
        """Run all that waits; gives the items."""
        while self.store.snapshot().queued["tone"]:
            self.end_pauses(job_id)
            self.run(self.start())
        return self.store.items(job_id, limit=1000)

    def end_pauses(self, job_id: str = "job_1") -> list[tuple[bytes, float]]:
        """What comes again after a pause comes now; gives the entries and when they were due."""
        client: Any = self.store._redis
        delayed = f"voicemill:job:{job_id}:delayed:tone"
        entries: list[tuple[bytes, float]] = client.zrange(delayed, 0, -1, withscores=True)
        for entry, _ in entries:
            client.zadd(delayed, {entry: 0})
            client.zadd("voicemill:delayed:tone", {job_id: 0})
        return entries

    def run(self, task: StartedTask) -> list[Outcome]:
        """Speak what a task carries, and close it, or have its child die of it."""
        try:
            outcomes = self.synthesizer.run(task)
        except Killed:
            assert self.lose("c1")
            return []
        self.store.end_task(task, max_attempts=3)
        return outcomes

    def lose(self, child: str) -> bool:
        """A child's process is gone."""
        lost = WorkerLostError("It died by signal 11.")
        return self.store.release_child(child, "tone", max_attempts=3, error=lost)

    def submit(self, *texts: str, job: str = "job_1", tenant: str = "ann", **fields: Any) -> None:
        self.store.create_job(job, tenant, inputs(*texts), {}, **fields)

    def job(self, *texts: str, **fields: Any) -> list[Item]:
        self.submit(*texts, **fields)
        return self.speak(fields.get("job", "job_1"))

"""An engine with slots, for tests of who gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from tests.support import TONE, inputs
from voicemill.costs import CostModel
from voicemill.fairness import Standing
from voicemill.jobs import ItemAudio, new_job_id
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord

CENT_A_CHARACTER = CostModel(0.0, 0.01)
BULK = Standing()


class Device:
    """An engine with slots, whose work takes no time and says that it took some."""

    def __init__(self, store: Store, slots: int = 1) -> None:
        self.store = store
        self.slots = slots
        self.running: list[tuple[StartedTask, str, float]] = []
        store.publish_engine(TONE)
        for number in range(slots):
            child = ChildRecord(f"c{number}", "node", 1, "tone", "1", ready_at=0.0)
            store.beat_child(child, 600, takes_work=True)

    def submit(
        self, tenant: str, *texts: str, standing: Standing = BULK, voice: str = "low"
    ) -> str:
        job_id = new_job_id()
        self.store.create_job(job_id, tenant, inputs(*texts, voice=voice), {}, standing=standing)
        return job_id

    def admit(self, **limits: Any) -> list[StartedTask]:
        """What is let in now, in its order."""
        tasks = self.store.admit("tone", CENT_A_CHARACTER, 1.0, **limits)
        names = (f"c{number % self.slots}" for number in count())
        started = [
            self.store.start_task(task.id, name, 600)
            for task, name in zip(tasks, names, strict=False)
        ]
        return [task for task in started if task is not None]

    def end(self, task: StartedTask, seconds: float) -> None:
        """Each item of a task succeeds after so long."""
        for index in self.store.start_items(task, task.indexes, 600):
            audio = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.0, 24000, seconds, "tone", "1")
            assert self.store.succeed_item(task, index, audio)
        self.store.end_task(task, max_attempts=3)

    def serve(self, batches: int, seconds: Callable[[str, str], float]) -> Counter[str]:
        """Run so many batches, each ending when its slot is due; device seconds by tenant."""
        got = Counter[str]()
        ends: list[tuple[float, int, StartedTask, float]] = []
        at = 0.0
        for number in range(batches):
            while len(ends) < self.slots:
                (task,) = self.admit(most=1)
                job = self.store.job(task.job_id)
                texts = [one.text for one in self.store.inputs(task.job_id, task.indexes)]
                each = seconds(job.tenant, texts[0])
                got[job.tenant] += each * len(texts)
                ends.append((at + each * len(texts), number, task, each))
            ends.sort(key=lambda one: one[:2])
            at, _, task, each = ends.pop(0)
            self.end(task, each)
        return got

"""What ran out of memory is tried again alone, in shorter segments, and its child is replaced."""

from __future__ import annotations

from pathlib import Path

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.jobs import ItemStatus
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.engines import load_engine
from worker.recycle import Policy, Reason, reason_to_leave
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

MEMORY_CHARACTERS = 250
LONG = "All of this is said in one breath. " * 11
SHORT = "Hello."


class OneChild:
    """A child's synthesis without its process."""

    def __init__(self, store: Store, url: str, folder: Path) -> None:
        self._store = store
        settings = Settings(
            redis_url=url,
            engine="tone",
            output_dir=folder,
            retry_seconds=None,
            free_space_floor_mb=0,
        )
        engine = load_engine("tone")
        capabilities = engine.load({"memory_characters": MEMORY_CHARACTERS})
        store.publish_engine(capabilities)
        self.vitals = Vitals(settings, engine)
        storage = Storage(store, settings)
        assert storage.look() is None
        self._synthesizer = Synthesizer(store, engine, capabilities, settings, self.vitals, storage)

    def run_next(self) -> tuple[int, ...]:
        """Speak the next batch; gives the indexes of its items."""
        child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
        self._store.beat_child(child, 60, takes_work=True)
        (admitted,) = self._store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1)
        task = self._store.start_task(admitted.id, "c1", 60)
        assert task is not None
        self._synthesizer.run(task)
        self._store.end_task(task, max_attempts=3)
        self.vitals.tally.tasks += 1
        return task.indexes

    @property
    def reason_to_leave(self) -> Reason | None:
        return reason_to_leave(Policy(), self.vitals.measure())


def test_the_next_attempt_is_alone_and_in_shorter_segments(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child = OneChild(store, redis_url, tmp_path)
    store.create_job("job_1", "default", inputs(SHORT, LONG, "Good day.", "Good night."), {})
    assert child.run_next() == (0, 1)
    failed = store.item("job_1", "row-000002")
    assert failed.error is not None
    assert (failed.status, failed.error.code) == (ItemStatus.QUEUED, "out_of_memory")

    alone = [child.run_next(), child.run_next()]

    assert sorted(alone) == [(0,), (1,)], "both were in the call that had no memory"
    spoken = store.item("job_1", "row-000002")
    assert (spoken.status, spoken.attempts) == (ItemStatus.SUCCEEDED, 2)
    assert spoken.audio is not None
    assert spoken.audio.duration_seconds > 20


def test_a_child_that_has_worked_leaves_and_a_fresh_one_would_gain_nothing(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child = OneChild(store, redis_url, tmp_path)
    store.create_job("job_1", "default", inputs(LONG), {})
    child.run_next()
    assert child.reason_to_leave is None, "it was fresh"
    store.create_job("job_2", "default", inputs(LONG), {})
    child.run_next()
    child.run_next()
    assert child.reason_to_leave is Reason.HOST_MEMORY, "it may wait for its successor"

"""By which seeds an item is spoken, from attempt to attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.errors import SynthesisError, leaves
from voicemill.jobs import ItemInput, ItemStatus
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord
from worker.engines.base import Samples, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.sessions import seed_of
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

SENTENCE = "All of this is said in one breath, and it goes on for a while. "
LONG = SENTENCE * 10
"""Of more than one segment."""


class SeedsEngine(ToneEngine):
    """Remembers by which seeds it spoke, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[list[int | None]] = []

    def synthesize(self, batch: Any, voice: str, options: SynthesisOptions) -> list[Samples | Any]:
        self.seeds.append([segment.seed for segment in batch])
        return super().synthesize(batch, voice, options)


class OneChild:
    """A child's synthesis without its process."""

    def __init__(self, store: Store, url: str, folder: Path, **options: Any) -> None:
        self.store = store
        self.engine = SeedsEngine()
        settings = Settings(
            redis_url=url,
            engine="tone",
            output_dir=folder,
            retry_seconds=None,
            free_space_floor_mb=0,
        )
        takes_seed = options.pop("takes_seed", True)
        capabilities = replace(self.engine.load(options), seed=takes_seed)
        store.publish_engine(capabilities)
        vitals = Vitals(settings, self.engine)
        storage = Storage(store, settings)
        assert storage.look() is None
        self.synthesizer = Synthesizer(store, self.engine, capabilities, settings, vitals, storage)

    def start(self) -> StartedTask:
        child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
        self.store.beat_child(child, 60, takes_work=True)
        (admitted,) = self.store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1)
        task = self.store.start_task(admitted.id, "c1", 60)
        assert task is not None
        return task

    def lose(self) -> None:
        """Begin the next batch, and get no further."""
        task = self.start()
        self.store.start_items(task, task.indexes, 60)
        self.store.end_task(task, max_attempts=9)

    def speak(self) -> list[list[int | None]]:
        """Run the next batch; gives the seeds of its calls."""
        self.engine.seeds.clear()
        task = self.start()
        self.synthesizer.run(task)
        self.store.end_task(task, max_attempts=9)
        return list(self.engine.seeds)

    def submit(self, *texts: str, seed: int | None = None) -> None:
        items: list[ItemInput] = [replace(item, seed=seed) for item in inputs(*texts)]
        self.store.create_job("job_1", "default", items, {})


@pytest.fixture
def child(store: Store, redis_url: str, tmp_path: Path) -> OneChild:
    return OneChild(store, redis_url, tmp_path / "out")


def test_the_first_segment_has_the_item_s_seed_and_the_others_follow_from_it(
    child: OneChild,
) -> None:
    child.submit(LONG, seed=7)
    (seeds,) = child.speak()
    assert seeds == [seed_of(7, position, 0) for position in range(len(seeds))]
    assert seeds[0] == 7
    assert len(set(seeds)) == len(seeds) > 1


def test_items_of_one_call_have_each_their_own(child: OneChild) -> None:
    texts = [replace(item, seed=item.index + 3) for item in inputs(*["Hi."] * 4)]
    child.store.create_job("job_1", "default", texts, {})
    assert child.speak() == [[3, 4]]


def test_an_item_without_a_seed_leaves_the_engine_free(child: OneChild) -> None:
    child.submit(LONG)
    assert {seed for call in child.speak() for seed in call} == {None}


@pytest.mark.parametrize("seed", [7, None])
def test_what_the_engine_failed_at_is_spoken_by_other_seeds(
    child: OneChild, tmp_path: Path, seed: int | None
) -> None:
    child.submit(f"{{tone:fail-once={tmp_path / 'failed'}}} Hello.", seed=seed)
    assert child.speak() == [[seed]]
    assert child.speak() == [[seed_of(seed, 0, 1)]]
    assert seed_of(seed, 0, 1) not in {seed, None}
    assert child.store.item("job_1", "row-000001").status is ItemStatus.SUCCEEDED


def test_what_the_gate_refused_is_spoken_by_other_seeds(child: OneChild) -> None:
    child.submit("{tone:silence} Hello.", seed=7)
    assert [child.speak() for _ in range(3)] == [[[7]], [[seed_of(7, 0, 1)]], [[seed_of(7, 0, 2)]]]


def test_a_lost_child_and_want_of_memory_change_no_seed(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child = OneChild(store, redis_url, tmp_path / "out", memory_characters=30)
    child.submit("Hello. " * 6, seed=7)
    child.lose()
    assert child.speak()[0][0] == 7
    item = store.item("job_1", "row-000001")
    assert item.error is not None
    assert (item.attempts, item.error.code) == (2, "out_of_memory")
    assert child.speak()[0][0] == 7


def test_a_lost_child_after_a_failure_repeats_the_seed_that_was_to_come(
    child: OneChild, tmp_path: Path
) -> None:
    child.submit(f"{{tone:fail-once={tmp_path / 'failed'}}} Hello.", seed=7)
    child.speak()
    child.lose()
    assert child.speak() == [[seed_of(7, 0, 1)]]


def test_an_engine_without_seeds_is_given_none(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    child = OneChild(store, redis_url, tmp_path / "out", takes_seed=False)
    child.submit(f"{{tone:fail-once={tmp_path / 'failed'}}} Hello.")
    assert [child.speak(), child.speak()] == [[[None]], [[None]]]


def test_seeds_that_follow_are_the_same_on_every_machine() -> None:
    assert seed_of(7, 1, 0) == 1508443777
    assert seed_of(7, 0, 1) == 1630447849
    assert seed_of(None, 0, 1) == 1796504695


def test_only_what_was_spoken_badly_is_drawn_anew() -> None:
    assert {error.code for error in leaves(SynthesisError) if not error.redraws} == {
        "out_of_memory",
        "memory_quota_exceeded",
        "worker_lost",
        "synthesis_timeout",
        "output_failed",
        "engine_lost",
        "storage_failed",
        "disk_full",
        "output_denied",
        "output_read_only",
        "output_missing",
    }

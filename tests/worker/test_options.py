"""Named options on their way from an item to its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.jobs import Item, ItemStatus, OptionValue
from voicemill.options import Option
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.attempts import groups
from worker.engines.base import Samples, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

MOODS = (Option("mood", "choice", choices=("glad", "sad")), Option("pace", "number", minimum=0))


class MoodyEngine(ToneEngine):
    """Remembers what it was told with each call, and for how many segments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[dict[str, OptionValue], int]] = []

    def synthesize(self, batch: Any, voice: str, options: SynthesisOptions) -> list[Samples | Any]:
        self.calls.append((dict(options.named), len(batch)))
        return super().synthesize(batch, voice, options)


class OneChild:
    """A child's synthesis without its process."""

    def __init__(self, store: Store, url: str, folder: Path) -> None:
        self.store = store
        self.engine = MoodyEngine()
        settings = Settings(redis_url=url, engine="tone", output_dir=folder, free_space_floor_mb=0)
        able = replace(self.engine.load({}), options=MOODS)
        store.publish_engine(able)
        vitals, storage = Vitals(settings, self.engine), Storage(store, settings)
        assert storage.look() is None
        self.synthesizer = Synthesizer(store, self.engine, able, settings, vitals, storage)

    def speak(self, *options: Mapping[str, OptionValue]) -> list[Item]:
        """One text for each; gives the items at their ends."""
        texts = [f"Text {number}." for number in range(len(options))]
        pairs = zip(inputs(*texts), options, strict=True)
        items = [replace(item, options=one) for item, one in pairs]
        self.store.create_job("job_1", "default", items, {})
        while self.store.snapshot().queued["tone"]:
            child = ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0)
            self.store.beat_child(child, 60, takes_work=True)
            (admitted,) = self.store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1)
            task = self.store.start_task(admitted.id, "c1", 60)
            assert task is not None
            self.synthesizer.run(task)
            self.store.end_task(task, max_attempts=3)
        return self.store.items("job_1", limit=100)


@pytest.fixture
def child(store: Store, redis_url: str, tmp_path: Path) -> OneChild:
    return OneChild(store, redis_url, tmp_path / "out")


def test_an_engine_is_told_the_options_of_the_items_in_a_call(child: OneChild) -> None:
    glad, sad = {"mood": "glad", "pace": 1.5}, {"mood": "sad"}
    items = child.speak(glad, glad, sad, {})
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    told = [named for named, count in child.engine.calls for _ in range(count)]
    assert told == [glad, glad, sad, {}]
    assert all(count <= 2 for _, count in child.engine.calls)


def test_what_the_engine_does_not_take_any_more_fails_the_item_alone(child: OneChild) -> None:
    """Its capabilities may be other ones than those at submission."""
    items = child.speak({"mood": "cross"}, {"mood": "glad"}, {"tempo": 2})
    codes = [item.error and item.error.code for item in items]
    assert codes == ["invalid_value", None, "unsupported_feature"]
    assert [named for named, _ in child.engine.calls] == [{"mood": "glad"}]


def test_only_items_with_the_same_options_share_a_call() -> None:
    options: list[dict[str, OptionValue]] = [{"pace": 1}, {"pace": 1.0}, {"pace": 2}, {}]
    pairs = zip(inputs("a", "b", "c", "d"), options, strict=True)
    items = [replace(item, options=one) for item, one in pairs]
    assert [[one.index for one in group] for group in groups(items, 8)] == [[0, 1], [2], [3]]

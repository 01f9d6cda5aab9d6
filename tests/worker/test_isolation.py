"""What was spoken before or beside an item changes nothing of its sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.subjects import SUBJECTS, Subject
from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.errors import SynthesisError
from voicemill.jobs import ItemInput, ItemStatus
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
from voicemill.workers import ChildRecord, SessionCounts
from worker.engines import load_engine
from worker.engines.base import Samples, Segment, SynthesisOptions
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

IN_ONE_CHILD = [
    pytest.param(one, id=one.name, marks=() if one.is_quick else pytest.mark.full)
    for one in SUBJECTS
]
A, B = 0, 1


class OneChild:
    """One loaded engine on a store and a folder."""

    def __init__(self, subject: Subject, store: Store, url: str, folder: Path) -> None:
        self.subject = subject
        self.store = store
        models = folder / "models"
        models.mkdir()
        options = {**subject.options(models)}
        settings = Settings(
            redis_url=url,
            engine=subject.name,
            engine_options=options,
            output_dir=folder / "out",
            retry_seconds=None,
            free_space_floor_mb=0,
        )
        engine = load_engine(subject.name)
        self.sizes: list[int] = []
        """Of the calls of the engine."""
        self._synthesize = engine.synthesize
        engine.synthesize = self._note  # type: ignore[method-assign]
        self.capabilities = engine.load(options)
        store.publish_engine(self.capabilities)
        storage = Storage(store, settings)
        assert storage.look() is None
        vitals = Vitals(settings, engine)
        self.synthesizer = Synthesizer(store, engine, self.capabilities, settings, vitals, storage)

    def _note(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        self.sizes.append(len(batch))
        return self._synthesize(batch, voice, options)

    def items(self, which: Sequence[int]) -> list[ItemInput]:
        """A or B in this order, each with its own seed."""
        voice, can = self.capabilities.voices[0].name, self.capabilities
        texts = [self.subject.texts[n] for n in which]
        return [
            replace(
                item,
                language=self.subject.language,
                seed=which[item.index] + 7 if can.seed else None,
                options=self.subject.still,
            )
            for item in inputs(*texts, model=self.subject.name, voice=voice)
        ]

    def speak(self, job_id: str, which: Sequence[int]) -> list[str]:
        """The hashes of the files of one job, spoken in one task."""
        self.store.create_job(job_id, "ann", self.items(which), {}, reuse=False)
        name = self.subject.name
        child = ChildRecord("c1", "node", 1, name, "1", ready_at=0.0)
        self.store.beat_child(child, 60, takes_work=True)
        while self.store.snapshot().queued[name]:
            for admitted in self.store.admit(name, CostModel(0.01, 0.0), 100.0):
                task = self.store.start_task(admitted.id, "c1", 60)
                assert task is not None
                self.synthesizer.run(task)
                self.store.end_task(task, max_attempts=1)
        items = self.store.items(job_id)
        assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
        return [item.audio.sha256 for item in items if item.audio is not None]


@pytest.mark.parametrize("subject", IN_ONE_CHILD)
def test_an_item_sounds_the_same_after_and_beside_another(
    subject: Subject, store: Store, redis_url: str, tmp_path: Path
) -> None:
    child = OneChild(subject, store, redis_url, tmp_path)
    (first,) = child.speak("job_1", [A])
    (other,) = child.speak("job_2", [B])
    (again,) = child.speak("job_3", [A])
    assert first == again != other
    beside: list[Any] = child.speak("job_4", [A, B, A, B])
    assert beside == [first, other, first, other]
    assert max(child.sizes) == min(2, child.capabilities.batch_size)
    assert child.synthesizer.sessions.counts == SessionCounts(7, 7)

"""A Redis that fell back to an older state while a child spoke: what is recorded stays whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.jobs import ItemStatus
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import StartedTask, Store
from voicemill.workers import ChildRecord
from worker.engines.base import Samples, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.synthesis import Synthesizer
from worker.vitals import Vitals


class InterruptedEngine(ToneEngine):
    """Something happens while it speaks."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens = happens

    def synthesize(self, batch: Any, voice: str, options: SynthesisOptions) -> list[Samples | Any]:
        self._happens()
        return super().synthesize(batch, voice, options)


def test_the_file_of_a_record_outlives_a_writer_that_redis_forgot(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    settings = Settings(redis_url=redis_url, engine="tone", output_dir=tmp_path)
    client: Any = store._redis

    def begin(child: str) -> StartedTask:
        record = ChildRecord(child, "node", 1, "tone", "1", ready_at=0.0)
        store.beat_child(record, 60, takes_work=True)
        (admitted,) = store.admit("tone", CostModel(1.0, 0.0), 1.0, most=1)
        task = store.start_task(admitted.id, child, 60)
        assert task is not None
        return task

    def speak(engine: ToneEngine, task: StartedTask) -> None:
        capabilities = engine.load({})
        storage = Storage(store, settings)
        assert storage.look() is None
        vitals = Vitals(settings, engine)
        Synthesizer(store, engine, capabilities, settings, vitals, storage).run(task)

    def fall_back() -> None:
        client.flushdb()
        for key, value in before.items():
            client.restore(key, 0, value)
        speak(ToneEngine(), begin("second"))

    store.publish_engine(ToneEngine().load({}))
    Storage(store, settings).look()
    store.create_job("job_1", "default", inputs("Hello."), {})
    before = {key: client.dump(key) for key in client.keys("*")}
    speak(InterruptedEngine(fall_back), begin("first"))

    item = store.item("job_1", "row-000001")
    assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 1)
    assert item.audio is not None
    data = Path(item.audio.audio_path).read_bytes()
    assert hashlib.sha256(data).hexdigest() == item.audio.sha256
    assert list(tmp_path.rglob("*.wav")) == [Path(item.audio.audio_path)]

"""Jobs whose items have been spoken to real files, without an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support import TONE, inputs
from voicemill.costs import CostModel
from voicemill.jobs import ItemAudio, ItemError, JobRules
from voicemill.outputs import audio_path, write_audio
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.audio import encode, file_rate

RATE = 8000
FAILED = ItemError("unsupported_characters", "It can't be said.", False)


def samples_of(index: int) -> np.ndarray:
    """What an item sounds like: each has its own length and pitch."""
    return 0.5 * np.sin(np.arange(400 + 37 * index) * (0.05 + 0.01 * index)).astype(np.float32)


def submit(
    store: Store, job_id: str, count: int, *, silence_ms: int = 0, response_format: str = "wav"
) -> None:
    """A job that asks for one file of its audio."""
    items = [replace(one, response_format=response_format) for one in inputs(*["a"] * count)]
    rules = JobRules(concatenate_silence_ms=silence_ms)
    store.create_job(job_id, "default", items, {}, rules=rules)


def speak(store: Store, folder: Path, *, failing: Collection[int] = (), rate: int = RATE) -> None:
    """Run all that waits."""
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 600, takes_work=True)
    while store.snapshot().queued["tone"]:
        (admitted,) = store.admit("tone", CostModel(0.001, 0.0), 100.0, most=1)
        task = store.start_task(admitted.id, "c1", 600)
        assert task is not None
        for one in store.inputs(task.job_id, list(store.start_items(task, task.indexes, 600))):
            if one.index in failing:
                store.fail_item(task, one.index, FAILED, max_attempts=1)
                continue
            kind = one.response_format
            data = encode(samples_of(one.index), rate, kind)
            path = audio_path(folder, task.job_id, one.index, one.custom_id, 1, task.token, kind)
            written = write_audio(path, data)
            sha256 = hashlib.sha256(data).hexdigest()
            length = samples_of(one.index).size / rate
            audio = ItemAudio(
                str(written.path),
                sha256,
                len(data),
                length,
                file_rate(rate, kind),
                0.1,
                "tone",
                "1",
            )
            assert store.succeed_item(task, one.index, audio)
        store.end_task(task, max_attempts=1)

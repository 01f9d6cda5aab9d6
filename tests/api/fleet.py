"""Workers for tests of the API: the store's own transitions, without a process."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from voicemill.jobs import ItemAudio, ItemError
from voicemill.store import Store
from voicemill.workers import ChildRecord

LEASE_SECONDS = 60.0


class Fleet:
    """Plays the workers by the store's own transitions, so that items end."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder

    def live(self, name: str = "child", **fields: Any) -> None:
        """One child that takes work."""
        child = ChildRecord(name, "node", 42, "tone", "1", ready_at=0.0, **fields)
        self.store.beat_child(child, LEASE_SECONDS, takes_work=True)

    def end(
        self, endings: dict[int, bytes | ItemError], *, cached: Collection[int] = ()
    ) -> list[Path | None]:
        """Run all that waits; items end with these bytes or errors, by index."""
        self.live()
        paths: list[Path | None] = []
        ran: set[int] = set()
        while ran < set(endings):
            self.store.admit("tone", self.store.cost("tone"), 1.0)
            for task_id in self.admitted():
                task = self.store.start_task(task_id, "child", LEASE_SECONDS)
                assert task is not None
                for index in self.store.start_items(task, task.indexes, LEASE_SECONDS):
                    ran.add(index)
                    ending = endings[index]
                    if isinstance(ending, ItemError):
                        self.store.fail_item(task, index, ending, max_attempts=1)
                        paths.append(None)
                        continue
                    audio = self.write(task.job_id, index, ending)
                    assert self.store.succeed_item(task, index, audio, cached=index in cached)
                    paths.append(Path(audio.audio_path))
                self.store.end_task(task, max_attempts=1)
        return paths

    def admitted(self) -> list[str]:
        """Tasks let in, by the API's dispatch or by ours."""
        return [task.id for task in self.store.stale_admitted(0)]

    def write(self, job_id: str, index: int, content: bytes) -> ItemAudio:
        """A file and its record."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{job_id}-{index}.wav"
        path.write_bytes(content)
        return ItemAudio(
            audio_path=str(path),
            sha256=hashlib.sha256(content).hexdigest(),
            size_bytes=len(content),
            duration_seconds=1.25,
            sample_rate=24000,
            device_seconds=0.5,
            engine="tone",
            model_revision="1",
        )

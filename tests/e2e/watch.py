"""Looks at jobs while things happen to them, not only when they have ended."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import soundfile

from voicemill.errors import StoreUnavailableError
from voicemill.jobs import Item, ItemAudio
from voicemill.store import Store

PAGE_ITEMS = 1000
LEAST_PAUSE_SECONDS = 0.05


class Watcher:
    """While its ``with`` block runs: what has ended stays so, and each recorded file is whole.

    It reads the store, which answers while the API is away, and the files, which are there while
    the store is away. What it finds wrong is raised when the block ends.
    """

    def __init__(self, url: str, *job_ids: str) -> None:
        self.looks: list[int] = []
        """Endings that were known after each look."""
        self._url = url
        self._job_ids = job_ids
        self._ended: dict[tuple[str, int], Item] = {}
        self._marks: dict[Path, tuple[int, ...]] = {}
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="watcher")
        self._watching: Future[None] | None = None

    def __enter__(self) -> Self:
        self._stopping.clear()
        self._watching = self._pool.submit(self._watch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        assert self._watching is not None
        self._watching.result()

    def _watch(self) -> None:
        with closing(Store.connect(self._url)) as store:
            while not self._stopping.is_set():
                began = time.monotonic()
                with suppress(StoreUnavailableError):
                    self._read(store)
                for item in self._ended.values():
                    if item.audio is not None:
                        self._look_at(item.audio)
                self.looks.append(len(self._ended))
                # A quarter of its time at most: what it watches needs the rest.
                self._stopping.wait(max(LEAST_PAUSE_SECONDS, 3 * (time.monotonic() - began)))

    def _read(self, store: Store) -> None:
        for job_id in self._job_ids:
            after = -1
            while page := store.items(job_id, after=after, limit=PAGE_ITEMS):
                for item in page:
                    name = (job_id, item.input.index)
                    if item.completed_at is not None or name in self._ended:
                        first = self._ended.setdefault(name, item)
                        assert first == item, f"{first} became {item}"
                after = page[-1].input.index

    def _look_at(self, audio: ItemAudio) -> None:
        """The file is as recorded; once that is known, that nobody has touched it since."""
        path = Path(audio.audio_path)
        found = path.stat()
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if path not in self._marks:
            data = path.read_bytes()
            recorded = (audio.size_bytes, audio.sha256)
            assert (len(data), hashlib.sha256(data).hexdigest()) == recorded, f"{path} is not whole"
            frames = soundfile.info(path).frames
            assert frames == round(audio.duration_seconds * audio.sample_rate), f"{path} is cut"
        assert self._marks.setdefault(path, mark) == mark, f"{path} was written again"

"""Audio that is there already: of an identical item of the same job, or of the tenant's cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from voicemill.errors import StorageError
from voicemill.jobs import ItemAudio, ItemError, ItemInput
from voicemill.outputs import WrittenFile, audio_path, item_folder
from voicemill.reuse import digest_of
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Spoken, StartedTask, Store
from voicemill.voices import Capabilities
from worker.cache import Cache
from worker.patience import patiently
from worker.sharing import GoneError, Sharing, UnreadableError

logger = logging.getLogger(__name__)

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0


class Reuse:
    """Finds what an item can share, for one child, and keeps what others may."""

    def __init__(
        self, store: Store, capabilities: Capabilities, settings: Settings, storage: Storage
    ) -> None:
        self._store = store
        self._capabilities = capabilities
        self._settings = settings
        self._storage = storage
        self._cache = Cache(settings.output_dir) if settings.cache_mb else None
        self._sharing = Sharing()

    def spoken(self, task: StartedTask, items: Sequence[ItemInput]) -> dict[int, Spoken]:
        """What these items can share in their job, by index of those that can."""
        found = {
            item.index: patiently(
                self._settings.lease_seconds,
                self._store.share_item,
                task,
                item.index,
                item.same_as,
            )
            for item in items
            if item.same_as is not None
        }
        return {index: spoken for index, spoken in found.items() if spoken is not None}

    def take(
        self, task: StartedTask, item: ItemInput, attempt: int, spoken: Spoken | None
    ) -> ItemAudio | None:
        """Give audio that is there the name of an item's attempt; nothing where there is none.

        Raises ``StorageError`` and ``OutputError``.
        """
        if not task.reuses:
            return None
        path = audio_path(
            self._settings.output_dir,
            task.job_id,
            item.index,
            item.custom_id,
            attempt,
            task.token,
            item.response_format,
        )
        return self._of_job(task, spoken, path) or self._of_cache(task, item, path)

    def keep(self, task: StartedTask, item: ItemInput, audio: ItemAudio) -> None:
        """Have audio at hand for other jobs of its tenant."""
        if self._cache is None or not task.reuses:
            return
        # A folder that went away a moment ago is not written to.
        with suppress(StorageError):
            self._storage.check()
            self._cache.keep(task.tenant, self._digest(item), audio, item.response_format)

    def _of_job(self, task: StartedTask, spoken: Spoken | None, path: Path) -> ItemAudio | None:
        audio = spoken and spoken.audio
        if not spoken or not audio:
            return None
        ours = (self._capabilities.engine, self._capabilities.model_revision)
        if (audio.engine, audio.model_revision) != ours:
            return None
        # The recorded folder is not believed: it could be anywhere.
        folder = item_folder(self._settings.output_dir, task.job_id, spoken.index)
        source = folder / Path(audio.audio_path).name
        try:
            self._share(source, path, audio.sha256, audio.size_bytes)
        except (GoneError, UnreadableError) as error:
            logger.warning("%s Its text is spoken again", error)
            return None
        return replace(audio, audio_path=str(path), device_seconds=0.0)

    def _of_cache(self, task: StartedTask, item: ItemInput, path: Path) -> ItemAudio | None:
        if self._cache is None:
            return None
        for entry in self._cache.entries(task.tenant, self._digest(item)):
            source = self._cache.path(entry)
            try:
                written = self._share(source, path, entry.sha256, entry.size_bytes)
            except GoneError as error:
                logger.warning("%s It is no longer kept for other jobs", error)
                with suppress(OSError):
                    self._cache.remove(entry)
                continue
            except UnreadableError as error:
                logger.warning("%s It stays, and its text is spoken again", error)
                continue
            self._cache.note_use(entry)
            return ItemAudio(
                audio_path=str(path),
                sha256=entry.sha256,
                size_bytes=written.size_bytes,
                duration_seconds=entry.duration_seconds,
                sample_rate=entry.sample_rate,
                device_seconds=0.0,
                engine=self._capabilities.engine,
                model_revision=self._capabilities.model_revision,
            )
        return None

    def _share(self, source: Path, path: Path, sha256: str, size: int) -> WrittenFile:
        with self._storage.writing(size):
            return self._sharing.share(source, path, sha256)

    def _digest(self, item: ItemInput) -> str:
        return digest_of(item, self._capabilities, self._settings.engine_options)


def failure_for(spoken: Spoken | None) -> ItemError | None:
    """Why an item need not be spoken: two that sound the same have failed for good."""
    if spoken is None or spoken.error is None:
        return None
    said = (
        f"Not spoken, as two items that are to sound the same have failed: {spoken.error.message}"
    )
    return replace(spoken.error, message=said)


def pause_for(spoken: Spoken | None) -> float | None:
    """Seconds that an item should wait for one that it can share: as long again as that one runs,
    or until that one may be begun.

    Nothing where there is no such item, or it has ended, well or not.
    """
    if spoken is None or spoken.pending_seconds is None:
        return None
    return min(LONGEST_PAUSE_SECONDS, max(SHORTEST_PAUSE_SECONDS, spoken.pending_seconds))

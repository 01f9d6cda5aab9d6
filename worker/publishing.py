"""How an attempt ends: audio checked, joined, encoded and written, then the record."""

from __future__ import annotations

import logging
from pathlib import Path

from voicemill.errors import JobNotFoundError, StorageError, SynthesisError, VoicemillError
from voicemill.jobs import Item, ItemAudio, ItemError, ItemInput, ItemStatus
from voicemill.outputs import audio_path, write_audio
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import StartedTask, Store
from voicemill.voices import Capabilities
from worker import audio
from worker.attempts import Attempt, Outcome, failure_of
from worker.patience import patiently
from worker.reuse import Reuse

logger = logging.getLogger(__name__)


class Publisher:
    """Writes files and records, for one child. Never two of one item at a time."""

    def __init__(
        self,
        store: Store,
        capabilities: Capabilities,
        settings: Settings,
        storage: Storage,
        reuse: Reuse,
    ) -> None:
        self._store = store
        self._capabilities = capabilities
        self._settings = settings
        self._storage = storage
        self._reuse = reuse

    def finish(self, task: StartedTask, attempt: Attempt) -> Outcome:
        """End an attempt that has been spoken, has failed, or was stopped in the middle."""
        index = attempt.item.index
        patience = self._settings.lease_seconds
        if attempt.pause is not None:
            status = patiently(
                patience, self._store.return_item, task, index, None, pause=attempt.pause
            )
            return self._outcome(task, attempt.item, status)
        if attempt.failure is not None:
            failure = attempt.failure
            status = patiently(
                patience, self._store.fail_item, task, index, failure, max_attempts=1
            )
            return self._outcome(task, attempt.item, status, failure)
        if attempt.error is None and len(attempt.pieces) < len(attempt.segments):
            status = patiently(patience, self._store.cancel_item, task, index)
            return self._outcome(task, attempt.item, status)
        published: list[Outcome] = []
        error = attempt.error or failure_of(lambda: published.append(self._publish(task, attempt)))
        return published[0] if error is None else self._fail(task, attempt, error)

    def _publish(self, task: StartedTask, attempt: Attempt) -> Outcome:
        item, shared = attempt.item, attempt.shared
        published = shared or self._write(task, attempt)
        if not patiently(
            self._settings.lease_seconds,
            self._store.succeed_item,
            task,
            item.index,
            published,
            cached=shared is not None,
            same_as=item.same_as,
        ):
            Path(published.audio_path).unlink(missing_ok=True)
            return self._outcome(task, item, None)
        if shared is None:
            self._reuse.keep(task, item, published)
        return Outcome.of(Item(task.job_id, item, ItemStatus.SUCCEEDED, audio=published))

    def _write(self, task: StartedTask, attempt: Attempt) -> ItemAudio:
        item, rate = attempt.item, self._capabilities.sample_rate
        for piece in attempt.pieces:
            audio.check(piece)
        samples = audio.join(attempt.pieces, rate)
        data = audio.encode(samples, rate, item.response_format)
        path = audio_path(
            self._settings.output_dir,
            task.job_id,
            item.index,
            item.custom_id,
            attempt.number,
            task.token,
            item.response_format,
        )
        with self._storage.writing(len(data)):
            written = write_audio(path, data)
        return ItemAudio(
            audio_path=str(written.path),
            sha256=written.sha256,
            size_bytes=written.size_bytes,
            duration_seconds=round(len(samples) / rate, 6),
            sample_rate=audio.file_rate(rate, item.response_format),
            device_seconds=round(attempt.seconds, 6),
            engine=self._capabilities.engine,
            model_revision=self._capabilities.model_revision,
        )

    def _fail(self, task: StartedTask, attempt: Attempt, error: VoicemillError) -> Outcome:
        logger.warning(
            "job %s item %d attempt %d: %s",
            task.job_id,
            attempt.item.index,
            attempt.number,
            error.code,
        )
        failure = ItemError.of(error)
        item, patience = attempt.item, self._settings.lease_seconds
        if isinstance(error, StorageError):
            status = patiently(patience, self._store.return_item, task, item.index, failure)
        else:
            status = patiently(
                patience,
                self._store.fail_item,
                task,
                item.index,
                failure,
                max_attempts=self._settings.max_attempts,
                retry_seconds=self._settings.retry_seconds or 0.0,
                redraw=isinstance(error, SynthesisError) and error.redraws,
            )
        return self._outcome(task, item, status, failure)

    def _outcome(
        self,
        task: StartedTask,
        item: ItemInput,
        status: ItemStatus | None,
        failure: ItemError | None = None,
    ) -> Outcome:
        """What became of an item without audio of ours, or what other hands made of it."""
        if status is None:
            try:
                found = patiently(
                    self._settings.lease_seconds, self._store.item, task.job_id, item.custom_id
                )
            except JobNotFoundError:
                status = ItemStatus.CANCELLED
            else:
                return Outcome.of(found)
        has_failed = status in (ItemStatus.QUEUED, ItemStatus.FAILED)
        error = failure if has_failed else None
        return Outcome.of(Item(task.job_id, item, status, error=error))

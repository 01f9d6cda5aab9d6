"""A batch from ids to files: text → segments → engine → checks → file → record."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, ParamSpec

from voicemill.errors import (
    EnginePoisonedError,
    NoSpeakableTextError,
    OutOfMemoryError,
    OutputError,
    StorageError,
    SynthesisError,
    VoicemillError,
)
from voicemill.jobs import ItemAudio, ItemError, ItemInput, ItemStatus
from voicemill.outputs import WrittenFile, audio_path, write_audio
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import StartedTask, Store
from voicemill.voices import Capabilities
from worker import audio, segments
from worker.engines.base import Engine, Samples, Segment, SynthesisOptions
from worker.lease import LeaseKeeper
from worker.patience import patiently
from worker.vitals import Vitals

logger = logging.getLogger(__name__)

P = ParamSpec("P")

LEAST_SEGMENT_CHARACTERS = 20
"""Segments get no shorter than this for want of memory."""
WRITES_AHEAD = 4
"""Finished items that may wait for the writer thread before synthesis waits for it."""


@dataclass(slots=True)
class Attempt:
    """One run of an item, as it fills up."""

    item: ItemInput
    number: int
    """From 1."""
    shrink: int = 1
    """How many times shorter than usual its segments are, after it ran out of memory."""
    segments: list[Segment] = field(default_factory=list)
    pieces: list[Samples] = field(default_factory=list)
    seconds: float = 0.0
    """Wall time the engine took."""
    error: VoicemillError | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; Celery's result is a list of these."""

    job_id: str
    custom_id: str
    status: str
    audio_path: str | None = None
    duration_seconds: float | None = None
    sample_rate: int | None = None
    sha256: str | None = None
    error: dict[str, Any] | None = None

    def to_record(self) -> dict[str, Any]:
        """The JSON object of the result backend."""
        return asdict(self)


class Synthesizer:
    """Speaks batches with one loaded engine. Encoding and writing overlap the next synthesis."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        capabilities: Capabilities,
        settings: Settings,
        vitals: Vitals,
        storage: Storage,
    ) -> None:
        self._store = store
        self._engine = engine
        self._capabilities = capabilities
        self._settings = settings
        self._vitals = vitals
        self._storage = storage
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._waiting = threading.BoundedSemaphore(WRITES_AHEAD)
        self.poisoned = False
        """True once the engine said that this process can't go on."""

    def run(self, task: StartedTask) -> list[Outcome]:
        """Speak what the task carries and close it; one outcome for each item that was begun."""
        asked = self._patiently(self._store.inputs, task.job_id, task.indexes)
        endings: list[Future[Outcome]] = []
        with LeaseKeeper(self._store, task, self._settings.lease_seconds) as lease:
            try:
                for group in groups(asked, self._capabilities.max_batch):
                    if lease.is_over or self.poisoned or self._storage.trouble is not None:
                        break
                    for attempt in self._synthesize(task, group, lease):
                        endings.append(self._finish_later(task, attempt))
                return [ending.result() for ending in endings]
            finally:
                self._patiently(self._store.end_task, task, **self._retries)

    @property
    def _retries(self) -> dict[str, Any]:
        one = self._settings
        return {"max_attempts": one.max_attempts, "retry_seconds": one.retry_seconds or 0.0}

    def _patiently(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return patiently(self._settings.lease_seconds, call, *args, **kwargs)

    def _synthesize(
        self, task: StartedTask, group: Sequence[ItemInput], lease: LeaseKeeper
    ) -> list[Attempt]:
        indexes = [item.index for item in group]
        started = self._patiently(
            self._store.start_items, task, indexes, self._settings.lease_seconds
        )
        shrinks = self._shrinks(task.job_id, started)
        attempts = [
            Attempt(item, started[item.index], shrinks.get(item.index, 1))
            for item in group
            if item.index in started
        ]
        for attempt in attempts:
            attempt.error = failure_of(self._prepare, attempt)
        work = [(attempt, segment) for attempt in attempts for segment in attempt.segments]
        size = 1 if shrinks else max(1, self._capabilities.max_batch)
        for start in range(0, len(work), size):
            if lease.is_over:
                break
            sound = [pair for pair in work[start : start + size] if pair[0].error is None]
            self._speak(task.job_id, sound)
        return attempts

    def _shrinks(self, job_id: str, started: Mapping[int, int]) -> dict[int, int]:
        """What to shorten segments by, by index of the items that ran out of memory before."""
        again = [index for index, number in started.items() if number > 1]
        if not again:
            return {}
        errors = self._patiently(self._store.last_errors, job_id, again)
        return {
            index: 2 ** (started[index] - 1)
            for index, error in errors.items()
            if error.code == OutOfMemoryError.code
        }

    def _prepare(self, attempt: Attempt) -> None:
        for _, refusal in self._capabilities.refusals(attempt.item):
            raise refusal
        best, hard = (
            max(LEAST_SEGMENT_CHARACTERS, characters // attempt.shrink)
            for characters in (
                self._capabilities.best_segment_characters,
                self._capabilities.max_segment_characters,
            )
        )
        texts = segments.split(
            segments.clean(attempt.item.text),
            best,
            hard,
            language=attempt.item.language
            or self._capabilities.voice(attempt.item.voice).languages[0],
        )
        attempt.segments = [Segment(text) for text in texts]
        if not texts:
            raise NoSpeakableTextError("The text has nothing to speak once it is cleaned.")

    def _speak(self, job_id: str, work: Sequence[tuple[Attempt, Segment]]) -> None:
        if not work:
            return
        items = [attempt.item for attempt, _ in work]
        began = time.perf_counter()
        spoken = self._call_engine([segment for _, segment in work], items[0])
        seconds = time.perf_counter() - began
        indexes = [item.index for item in items]
        self._vitals.tally.note_call(job_id, list(zip(indexes, spoken, strict=True)))
        sounds = [one for one in spoken if not isinstance(one, VoicemillError)]
        # What failed took its time too, and gave no audio to set against it.
        if len(sounds) == len(work):
            audio_seconds = sum(map(len, sounds)) / self._capabilities.sample_rate
            self._vitals.pace.add(seconds, audio_seconds, len(work))
        characters = sum(len(segment.text) for _, segment in work)
        for (attempt, segment), result in zip(work, spoken, strict=True):
            attempt.seconds += seconds * len(segment.text) / characters
            if isinstance(result, VoicemillError):
                attempt.error = attempt.error or result
            else:
                attempt.pieces.append(result)

    def _call_engine(
        self, batch: Sequence[Segment], item: ItemInput
    ) -> Sequence[Samples | VoicemillError]:
        spoken: list[Samples | SynthesisError] = []

        def call() -> None:
            spoken.extend(self._engine.synthesize(batch, item.voice, options_of(item)))
            if len(spoken) != len(batch):
                raise SynthesisError(
                    f"The engine gave {len(spoken)} results for {len(batch)} segments."
                )

        error = failure_of(call)
        if isinstance(error, EnginePoisonedError):
            self.poisoned = True
        return spoken if error is None else [error] * len(batch)

    def _finish_later(self, task: StartedTask, attempt: Attempt) -> Future[Outcome]:
        self._waiting.acquire()
        future = self._writer.submit(self._finish, task, attempt)
        future.add_done_callback(lambda _: self._waiting.release())
        return future

    def _finish(self, task: StartedTask, attempt: Attempt) -> Outcome:
        if attempt.error is None and len(attempt.pieces) < len(attempt.segments):
            self._patiently(self._store.cancel_item, task, attempt.item.index)
            return Outcome(task.job_id, attempt.item.custom_id, ItemStatus.CANCELLED)
        published: list[Outcome] = []
        error = attempt.error or failure_of(lambda: published.append(self._publish(task, attempt)))
        return published[0] if error is None else self._fail(task, attempt, error)

    def _publish(self, task: StartedTask, attempt: Attempt) -> Outcome:
        item, rate = attempt.item, self._capabilities.sample_rate
        for piece in attempt.pieces:
            audio.check(piece)
        samples = audio.join(attempt.pieces, rate)
        path = audio_path(
            self._settings.output_dir,
            task.job_id,
            item.index,
            item.custom_id,
            attempt.number,
            item.response_format,
        )
        written = self._write(path, audio.encode(samples, rate, item.response_format))
        published = ItemAudio(
            audio_path=str(written.path),
            sha256=written.sha256,
            size_bytes=written.size_bytes,
            duration_seconds=round(len(samples) / rate, 6),
            sample_rate=audio.file_rate(rate, item.response_format),
            device_seconds=round(attempt.seconds, 6),
            engine=self._capabilities.engine,
            model_revision=self._capabilities.model_revision,
        )
        if not self._patiently(self._store.succeed_item, task, item.index, published):
            written.path.unlink(missing_ok=True)
            return Outcome(task.job_id, item.custom_id, ItemStatus.CANCELLED)
        return Outcome(
            task.job_id,
            item.custom_id,
            ItemStatus.SUCCEEDED,
            published.audio_path,
            published.duration_seconds,
            published.sample_rate,
            published.sha256,
        )

    def _write(self, path: Path, data: bytes) -> WrittenFile:
        try:
            self._storage.check()
            return write_audio(path, data)
        # A file that could not be written may be the first sign of a folder that went away.
        except (OutputError, StorageError) as error:
            raise self._storage.refused(error, len(data)) from error

    def _fail(self, task: StartedTask, attempt: Attempt, error: VoicemillError) -> Outcome:
        logger.warning(
            "job %s item %d attempt %d: %s",
            task.job_id,
            attempt.item.index,
            attempt.number,
            error.code,
        )
        failure = ItemError(error.code, error.message, error.retryable)
        if isinstance(error, StorageError):
            self._patiently(self._store.return_item, task, attempt.item.index, failure)
            custom_id = attempt.item.custom_id
            return Outcome(task.job_id, custom_id, ItemStatus.QUEUED, error=asdict(failure))
        self._patiently(
            self._store.fail_item,
            task,
            attempt.item.index,
            failure,
            **self._retries,
        )
        again = error.retryable and attempt.number < self._settings.max_attempts
        status = ItemStatus.QUEUED if again else ItemStatus.FAILED
        return Outcome(task.job_id, attempt.item.custom_id, status, error=asdict(failure))


def failure_of(
    step: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> VoicemillError | None:
    """The error a step ended with, by name; nothing when it went well.

    Engines and encoders are anybody's code: whatever they raise fails the item in hand, with a
    name, and the batch goes on.
    """
    try:
        step(*args, **kwargs)
    except VoicemillError as error:
        return error
    except MemoryError:
        return OutOfMemoryError("The host had no memory left.")
    except Exception as error:
        logger.exception("an item failed")
        return SynthesisError(f"{type(error).__name__} was raised while the item was spoken.")
    return None


def options_of(item: ItemInput) -> SynthesisOptions:
    """How an item is to be spoken."""
    return SynthesisOptions(item.language, item.speed, item.seed, item.instructions)


def groups(items: Sequence[ItemInput], most: int) -> Iterator[list[ItemInput]]:
    """Neighbours that one call may speak together: same voice and options, ``most`` at a time."""
    for _, alike in groupby(items, key=lambda item: (item.voice, options_of(item))):
        together = list(alike)
        for start in range(0, len(together), max(1, most)):
            yield together[start : start + max(1, most)]

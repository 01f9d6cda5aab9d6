"""A batch from ids to files: text → segments → engine; what follows is published beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from voicemill.enrolment import EnrolledVoice
from voicemill.errors import (
    EnginePoisonedError,
    MemoryQuotaExceededError,
    NoSpeakableTextError,
    OutOfMemoryError,
    OutputTooLongError,
    SynthesisError,
    VoicemillError,
    VoiceNotFoundError,
)
from voicemill.jobs import ItemAudio, ItemInput
from voicemill.limits import Limits
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Spoken, StartedTask, Store
from voicemill.voices import Capabilities
from worker import audio, segments
from worker.attempts import Attempt, Outcome, failure_of, groups, options_of
from worker.engines.base import Engine, Samples, Segment
from worker.lease import LeaseKeeper
from worker.patience import patiently
from worker.publishing import Publisher
from worker.quota import Quota
from worker.reuse import Reuse, failure_for, pause_for
from worker.sessions import Sessions
from worker.vitals import Vitals
from worker.voices import EngineVoices

LEAST_SEGMENT_CHARACTERS = 20
"""Segments get no shorter than this for want of memory."""
WRITES_AHEAD = 4
"""Finished items that may wait for the writer thread before synthesis waits for it."""


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
        self._reuse = Reuse(store, capabilities, settings, storage)
        self.voices = EngineVoices(
            store, engine, settings, f"{capabilities.engine} {capabilities.model_revision}"
        )
        self._publisher = Publisher(store, capabilities, settings, storage, self._reuse)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._waiting = threading.BoundedSemaphore(WRITES_AHEAD)
        self._quota = Quota(vitals.used_bytes)
        self._limits = Limits(
            settings.max_output_seconds, settings.max_item_seconds, settings.max_memory_mb or None
        )
        self.sessions = Sessions()
        self.poisoned = False
        """True once the engine said that this process can't go on."""

    @property
    def took_too_much(self) -> bool:
        """Whether a call took more memory than its quota was."""
        return self._quota.was_exceeded

    def run(self, task: StartedTask) -> list[Outcome]:
        """Speak what the task carries; one outcome for each item that was begun.

        To close the task is left to the caller.
        """
        task = replace(task, limits=task.limits.within(self._limits))
        self._quota.begin(task.limits)
        asked = self._patiently(self._store.inputs, task.job_id, task.indexes)
        endings: list[Future[Outcome]] = []
        with LeaseKeeper(self._store, task, self._settings.lease_seconds) as lease:
            try:
                for group in groups(asked, self._capabilities.batch_size):
                    if group[0].same_as is not None:
                        # What it is to sound like may be among them.
                        wait(endings)
                    if lease.is_over or self.poisoned or self._storage.trouble is not None:
                        break
                    for attempt in self._synthesize(task, group, lease):
                        endings.append(self._finish_later(task, attempt))
            finally:
                # An engine that ends its process takes nothing that was spoken with it.
                wait(endings)
            return [ending.result() for ending in endings]

    def _patiently(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return patiently(self._settings.lease_seconds, call, *args, **kwargs)

    def _synthesize(
        self, task: StartedTask, group: Sequence[ItemInput], lease: LeaseKeeper
    ) -> list[Attempt]:
        indexes = [item.index for item in group]
        started = self._patiently(
            self._store.start_items, task, indexes, self._settings.lease_seconds
        )
        again = self._again(task.job_id, started)
        with ExitStack() as sessions:
            attempts = []
            for item in group:
                if item.index in started:
                    shrink, draws = again.get(item.index, (1, 0))
                    session = sessions.enter_context(
                        self.sessions.session(item, task.limits, draws)
                    )
                    attempts.append(Attempt(item, started[item.index], session, shrink))
            if attempts:
                self._work(task, attempts, lease)
        return attempts

    def _work(self, task: StartedTask, attempts: Sequence[Attempt], lease: LeaseKeeper) -> None:
        spoken = self._reuse.spoken(task, [attempt.item for attempt in attempts])
        voice, missing = self._voice_of(task, attempts[0].item)
        for attempt in attempts:
            like_it = spoken.get(attempt.item.index)
            attempt.error = missing or failure_of(self._prepare, task, attempt, like_it)
        work = [(attempt, segment) for attempt in attempts for segment in attempt.segments]
        is_short_of_memory = any(attempt.shrink > 1 for attempt in attempts)
        size = 1 if is_short_of_memory else self._capabilities.batch_size
        while work and not lease.is_over:
            count = self._fitting(work, size)
            self._speak(task.job_id, work[:count], voice)
            work = [pair for pair in work[count:] if pair[0].error is None]

    def _fitting(self, work: Sequence[tuple[Attempt, Segment]], most: int) -> int:
        """How many segments the next call has; none where the first one would take too much."""
        try:
            return self._quota.fitting([len(segment.text) for _, segment in work], most)
        except MemoryQuotaExceededError as error:
            work[0][0].error = error
            return 0

    def _voice_of(
        self, task: StartedTask, item: ItemInput
    ) -> tuple[EnrolledVoice | None, VoicemillError | None]:
        try:
            return self.voices.find(task.tenant, item), None
        except VoiceNotFoundError as error:
            return None, error

    def _again(self, job_id: str, started: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """By index of the items that were begun before: what to shorten segments by, and draws."""
        again = [index for index, number in started.items() if number > 1]
        if not again:
            return {}
        pasts = self._patiently(self._store.pasts, job_id, again)
        return {
            index: (2**past.tries if past.code == OutOfMemoryError.code else 1, past.draws)
            for index, past in pasts.items()
        }

    def _prepare(self, task: StartedTask, attempt: Attempt, like_it: Spoken | None) -> None:
        item = attempt.item
        attempt.pause, attempt.failure = pause_for(like_it), failure_for(like_it)
        if attempt.pause is not None or attempt.failure is not None:
            return
        attempt.shared = self._reuse.take(task, item, attempt.number, like_it)
        if attempt.shared is not None:
            self._check_shared(attempt, attempt.shared)
            return
        for _, refusal in self._capabilities.refusals(item):
            raise refusal
        best, hard = (
            max(LEAST_SEGMENT_CHARACTERS, characters // attempt.shrink)
            for characters in (
                self._capabilities.best_segment_characters,
                self._capabilities.max_segment_characters,
            )
        )
        texts = segments.split(
            segments.clean(item.text),
            best,
            hard,
            language=item.language or self._capabilities.voice_of(item).languages[0],
        )
        attempt.segments = [
            Segment(text, self._seed(attempt, position)) for position, text in enumerate(texts)
        ]
        if not texts:
            raise NoSpeakableTextError("The text has nothing to speak once it is cleaned.")

    def _seed(self, attempt: Attempt, position: int) -> int | None:
        if not self._capabilities.seed:
            return None
        return attempt.session.seed(position)

    def _check_shared(self, attempt: Attempt, shared: ItemAudio) -> None:
        try:
            attempt.session.check(output_seconds=shared.duration_seconds)
        except OutputTooLongError:
            Path(shared.audio_path).unlink(missing_ok=True)
            raise

    def _speak(
        self,
        job_id: str,
        work: Sequence[tuple[Attempt, Segment]],
        voice: EnrolledVoice | None,
    ) -> None:
        if not work:
            return
        items = [attempt.item for attempt, _ in work]
        spoken, seconds = self._call_engine([segment for _, segment in work], items[0], voice)
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
                attempt.error = attempt.error or failure_of(self._check, attempt)

    def _check(self, attempt: Attempt) -> None:
        attempt.session.check(
            output_seconds=audio.joined_seconds(attempt.pieces, self._capabilities.sample_rate),
            device_seconds=attempt.seconds,
        )

    def _call_engine(
        self, batch: Sequence[Segment], item: ItemInput, voice: EnrolledVoice | None
    ) -> tuple[Sequence[Samples | VoicemillError], float]:
        """What the engine gives, and how long it spoke; to take in a voice does not count."""
        spoken: list[Samples | VoicemillError] = []
        began = time.perf_counter()

        def call() -> None:
            nonlocal began
            with self.voices.speaking(item, voice) as name:
                began = time.perf_counter()
                with self._quota.watched([len(segment.text) for segment in batch]):
                    results = self._engine.synthesize(batch, name, options_of(item))
                spoken.extend(map(audio.given, results))
            if len(spoken) != len(batch):
                raise SynthesisError(
                    f"The engine gave {len(spoken)} results for {len(batch)} segments."
                )

        error = failure_of(call)
        seconds = time.perf_counter() - began
        if isinstance(error, EnginePoisonedError):
            self.poisoned = True
        return (spoken if error is None else [error] * len(batch)), seconds

    def _finish_later(self, task: StartedTask, attempt: Attempt) -> Future[Outcome]:
        self._waiting.acquire()
        future = self._writer.submit(self._publisher.finish, task, attempt)
        future.add_done_callback(lambda _: self._waiting.release())
        return future

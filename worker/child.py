"""The process that holds the engine: loading, heartbeat, batches, and what it wishes."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from voicemill.dispatch import Dispatcher
from voicemill.errors import (
    EnginePoisonedError,
    StoreRefusedError,
    StoreUnavailableError,
    SynthesisError,
)
from voicemill.health import MEBIBYTE
from voicemill.jobs import ItemStatus
from voicemill.queue import Queue
from voicemill.rollouts import Revision
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import MisplacedTask, StartedTask, Store
from voicemill.workers import ChildRecord, Orders
from worker import audio
from worker.engines import load_engine
from worker.engines.base import WARM_UP_CALLS, Engine, Segment, SynthesisOptions
from worker.engines.no_memory import named_want
from worker.handover import Wish
from worker.measurements import Measurements
from worker.patience import patiently
from worker.recycle import (
    AT_ONCE,
    IN_TURN,
    ROT,
    Policy,
    Reason,
    over_by_nature,
    pressures,
    reason_to_leave,
)
from worker.remote.engine import RemoteEngine
from worker.revisions import named
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

logger = logging.getLogger(__name__)

BASE_REVISION = Revision()
WARM_UP_TEXT = "This voice is warm now, and ready for work."
LONGEST_BEAT_SECONDS = 1.0
"""How late an order of an operator may be heard."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a child wants of its parent, each said once."""

    leave_now: Wish | None = None
    ask: Wish | None = None
    """To be replaced."""
    drain: bool | None = None
    """To be given no more jobs, or jobs again."""
    lanes: tuple[str, ...] | None = None
    """To be given jobs from these lanes."""


class Child:
    """One engine in one process. Made once, before the process takes work."""

    def __init__(
        self,
        settings: Settings,
        child_id: str,
        node: str,
        place: str = "",
        revision: Revision = BASE_REVISION,
    ) -> None:
        """``settings`` are those of its ``revision`` already."""
        self.settings = settings
        self._policy = Policy.from_settings(settings)
        self._is_policy_adopted = False
        self.id = child_id
        self._node = node
        self._place = place
        self._revision = revision
        self._store = Store.connect(settings.redis_url)
        if settings.redis_check:
            patiently(settings.load_timeout_seconds, self._store.refuse_forgetful)
        self._dispatcher = Dispatcher(self._store, Queue(settings), settings)
        self._engine = new_engine(settings)
        began = time.perf_counter()
        with named_want():
            self._capabilities = named(self._engine.load(settings.engine_options), revision)
            own = self._capabilities.voices
            self._own_voice = own[0].name if own else None
            synthesis_seconds = warm_up(self._engine, self._own_voice)
        self._vitals = Vitals(settings, self._engine)
        self._storage = Storage(self._store, settings)
        self._synthesizer = Synthesizer(
            self._store, self._engine, self._capabilities, settings, self._vitals, self._storage
        )
        self.warmup_seconds = time.perf_counter() - began
        self._over_by_nature: list[Reason] = []
        self._asked: Reason | None = None
        self._drains = False
        self._lanes: tuple[str, ...] = (self._capabilities.engine,)
        self._orders = self._orders_at_start = Orders()
        self._nearest: tuple[Reason, float] | None = None
        self._leaving = threading.Event()
        self._announce(synthesis_seconds)
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    @property
    def others(self) -> frozenset[int]:
        """Pids of its engine's own processes."""
        return self._vitals.others()

    def run(self, task_id: str) -> list[dict[str, Any]] | None:
        """Carry out one task; nothing when another copy of it was taken before."""
        lease_seconds = self.settings.lease_seconds
        task = patiently(
            lease_seconds,
            self._store.start_task,
            task_id,
            self.id,
            lease_seconds,
            token=uuid.uuid4().hex,
            revision=self._revision.name,
        )
        if task is None:
            logger.info("task %s is not ours to start", task_id)
            return None
        if isinstance(task, MisplacedTask):
            patiently(lease_seconds, self._dispatcher.pass_on, task)
            return None
        try:
            outcomes = self._synthesizer.run(task)
        finally:
            self._close(task)
        self._vitals.tally.tasks += 1
        self._vitals.tally.items += sum(one.status != ItemStatus.QUEUED for one in outcomes)
        self._try_engine()
        every = self.settings.empty_cache_every
        if every and self._vitals.tally.tasks % every == 0 and not self._synthesizer.poisoned:
            self._clean_up()
        return [outcome.to_record() for outcome in outcomes]

    def _close(self, task: StartedTask) -> None:
        try:
            self._end(task)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("task %s not closed, its lease will run out: %s", task.id, error)

    def _end(self, task: StartedTask) -> None:
        one = self.settings
        if self._storage.trouble is None:
            patiently(one.lease_seconds, self._dispatcher.follow, task, task.lane)
            self._admit_more(lane for lane in self._orders.lanes if lane != task.lane)
            return
        patiently(
            one.lease_seconds,
            self._store.end_task,
            task,
            max_attempts=one.max_attempts,
            retry_seconds=one.retry_seconds or 0.0,
        )
        self._say_so()

    def look(self, **celery_limits: int | None) -> Wishes:
        """Look at itself between batches; for the main thread alone.

        ``max_tasks`` and ``max_memory_kib`` are Celery's own limits.
        """
        now = self._vitals.measure(
            poisoned=self._synthesizer.poisoned or self._vitals.has_lost_engine,
            requested=self._orders.recycles > self._orders_at_start.recycles,
            model_is_wanted=self._orders.revision in (None, self._revision.name),
            took_too_much=self._synthesizer.took_too_much,
        )
        if not self._is_policy_adopted:
            self._adopt(self._policy.with_celery(**celery_limits), now)
        policy = self._policy
        self._nearest = max(pressures(policy, now).items(), key=lambda pair: pair[1], default=None)
        reason = reason_to_leave(policy, now)
        if reason in AT_ONCE:
            self._asked = reason
            return Wishes(leave_now=self._wish(reason))
        ask = None
        if reason is not None and reason is not self._asked and self._may_ask(reason):
            self._asked = reason
            ask = self._wish(reason)
        drains, self._drains = self._drains, self._orders.drain
        lanes, self._lanes = self._lanes, self._orders.lanes
        return Wishes(
            ask=ask,
            drain=None if drains == self._drains else self._drains,
            lanes=None if lanes == self._lanes else self._lanes,
        )

    def _try_engine(self) -> None:
        """Where items in a row failed: if the engine still speaks, it was the items."""
        most = self._policy.max_errors
        failed = self._vitals.tally.errors_in_a_row
        if most is None or failed < most or self._synthesizer.poisoned:
            return
        with self._synthesizer.voices.alone() as enrolled:
            voice = self._own_voice or enrolled
            speaks = voice is not None and still_speaks(self._engine, voice)
        if speaks:
            logger.warning("%d items in a row failed, though the engine speaks", failed)
            self._vitals.tally.clear_errors()

    def leave(self, *, is_surplus: bool = False) -> None:
        """Take no more work; the process ends after this. A surplus one has no successor."""
        reason = "surplus" if is_surplus else self._asked or Reason.REQUESTED
        logger.warning(
            "child %d recycles: %s after %d tasks, %d items, %.0f s, %d MiB",
            os.getpid(),
            reason,
            self._vitals.tally.tasks,
            self._vitals.tally.items,
            self._vitals.age_seconds,
            self._vitals.rss // MEBIBYTE,
        )
        self._leaving.set()
        try:
            if not is_surplus:
                self._store.add_metric("voicemill_recycles_total", {"reason": reason})
            self._beat_once()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the recycle could not be noted: %s", error)
        self._unload()

    def _unload(self) -> None:
        if self._synthesizer.poisoned or self._vitals.has_lost_engine:
            return
        try:
            with self._synthesizer.voices.alone():
                self._engine.unload()
        # An engine may raise anything, and the end of the process gives back what it holds.
        except Exception:
            logger.exception("the engine was not unloaded")

    def _clean_up(self) -> None:
        try:
            with self._synthesizer.voices.alone():
                self._engine.after_batch()
        except EnginePoisonedError as error:
            logger.error("the engine can't go on: %s", error.message)
            self._synthesizer.poisoned = True

    def _wish(self, reason: Reason) -> Wish:
        return Wish(
            str(reason),
            self._vitals.footprint,
            rots_early=self._rots_early(reason),
            in_turn=reason in IN_TURN,
        )

    def _may_ask(self, reason: Reason) -> bool:
        return self._asked is None or reason is Reason.REQUESTED

    def _rots_early(self, reason: Reason) -> bool:
        is_young = self._vitals.age_seconds < 2 * self.settings.min_age_seconds
        return is_young and reason in ROT | {Reason.ERRORS}

    def _adopt(self, limits: Policy, warm: Measurements) -> None:
        self._over_by_nature = over_by_nature(limits, warm)
        for reason in self._over_by_nature:
            logger.warning(
                "a fresh child is over the limit of %s: %d MiB used of %s. The limit is not "
                "obeyed; raise VOICEMILL_%s_LIMIT.",
                reason,
                most_used(reason, warm) // MEBIBYTE,
                limits.host_memory if reason is Reason.HOST_MEMORY else limits.gpu_memory,
                reason.upper(),
            )
        self._policy = limits.without(self._over_by_nature).with_jitter(random.random())
        self._is_policy_adopted = True
        self._note_footprint()
        logger.info("limits of child %d: %s", os.getpid(), self._policy)
        for one in self._vitals.gpu.devices:
            source, why = one.measured_by or "nobody", one.reason or "the driver's own figure"
            logger.info("%s is measured by: %s (%s)", one.uuid, source, why)

    def _note_footprint(self) -> None:
        here = self._capabilities
        try:
            self._store.note_footprint(here.engine, here.model_revision, self._vitals.footprint)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the memory of a fresh child is not noted: %s", error)

    def _announce(self, synthesis_seconds: float) -> None:
        engine = self._capabilities.engine
        characters = len(WARM_UP_TEXT)
        patience = self.settings.load_timeout_seconds
        patiently(patience, self._store.publish_engine, self._capabilities, self._revision.name)
        if synthesis_seconds:
            patiently(patience, self._store.observe_cost, engine, characters, synthesis_seconds)
        for name, value in (("sum", self.warmup_seconds), ("count", 1.0)):
            counter = f"voicemill_warmup_seconds_{name}"
            patiently(patience, self._store.add_metric, counter, {"engine": engine}, value)
        self._orders_at_start = patiently(patience, self._beat_once)
        self._admit_more(self._orders.lanes)
        logger.info("child %d ready: %s in %.1f s", os.getpid(), engine, self.warmup_seconds)

    def _say_so(self) -> None:
        try:
            self._beat_once()
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("heartbeat not heard: %s", error)

    def _admit_more(self, lanes: Iterable[str]) -> None:
        try:
            self._dispatcher.admit(lanes)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("nothing admitted, the clerk will: %s", error)

    def _beat(self) -> None:
        pause = min(LONGEST_BEAT_SECONDS, self.settings.lease_seconds / 4)
        while not self._leaving.wait(pause):
            self._say_so()

    def _beat_once(self) -> Orders:
        trouble = self._storage.look()
        takes_work = not (self._leaving.is_set() or self._orders.drain or trouble)
        sessions = self._synthesizer.sessions
        news = sessions.take_news()
        try:
            self._orders = self._store.beat_child(
                self._record(),
                self.settings.lease_seconds,
                takes_work=takes_work,
                news=news,
                place=self._place,
            )
        except (StoreUnavailableError, StoreRefusedError):
            sessions.return_news(news)
            raise
        self._synthesizer.voices.heed(self._orders.voice_deletions)
        return self._orders

    def _record(self) -> ChildRecord:
        vitals = self._vitals
        reason, nearness = self._nearest or (None, 0.0)
        trouble = self._storage.trouble
        return ChildRecord(
            id=self.id,
            node=self._node,
            pid=os.getpid(),
            engine=self._capabilities.engine,
            model_revision=self._capabilities.model_revision,
            revision=self._revision.name,
            ready_at=vitals.ready_at,
            warmup_seconds=self.warmup_seconds,
            tasks=vitals.tally.tasks,
            items=vitals.tally.items,
            rss_bytes=vitals.resident_bytes(),
            rss_baseline_bytes=vitals.rss_baseline,
            gpu=vitals.gpu.to_record(),
            gpu_baseline_bytes=vitals.gpu_baseline,
            real_time_factor=vitals.pace.now,
            real_time_factor_baseline=vitals.pace.baseline,
            next_reason=reason,
            nearness=nearness,
            over_by_nature=[str(one) for one in self._over_by_nature],
            trouble=trouble.code if trouble else None,
            trouble_detail=trouble.message if trouble else None,
            sessions=self._synthesizer.sessions.counts,
        )


def new_engine(settings: Settings) -> Engine:
    """The engine of this stack, in this process or in one of a Python of its own."""
    if settings.engine_python is None:
        return load_engine(settings.engine)
    return RemoteEngine(settings.engine, settings.engine_python)


def most_used(reason: Reason, warm: Measurements) -> int:
    """Bytes that a warm child uses of the memory a reason is about; of the fullest device."""
    if reason is Reason.HOST_MEMORY and warm.host_memory is not None:
        return warm.host_memory.used
    return max((use.used for use in warm.gpu_memory), default=0)


def warm_up(engine: Engine, voice: str | None) -> float:
    """Speak for real, more than once; gives the seconds of the last time, 0 without a voice.

    Raises what the engine raises: a child that can't speak must not take work.
    """
    if voice is None:
        return 0.0
    seconds = 0.0
    for _ in range(WARM_UP_CALLS):
        began = time.perf_counter()
        (spoken,) = engine.synthesize([Segment(WARM_UP_TEXT)], voice, SynthesisOptions())
        seconds = time.perf_counter() - began
        if isinstance(spoken, SynthesisError):
            raise spoken
        audio.check(spoken)
    return seconds


def still_speaks(engine: Engine, voice: str) -> bool:
    """Whether an engine that has failed says what it could say when it was warm."""
    try:
        warm_up(engine, voice)
    # An engine may raise anything.
    except Exception:
        logger.exception("the engine does not speak any more")
        return False
    return True

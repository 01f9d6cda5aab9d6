"""The Celery parent: says how its children are, and what became of those that went."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

import psutil
from celery.worker import state

from voicemill.errors import (
    SettingsError,
    StoreRefusedError,
    StoreUnavailableError,
    SynthesisTimeoutError,
    VoicemillError,
    WorkerLostError,
)
from voicemill.queue import UNACKED_PREFIX, Queue, queue_name
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import (
    RECYCLES_KEPT,
    ChildState,
    Claim,
    ProcessRecord,
    RecycleRecord,
    WorkerRecord,
    child_id,
)
from worker.departure import Departure
from worker.devices import Devices
from worker.environment import PARENT, TORCH_ALLOCATOR, threads_environment
from worker.exits import EXIT_ENDED, EXIT_MISCONFIGURED, EXIT_NOT_LOADED, EXIT_STUCK, ending
from worker.handover import Handover, Leaver, Wish
from worker.intake import Intake
from worker.namesake import born_at, claim_name, this_machine
from worker.patience import patiently
from worker.placement import Placement, slots_before
from worker.recycle import Policy
from worker.release import release, release_all
from worker.room import Room
from worker.watch import Finding, Watch

logger = logging.getLogger(__name__)

LOAD_TRIES = 3
"""Children that may fail to load, before any has loaded, until the worker gives up."""
LONGEST_BEAT_SECONDS = 1.0
STORE_PATIENCE_SECONDS = 10.0
WAITING_SECONDS = 3.0
"""A message that waits for less is on its way."""
FAREWELL_SECONDS = 10.0
"""What Celery may take for its end when no child is left: it asks a broker that may hang."""


class Parent:
    """One per worker. The pool calls it on Celery's event loop, where little waits for Redis:
    a release, and where there is a GPU the question whether a child fits.
    """

    def __init__(self, settings: Settings, node: str) -> None:
        self.node = node
        self.incarnation = f"{UNACKED_PREFIX}{node}:{uuid.uuid4().hex}"
        self.devices = Devices(slots_before(settings))
        self.room = Room(self.devices)
        self.intake = Intake(queue_name(settings.engine))
        self._settings = settings
        self._store = Store.connect(settings.redis_url)
        self.placement = Placement(
            self._store, self.devices, node, settings.engine, settings.load_timeout_seconds
        )
        self._queue = Queue(settings)
        self._started_at = time.time()
        born = born_at(os.getpid()) or 0.0
        self._claim = Claim(self.incarnation, os.getpid(), this_machine(), born)
        limit = settings.stuck_seconds
        self._watch = None if limit is None else Watch(limit, time.monotonic())
        self._stopping = threading.Event()
        self.any_loaded = False
        self._failed_loads = 0
        self._timed_out: set[int] = set()
        self._warmups: dict[int, float] = {}
        self._processes: list[ProcessRecord] = []
        self._recycles: deque[RecycleRecord] = deque(maxlen=RECYCLES_KEPT)
        self._failures: dict[int, str] = {}
        """Why a slot has no child, or no successor of its child."""
        self._waits: dict[int, str] = {}
        """What slots wait for that are not filled."""
        self._early: dict[int, str] = {}
        self._farewell: list[str] = []
        self._counts: deque[tuple[str, dict[str, str], float]] = deque()
        self._heartbeat = threading.Thread(target=self._beat, name="node-heartbeat", daemon=True)

    @property
    def alerts(self) -> list[str]:
        """What an operator should look at."""
        waits, early = self._waits.values(), self._early.values()
        return [*self.devices.alerts, *waits, *early, *self._farewell]

    def start(self) -> None:
        """Take the node name, release what an earlier process of it held, say that we live.

        Raises ``SettingsError`` while such a process lives, and for a policy that is none.
        """
        Policy.from_settings(self._settings)
        try:
            patiently(STORE_PATIENCE_SECONDS, self._keep_name)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("whether %s runs already is not known: %s", self.node, error)
        # Whoever else wants the name looks whether it is kept, and this may take a while.
        self._heartbeat.start()
        release_all(self._store, self._settings, self.node, "Its worker was replaced.")

    def stop(self) -> None:
        """Release what is left."""
        self._stopping.set()
        self._heartbeat.join()
        release_all(self._store, self._settings, self.node, "Its worker was stopped.")
        self._say_goodbye()

    def begin_stop(self) -> None:
        """Children finish the batch in hand; those that take longer than they may are killed.

        So is, a little later, this process itself.
        """
        self._watch = None
        stop_seconds = self._settings.stop_seconds
        for seconds, end in (
            (stop_seconds, self._kill_all),
            (stop_seconds + FAREWELL_SECONDS, self._end),
        ):
            timer = threading.Timer(seconds, end)
            timer.daemon = True
            timer.start()

    def environment_of(self, slot: int) -> dict[str, str]:
        """What a child of this slot finds in its environment before it imports anything."""
        conf = self._settings.cuda_alloc_conf
        return {
            PARENT: str(os.getpid()),
            **({TORCH_ALLOCATOR: conf} if conf else {}),
            **threads_environment(self._settings),
            **self.devices.environment_of(slot),
        }

    def sees(self, states: Mapping[int, tuple[int, ChildState]], *, takers: int, held: int) -> None:
        """How the children are: slot and state by pid; ``takers`` of them take work.

        The others still have ``held`` tasks in hand.
        """
        if self._watch is not None:
            self._watch.turned(time.monotonic())
        self._processes = [ProcessRecord(pid, *states[pid]) for pid in states]
        self.intake.allow(takers, held)
        self.devices.watch()

    def child_up(self, slot: int) -> None:
        """A child of this slot has loaded its engine."""
        self.any_loaded = True
        self.placement.settle(slot)
        self._failures.pop(slot, None)

    def slots_given_up(self, first: int) -> None:
        """Slots from ``first`` on are no more."""
        self._failures = {slot: one for slot, one in self._failures.items() if slot < first}
        self._waits = {slot: one for slot, one in self._waits.items() if slot < first}

    def child_warm(self, pid: int, seconds: float) -> None:
        """How long a child's engine took to load and to speak."""
        self._warmups[pid] = seconds

    def child_gone(self, pid: int, slot: int, exit_code: int | None) -> None:
        """A child's process ended; what it held goes to others at once."""
        if not self.any_loaded:
            self._failed_loads += 1
            if exit_code == EXIT_MISCONFIGURED or self._failed_loads == LOAD_TRIES:
                logger.critical("no child could load the engine: the last %s", ending(exit_code))
                is_told = exit_code == EXIT_MISCONFIGURED
                state.should_stop = EXIT_MISCONFIGURED if is_told else EXIT_NOT_LOADED
        error: VoicemillError = WorkerLostError(f"Its process ended with status {exit_code}.")
        if pid in self._timed_out:
            self._timed_out.discard(pid)
            error = SynthesisTimeoutError("Its batch took far longer than was estimated.")
        release(self._store, self._settings, child_id(self.node, os.getpid(), pid), error)
        self._warmups.pop(pid, None)
        self._early.pop(pid, None)
        self.devices.departed(pid, slot)

    def child_asks(self, pid: int, wish: Wish) -> None:
        """A child should be replaced; soon after its start that is told while it has to wait."""
        if wish.rots_early:
            self._early[pid] = (
                f"Child {pid} should be replaced soon after its start ({wish.reason}), so its "
                "successor waits, longer each time."
            )
            logger.warning("%s", self._early[pid])

    def child_goes(self, pid: int, slot: int, wish: Wish) -> None:
        """A child leaves at once, without a successor."""
        self._note(RecycleRecord(time.time(), pid, None, wish.reason))
        if wish.rots_early:
            self._failures[slot] = (
                f"Child {pid} left soon after its start ({wish.reason}); its slot is empty for a "
                "while, longer each time."
            )

    def timed_out(self, pid: int) -> None:
        """A child is about to be killed because its batch hangs."""
        self._timed_out.add(pid)

    def has_room(self, slot: int) -> bool:
        """Whether a child may load in a slot that nobody holds; while not, it is told why."""
        lack = self.placement.lack(slot)
        if lack is None:
            self._waits.pop(slot, None)
        elif self._waits.get(slot) is None:
            logger.warning("slot %d waits for memory: %s", slot, lack)
        if lack is not None:
            self._waits[slot] = f"Slot {slot} waits for memory: {lack}."
        return lack is None

    def breaks_first(self, leaver: Leaver) -> None:
        """Two did not fit: there is a pause as long as a load."""
        self.placement.keep(leaver.slot, leaver.wish.footprint.gpu)
        self._count("voicemill_handover_breaks_total", {"reason": leaver.wish.reason})
        self._note(RecycleRecord(time.time(), leaver.pid, None, leaver.wish.reason))

    def handed_over(self, handover: Handover, seconds: float) -> None:
        """A successor is ready, ``seconds`` after its start."""
        leaver = handover.leaver
        for part, value in (("sum", seconds), ("count", 1.0)):
            self._count(f"voicemill_handover_seconds_{part}", {}, value)
        self._note(
            RecycleRecord(
                at=time.time(),
                pid=leaver.pid,
                successor=handover.successor,
                reason=leaver.wish.reason,
                handover_seconds=seconds,
                warmup_seconds=self._warmups.get(handover.successor),
            )
        )

    def handover_failed(self, handover: Handover, exit_code: int | None) -> None:
        """A successor did not come up; the old child goes on."""
        failure = f"Successor {handover.successor} {ending(exit_code)} before it was ready."
        self._failures[handover.leaver.slot] = failure
        self._count("voicemill_handover_failures_total", {})
        logger.error("%s Child %d goes on.", failure, handover.leaver.pid)

    def load_failed(self, pid: int, slot: int, exit_code: int | None) -> None:
        """A child did not come up in a slot that nobody holds."""
        failure = f"Child {pid} {ending(exit_code)} before it was ready; its slot is empty."
        self._failures[slot] = failure
        logger.error("%s", failure)

    def _say_goodbye(self) -> None:
        try:
            self._report_counts()
            self._store.forget_worker(self.node, self._claim)
        except (StoreUnavailableError, StoreRefusedError) as error:
            logger.warning("the end of the worker could not be noted: %s", error)

    def _kill_all(self) -> None:
        pids = {one.pid for one in self._processes}
        for child in psutil.Process().children():
            if child.pid not in pids:
                continue
            logger.warning("process %d did not finish in time and is killed", child.pid)
            with suppress(psutil.NoSuchProcess):
                child.kill()

    def _end(self) -> None:
        logger.critical("the worker does not come to its end, and is ended; leases will run out")
        os._exit(EXIT_ENDED)

    def _note(self, recycle: RecycleRecord) -> None:
        self._recycles.append(recycle)

    def _count(self, name: str, labels: dict[str, str], by: float = 1.0) -> None:
        self._counts.append((name, labels, by))

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            node=self.node,
            pid=os.getpid(),
            engine=self._settings.engine,
            started_at=self._started_at,
            processes=self._processes,
            recycles=list(self._recycles),
            failure=" ".join(self._failures.values()) or None,
            alerts=self.alerts,
        )

    def _beat(self) -> None:
        pause = min(LONGEST_BEAT_SECONDS, self._settings.lease_seconds / 4)
        while True:
            try:
                self._beat_once()
            except (StoreUnavailableError, StoreRefusedError) as error:
                logger.warning("heartbeat of the node not heard: %s", error)
            if self._stopping.wait(pause):
                return

    def _beat_once(self) -> None:
        try:
            self._live()
        except SettingsError as error:
            self._leave(error.message, seconds=0.0)
        self._report_counts()
        self._end_overdue()
        self._look()

    def _live(self) -> None:
        self._keep_name()
        self._store.beat_worker(self.incarnation, self._record(), self._settings.lease_seconds)

    def _keep_name(self) -> None:
        claim_name(self._store, self.node, self._claim, self._settings.lease_seconds)

    def _look(self) -> None:
        watch, seconds = self._watch, self._settings.stop_seconds
        if watch is None:
            return
        finding = watch.look(time.monotonic(), unheard=self._is_unheard())
        if finding is Finding.UNHEARD:
            logger.warning("a message waits and does not reach this worker; it subscribes again")
            self.intake.subscribe_again()
        elif finding is Finding.DEAF:
            why = "a message has waited beside a free child, and did not reach this worker,"
            self._leave(f"{why} for {watch.limit:g} s.", seconds)
        elif finding is Finding.HUNG:
            logger.error("what the event loop hangs in:\n%s", stack_of(threading.main_thread()))
            self._leave(f"its event loop has not gone round for {watch.limit:g} s.", seconds)

    def _is_unheard(self) -> bool:
        if all(one.state != "ready" for one in self._processes):
            return False
        engine = self._settings.engine
        late = self._store.stale_admitted(WAITING_SECONDS)
        ids = {task.id for task in late if task.engine == engine}
        return bool(ids and ids & self._queue.held(engine, ()))

    def _leave(self, why: str, seconds: float) -> NoReturn:
        logger.critical(
            "the worker leaves with status %d: %s Its children have %g s for the batch in hand. "
            "Its supervisor starts it anew; where there is none, start it.",
            *(EXIT_STUCK, why, seconds),
        )
        self._farewell = [f"It leaves: {why}"]
        pids = [one.pid for one in self._processes]
        departure = Departure(self._store, self._settings, self.node, pids)
        try:
            departure.wait(seconds, meanwhile=self._live)
        except SettingsError as error:
            logger.critical("others have what its children hold: %s", error.message)
        departure.end()
        self._say_goodbye()
        os._exit(EXIT_STUCK)

    def _end_overdue(self) -> None:
        grace = self._settings.cancel_grace_seconds
        ids = {child_id(self.node, os.getpid(), one.pid): one.pid for one in self._processes}
        if grace is None or not ids:
            return
        for child in self._store.overdue_children(list(ids), grace):
            logger.warning("child %d holds on to a stopped job and is killed", ids[child])
            with suppress(ProcessLookupError):
                os.kill(ids[child], signal.SIGKILL)

    def _report_counts(self) -> None:
        while self._counts:
            self._store.add_metric(*self._counts[0])
            self._counts.popleft()


def stack_of(thread: threading.Thread) -> str:
    """Where a thread is now."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "It is gone."

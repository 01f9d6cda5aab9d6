"""The Celery parent: says how its children are, and what became of those that went."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress

import psutil
from celery.worker import state

from voicemill.cores import affinity
from voicemill.errors import (
    SynthesisTimeoutError,
    VoicemillError,
    WorkerLostError,
)
from voicemill.queue import queue_name
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import (
    RECYCLES_KEPT,
    ChildState,
    ProcessRecord,
    RecycleRecord,
    WorkerRecord,
    child_id,
    place_of,
)
from worker.breaks import Breaks
from worker.devices import Devices
from worker.environment import CORES, PARENT, SLOT, TORCH_ALLOCATOR
from worker.exits import EXIT_ENDED, EXIT_MISCONFIGURED, EXIT_NOT_LOADED, ending
from worker.handover import Handover, Leaver, Wish
from worker.heartbeat import Heartbeat
from worker.intake import Intake
from worker.placement import Placement, slots_before
from worker.recycle import Policy
from worker.release import release, release_all
from worker.remote.interpreter import refuse_unfit
from worker.revisions import note_revision_failed
from worker.room import Room
from worker.threads import threads_environment

logger = logging.getLogger(__name__)

LOAD_TRIES = 3
"""Children that may fail to load, before any has loaded, until the worker gives up."""
FAREWELL_SECONDS = 10.0
"""What Celery may take for its end when no child is left: it asks a broker that may hang."""


class Parent:
    """One per worker. The pool calls it on Celery's event loop, where little waits for Redis:
    a release, and where there is a GPU the question whether a child fits.
    """

    def __init__(self, settings: Settings, node: str) -> None:
        self.node = node
        self.devices = Devices(slots_before(settings))
        self.room = Room(self.devices)
        self.intake = Intake(queue_name(settings.engine))
        self._settings = settings
        self._store = Store.connect(settings.redis_url)
        self.heartbeat = Heartbeat(self._store, settings, node, self.intake, self._record)
        self.placement = Placement(
            self._store, self.devices, node, settings.engine, settings.load_timeout_seconds
        )
        self.breaks = Breaks(self._store, node, settings.engine, settings.load_timeout_seconds)
        self._started_at = time.time()
        self.any_loaded = False
        self._failed_loads = 0
        self._timed_out: set[int] = set()
        self._warmups: dict[int, float] = {}
        self._others: dict[int, frozenset[int]] = {}
        """Pids of the engines' own processes, by that of the child."""
        self._processes: list[ProcessRecord] = []
        self._recycles: deque[RecycleRecord] = deque(maxlen=RECYCLES_KEPT)
        self._failures: dict[int, str] = {}
        """Why a slot has no child, or no successor of its child."""
        self._waits: dict[int, str] = {}
        """What slots wait for that are not filled."""
        self._early: dict[int, str] = {}

    @property
    def alerts(self) -> list[str]:
        """What an operator should look at."""
        waits, early = self._waits.values(), self._early.values()
        return [*self.devices.alerts, *self.breaks.alerts, *waits, *early]

    def start(self) -> None:
        """Take the node name, release what an earlier process of it held, say that we live.

        Raises ``SettingsError`` while such a process lives, for a policy that is none, and for an
        engine's Python that can't be used.
        """
        Policy.from_settings(self._settings)
        if self._settings.engine_python is not None:
            refuse_unfit(self._settings.engine_python)
        # Whoever else wants the name looks whether it is kept, and a release may take a while.
        if self.heartbeat.start():
            release_all(self._store, self._settings, self.node, "Its worker was replaced.")

    def stop(self) -> None:
        """Release what is left."""
        self.heartbeat.stop()
        release_all(self._store, self._settings, self.node, "Its worker was stopped.")
        self.heartbeat.say_goodbye()

    def begin_stop(self) -> None:
        """Children finish the batch in hand; those that take longer than they may are killed.

        So is, a little later, this process itself.
        """
        self.heartbeat.watch_no_more()
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
        allowed = frozenset(affinity())
        near = self.devices.cores_near(slot, allowed) if self._settings.numa else frozenset()
        return {
            PARENT: str(os.getpid()),
            SLOT: str(slot),
            **({TORCH_ALLOCATOR: conf} if conf else {}),
            **({CORES: ",".join(map(str, sorted(near)))} if near else {}),
            **threads_environment(self._settings, most=len(near or allowed)),
            **self.devices.environment_of(slot),
        }

    def sees(self, states: Mapping[int, tuple[int, ChildState]], *, takers: int, held: int) -> None:
        """How the children are: slot and state by pid; ``takers`` of them take work.

        The others still have ``held`` tasks in hand.
        """
        self.heartbeat.turned()
        self._processes = [ProcessRecord(pid, *states[pid]) for pid in states]
        self.intake.allow(takers, held)
        self.devices.watch()

    def child_up(self, slot: int) -> None:
        """A child of this slot has loaded its engine."""
        self.any_loaded = True
        self.placement.settle(slot)
        self.breaks.settle(slot)
        self._failures.pop(slot, None)

    def slots_given_up(self, first: int) -> None:
        """Slots from ``first`` on are no more."""
        self.breaks.forget(first)
        self._failures = {slot: one for slot, one in self._failures.items() if slot < first}
        self._waits = {slot: one for slot, one in self._waits.items() if slot < first}

    def child_warm(self, pid: int, seconds: float, others: frozenset[int]) -> None:
        """How long a child's engine took to load and to speak, and in what processes it is."""
        self._warmups[pid] = seconds
        self._others[pid] = others

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
        for one in (pid, *self._others.pop(pid, ())):
            self.devices.departed(one, slot)

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

    def breaks_first(self, leaver: Leaver, lack: str) -> bool:
        """Two do not fit: there is a pause as long as a load. False where it may not leave so."""
        if not self.breaks.may_leave(leaver):
            return False
        logger.warning("child %d leaves before its successor starts: %s", leaver.pid, lack)
        self.placement.keep(leaver.slot, leaver.wish.footprint.gpu)
        self.heartbeat.count("voicemill_handover_breaks_total", {"reason": leaver.wish.reason})
        self._note(RecycleRecord(time.time(), leaver.pid, None, leaver.wish.reason))
        return True

    def handed_over(self, handover: Handover, seconds: float) -> None:
        """A successor is ready, ``seconds`` after its start."""
        leaver = handover.leaver
        for part, value in (("sum", seconds), ("count", 1.0)):
            self.heartbeat.count(f"voicemill_handover_seconds_{part}", {}, value)
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
        self.heartbeat.count("voicemill_handover_failures_total", {})
        logger.error("%s Child %d goes on.", failure, handover.leaver.pid)
        self._note_revision_failed(handover.leaver.slot, failure)

    def load_failed(self, pid: int, slot: int, exit_code: int | None) -> None:
        """A child did not come up in a slot that nobody holds."""
        failure = f"Child {pid} {ending(exit_code)} before it was ready; its slot is empty."
        self._failures[slot] = failure
        logger.error("%s", failure)
        self._note_revision_failed(slot, failure)

    def _note_revision_failed(self, slot: int, failure: str) -> None:
        note_revision_failed(self._store, self._settings.engine, place_of(self.node, slot), failure)

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

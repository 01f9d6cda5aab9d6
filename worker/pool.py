"""Celery's prefork pool that recycles its children without a pause.

This module, ``routed_pool`` and ``child_process`` alone stand on private names of Celery and
billiard; ``tests/worker/test_pool.py`` says which. Their minor versions are pinned. What to do is
decided elsewhere: in the child by ``recycle``, in the parent by ``handover`` and ``room``.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from typing import Any

import billiard.pool
from billiard import semaphore_tracker
from celery.concurrency import prefork

from voicemill.workers import ChildState
from worker import process
from worker.child_process import ASK, GO, LANES, LEAVE, PAUSE, RESUME, WARM, ChildProcess
from worker.environment import environment
from worker.handover import Leaver, Wish
from worker.routed_pool import RoutedPool
from worker.silence import Silence

logger = logging.getLogger(__name__)

# Tenths of a second a leaving child waits for its last answers to be read; 300 by default,
# which a container's grace period does not have.
billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT = 30

REAP_PAUSE_SECONDS = 0.01
REAP_TRIES = 1000
WRITE_PAUSE_SECONDS = 0.01
TICK_SECONDS = 1.0
CLEAN_EXITS = (billiard.pool.EX_OK, billiard.pool.EX_RECYCLE)


class ChildPool(RoutedPool):
    """Makes a child's successor before the child leaves, and reaps exited ones at once."""

    Worker = ChildProcess
    timers = property(lambda self: {self.maintain_pool: 5.0, self.tick: TICK_SECONDS})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._loaded: set[int] = set()
        self._waits_for_room: dict[int, Leaver] = {}
        self._silence = Silence()
        super().__init__(*args, **kwargs)
        self._result_handler.state_handlers |= {
            ASK: self.on_ask,
            WARM: process.parent().child_warm,
            GO: self.on_go,
            PAUSE: self.on_pause,
            RESUME: self.on_resume,
            LANES: self.on_lanes,
        }

    def register_with_event_loop(self, hub: Any) -> None:
        """Keep the loop at hand, for what is done later."""
        self._hub = hub
        super().register_with_event_loop(hub)
        # Celery does this for later children alone: it limits how long they load, and we do not
        # wait for that at a stop. It calls this again when a broker that was lost is back, and
        # children that have loaded by then do not say so twice.
        for child in self._pool:
            if child.pid not in self._loaded:
                self.on_process_up(child)
        # The consumer is open by now; no message may come while no child takes it.
        hub.call_soon(self._show)

    def tick(self) -> None:
        """Each second: start what waits for its turn, and let the parent see its children."""
        self._end_hung()
        self._go_on()

    def _go_on(self) -> None:
        if self._empty_slots():
            self.maintain_pool()
        self._hand_over()
        self._route()
        self._show()

    def on_job_ready(self, *told: Any) -> None:
        """A batch is done; where its child gets no more, one message less may be held."""
        super().on_job_ready(*told)
        self._hub.call_soon(self._route)
        if told[-1] not in self._all_inqueues:
            self._hub.call_soon(self._show)

    def on_ask(self, pid: int, wish: Wish) -> None:
        """A child asks to be replaced."""
        old = self._by_pid(pid)
        if old is not None:
            self._handovers.ask(self._leaver(old, wish), time.monotonic())
            process.parent().child_asks(pid, wish)
            self._hand_over()

    def on_go(self, pid: int, wish: Wish) -> None:
        """A child leaves at once, because it does harm."""
        child = self._by_pid(pid)
        # One that was told to leave has been replaced already.
        if child is not None and pid not in self._handovers.leaving:
            self._handovers.goes(child.index, time.monotonic(), early=wish.rots_early)
            process.parent().child_goes(pid, child.index, wish)

    def on_pause(self, pid: int) -> None:
        """A child takes no more jobs until it says so."""
        child = self._by_pid(pid)
        if child is not None:
            self._paused.add(pid)
            self._stop_writing_to(child)
            self._show()

    def on_resume(self, pid: int) -> None:
        """A paused child takes jobs again."""
        child = self._by_pid(pid)
        if child is not None and pid in self._paused:
            self._paused.discard(pid)
            self._write_to_again(child)
            self._show()

    def on_process_alive(self, pid: int) -> None:
        """A child has loaded its engine and spoken once; the one it replaces may go."""
        super().on_process_alive(pid)
        self._loaded.add(pid)
        child = self._by_pid(pid)
        if child is None:
            return
        process.parent().child_up(child.index)
        handover = self._handovers.up(pid, child.index)
        if handover is not None:
            process.parent().handed_over(handover, time.monotonic() - handover.began)
            old = self._by_pid(handover.leaver.pid)
            if old is not None:
                self._leave(old)
        self._go_on()

    def shrink(self, n: int = 1) -> None:
        """Give up the highest slots: their children finish what they hold, and have no successors.

        Raises ``ValueError`` for less than one, and where no child would be left.
        """
        if not 1 <= n < self._processes:
            raise ValueError("A worker keeps one child. To give it no work, drain the worker.")
        self._processes -= n
        process.parent().slots_given_up(self._processes)
        surplus = [child for child in self._pool if child.index >= self._processes]
        loading = [child for child in surplus if child in self._waiting_to_start]
        leaving = [child for child in surplus if child not in loading]
        self._handovers.give_up(
            self._processes, [self._leaver(child, Wish("requested")) for child in leaving]
        )
        for child in loading:
            self._kill_loading(child)
        for child in leaving:
            self._leave(child, is_surplus=True)

    def _hand_over(self) -> None:
        if self._state != billiard.pool.RUN or self._hub is None:
            return
        room = process.parent().room
        for leaver in self._handovers.due(time.monotonic()):
            old, promised = self._by_pid(leaver.pid), self._handovers.promised_bytes
            if old is None or (promised and not room.is_left_for(leaver, promised)):
                continue
            lack = room.lack(leaver)
            if lack is None:
                placement, needed = process.parent().placement, leaver.wish.footprint.gpu
                if not placement.is_promised(leaver.slot, needed):
                    continue
                successor = self._start_process(leaver.slot)
                self._handovers.begin(leaver, successor.pid, time.monotonic())
            elif process.parent().breaks_first(leaver, lack):
                self._handovers.leave_first(leaver)
                self._waits_for_room[leaver.slot] = leaver
                self._leave(old)

    def _create_worker_process(self, slot: int) -> Any:
        """How billiard fills a slot at first: it stays empty until there is room."""
        return self._start_process(slot) if process.parent().has_room(slot) else None

    def _start_process(self, slot: int) -> Any:
        if None not in self._queues.values():
            self._queues[self.create_process_queues()] = None
        with environment(process.parent().environment_of(slot)):
            try:
                return super()._create_worker_process(slot)
            except BrokenPipeError:
                logger.warning("billiard's keeper of semaphores is gone, and started anew")
                semaphore_tracker._semaphore_tracker._fd = None
                return super()._create_worker_process(slot)

    def _leave(self, old: Any, is_surplus: bool = False) -> None:
        if not old._is_alive():
            return
        if old.inqW_fd in self._active_writes:
            self._hub.call_later(WRITE_PAUSE_SECONDS, self._leave, old, is_surplus)
            return
        self._stop_writing_to(old)
        old.inq.put((LEAVE, {"is_surplus": is_surplus}))

    def _repopulate_pool(self, exitcodes: Any) -> None:
        """Fill the slots that nobody holds; for one that has to wait, ``tick`` asks again."""
        crashed = any(code not in CLEAN_EXITS for code in exitcodes)
        for slot in self._empty_slots():
            if self._state != billiard.pool.RUN:
                return
            if self._handovers.must_wait(slot, time.monotonic()) or self._must_wait_for_room(slot):
                continue
            if crashed:
                self.restart_state.step()
            self._start_process(slot)

    def _empty_slots(self) -> list[int]:
        held = {child.index for child in self._pool}
        return [slot for slot in range(self._processes) if slot not in held]

    def _must_wait_for_room(self, slot: int) -> bool:
        leaver = self._waits_for_room.get(slot)
        if leaver is None:
            return not process.parent().has_room(slot)
        if process.parent().room.is_awaited_for(leaver):
            return True
        del self._waits_for_room[slot]
        return False

    def _event_process_exit(self, hub: Any, proc: Any) -> None:
        super()._event_process_exit(hub, proc)
        self._reap(hub, proc, REAP_TRIES)

    def _reap(self, hub: Any, proc: Any, tries: int) -> None:
        """The pipe of a child closes before ``waitpid`` sees it gone (celery#9588): look again."""
        if proc not in self._pool or self._state != billiard.pool.RUN or not tries:
            return
        self.maintain_pool()
        hub.call_later(REAP_PAUSE_SECONDS, self._reap, hub, proc, tries - 1)

    def _join_exited_workers(self, shutdown: bool = False) -> Any:
        before = list(self._pool)
        try:
            return super()._join_exited_workers(shutdown)
        finally:
            for proc in before:
                if proc not in self._pool:
                    self._gone(proc)

    def _gone(self, proc: Any) -> None:
        parent, now = process.parent(), time.monotonic()
        self._paused.discard(proc.pid)
        self._apart.discard(proc.pid)
        self._routing.gone(proc.pid)
        failed = self._handovers.gone(proc.pid, now)
        is_held = proc.index < self._processes and self._state == billiard.pool.RUN
        if is_held and failed is not None:
            parent.handover_failed(failed, proc.exitcode)
        elif is_held and parent.any_loaded and proc.pid not in self._loaded:
            self._handovers.failed(proc.index, now)
            parent.load_failed(proc.pid, proc.index, proc.exitcode)
        if proc.pid not in self._loaded:
            parent.placement.settle(proc.index)
        self._loaded.discard(proc.pid)
        parent.child_gone(proc.pid, proc.index, proc.exitcode)

    def _on_hard_timeout(self, job: Any) -> None:
        for pid in self._cache[job].worker_pids() if job in self._cache else ():
            process.parent().timed_out(pid)
        super()._on_hard_timeout(job)

    def close(self) -> None:
        """Stop; a child that still loads holds no work and is not waited for."""
        for child in list(self._waiting_to_start):
            self._kill_loading(child)
        super().close()

    def _kill_loading(self, child: Any) -> None:
        child._controlled_termination = True
        if child._is_alive():
            os.kill(child.pid, signal.SIGKILL)

    def _end_hung(self) -> None:
        for pid in self._silence.note(child.pid for child in self._pool if self._is_silent(child)):
            logger.error("child %d does not answer outside a batch and is killed", pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _is_silent(self, child: Any) -> bool:
        jobs = self._jobs_of(child)
        is_told = bool(jobs) or child.pid in self._handovers.leaving
        return is_told and not any(job._accepted for job in jobs)

    def _leaver(self, child: Any, wish: Wish) -> Leaver:
        return Leaver(child.pid, child.index, process.parent().devices.of(child.index), wish)

    def _show(self) -> None:
        states = {child.pid: (child.index, self._state_of(child)) for child in self._pool}
        takers = [one for one in self._pool if self._takes_jobs(one)]
        others = [one for one in self._pool if one not in takers]
        held = sum(len(self._jobs_of(child)) for child in others) + len(self._routing)
        process.parent().sees(states, takers=len(takers), held=held)

    def _state_of(self, child: Any) -> ChildState:
        if child in self._waiting_to_start or child.inqW_fd not in self._fileno_to_inq:
            return "loading"
        if child.pid in self._handovers.leaving:
            return "leaving"
        if child.pid in self._paused:
            return "draining"
        return "busy" if child.inqW_fd in self._busy_workers else "ready"


class TaskPool(prefork.TaskPool):
    """What ``worker_pool`` names."""

    Pool = ChildPool

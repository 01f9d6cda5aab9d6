"""Who replaces whom, and when. Pure: the pool says what happened and does what this says.

A child that should go asks. Its successor is started beside it, and only when that one is
ready is the old child told to leave. One hand-over per device at a time, so siblings never
leave together, and for some wishes one per node; a successor that fails is tried again, later
each time, while the old child goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from voicemill.workers import Footprint

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a child that asks to be replaced says of itself."""

    reason: str
    footprint: Footprint = field(default_factory=Footprint)
    rots_early: bool = False
    """It rots so fast that another new process may be no cure."""
    in_turn: bool = False
    """It can wait until no other child of the node is being replaced for a wish like this."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A child that should be replaced."""

    pid: int
    slot: int
    device: str
    wish: Wish

    def is_barred_by(self, other: Leaver) -> bool:
        """Whether both may not be replaced at the same time."""
        return self.device == other.device or (self.wish.in_turn and other.wish.in_turn)


@dataclass(frozen=True, slots=True)
class Handover:
    """A successor that loads beside the child it will replace."""

    leaver: Leaver
    successor: int
    began: float


@dataclass(frozen=True, slots=True)
class Pause:
    """A slot whose next new process has to wait."""

    count: int = 0
    """Processes in a row that did not come up, or that were of no use."""
    until: float = 0.0

    def longer(self, now: float) -> Pause:
        """The next one: twice as long, up to a limit."""
        seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self.count)
        return Pause(self.count + 1, now + seconds)


NO_PAUSE = Pause()


class Handovers:
    """The hand-overs of one worker; times are seconds of any one steady clock."""

    def __init__(self) -> None:
        self._asking: dict[int, Leaver] = {}
        self._loading: dict[int, Handover] = {}
        self._leaving: dict[int, Leaver] = {}
        self._refilling: dict[int, Leaver] = {}
        self._after_failure: dict[int, Pause] = {}
        self._after_rot: dict[int, Pause] = {}

    @property
    def promised_bytes(self) -> int:
        """Host memory that the successors that load now will take."""
        return sum(one.leaver.wish.footprint.host for one in self._loading.values())

    @property
    def leaving(self) -> frozenset[int]:
        """Pids of the children that were told to leave and are not gone."""
        return frozenset(self._leaving)

    def ask(self, leaver: Leaver, now: float) -> None:
        """A child should be replaced; asking again only helps one that has to wait."""
        known = {handover.leaver.pid for handover in self._loading.values()}
        if leaver.pid in known | self._leaving.keys():
            return
        if leaver.pid in self._asking and leaver.wish.rots_early:
            return
        self._asking[leaver.pid] = leaver
        self._note_rot(leaver.slot, now, early=leaver.wish.rots_early)

    def due(self, now: float) -> list[Leaver]:
        """Those whose turn it is, in the order in which they asked: one per device."""
        going = [handover.leaver for handover in self._loading.values()]
        going += [*self._leaving.values(), *self._refilling.values()]
        turns: list[Leaver] = []
        for leaver in self._asking.values():
            if any(leaver.is_barred_by(other) for other in [*going, *turns]):
                continue
            if self.must_wait(leaver.slot, now):
                continue
            if now < self._after_rot.get(leaver.slot, NO_PAUSE).until:
                continue
            turns.append(leaver)
        return turns

    def must_wait(self, slot: int, now: float) -> bool:
        """True while a new process in this slot would be too early after one that failed."""
        return now < self._after_failure.get(slot, NO_PAUSE).until

    def begin(self, leaver: Leaver, successor: int, now: float) -> None:
        """Its successor was started."""
        del self._asking[leaver.pid]
        self._loading[successor] = Handover(leaver, successor, now)

    def leave_first(self, leaver: Leaver) -> None:
        """Two do not fit: it leaves before its successor starts."""
        del self._asking[leaver.pid]
        self._leaving[leaver.pid] = leaver
        self._refilling[leaver.slot] = leaver

    def give_up(self, first: int, leavers: Iterable[Leaver]) -> None:
        """Slots from ``first`` on are no more: those who hold them leave without successors."""
        self._asking = {pid: one for pid, one in self._asking.items() if one.slot < first}
        self._loading = {pid: one for pid, one in self._loading.items() if one.leaver.slot < first}
        self._refilling = {slot: one for slot, one in self._refilling.items() if slot < first}
        self._leaving |= {leaver.pid: leaver for leaver in leavers}

    def goes(self, slot: int, now: float, *, early: bool) -> None:
        """A child leaves at once; when that is ``early`` its slot is not filled at once."""
        self._note_rot(slot, now, early=early)
        if early:
            self._after_failure[slot] = Pause(0, self._after_rot[slot].until)

    def up(self, pid: int, slot: int) -> Handover | None:
        """A child is ready; gives the hand-over that it completes, whose old child leaves now."""
        self._after_failure.pop(slot, None)
        self._refilling.pop(slot, None)
        handover = self._loading.pop(pid, None)
        if handover is not None:
            self._leaving[handover.leaver.pid] = handover.leaver
        return handover

    def gone(self, pid: int, now: float) -> Handover | None:
        """A process ended; gives the hand-over that failed by it, which is tried again later."""
        self._asking.pop(pid, None)
        self._leaving.pop(pid, None)
        orphan = next((one for one in self._loading.values() if one.leaver.pid == pid), None)
        if orphan is not None:
            del self._loading[orphan.successor]
            self._refilling[orphan.leaver.slot] = orphan.leaver
        failed = self._loading.pop(pid, None)
        if failed is not None:
            self._asking[failed.leaver.pid] = failed.leaver
            self.failed(failed.leaver.slot, now)
        return failed

    def failed(self, slot: int, now: float) -> None:
        """A process of this slot ended before it was ready; the next one waits for a while."""
        before = self._after_failure.get(slot, NO_PAUSE)
        self._after_failure[slot] = before.longer(now)

    def _note_rot(self, slot: int, now: float, *, early: bool) -> None:
        if early:
            self._after_rot[slot] = self._after_rot.get(slot, NO_PAUSE).longer(now)
        else:
            self._after_rot.pop(slot, None)

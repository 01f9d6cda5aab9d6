"""Who replaces whom, and when."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from worker.handover import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Footprint,
    Handover,
    Handovers,
    Leaver,
    Wish,
)

FIRST = Leaver(pid=11, slot=0, device="host", wish=Wish("tasks", Footprint(host=100)))
SECOND = Leaver(pid=12, slot=1, device="host", wish=Wish("age"))
ELSEWHERE = Leaver(pid=13, slot=2, device="GPU-2", wish=Wish("tasks"))


def test_the_old_child_leaves_when_its_successor_is_ready() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    assert handovers.due(0.0) == [FIRST]
    handovers.begin(FIRST, 21, 1.0)
    assert handovers.leaving == frozenset()
    assert handovers.promised_bytes == FIRST.wish.footprint.host == 100
    assert handovers.up(21, 0) == Handover(FIRST, 21, 1.0)
    assert handovers.leaving == {11}
    assert handovers.gone(11, 2.0) is None
    assert handovers.leaving == frozenset()


def test_siblings_on_one_device_go_one_after_the_other() -> None:
    handovers = Handovers()
    for leaver in (FIRST, SECOND, ELSEWHERE):
        handovers.ask(leaver, 0.0)
    assert handovers.due(0.0) == [FIRST, ELSEWHERE]
    handovers.begin(FIRST, 21, 0.0)
    assert handovers.due(0.0) == [ELSEWHERE]
    handovers.up(21, 0)
    assert handovers.due(0.0) == [ELSEWHERE]
    handovers.gone(11, 1.0)
    assert handovers.due(1.0) == [SECOND, ELSEWHERE]


def test_those_who_go_in_turn_wait_for_each_other_on_every_device_and_nobody_else_does() -> None:
    in_turn = Wish("schedule", in_turn=True)
    first, second, third = (Leaver(pid, pid, f"GPU-{pid}", in_turn) for pid in (1, 2, 3))
    other = Leaver(9, 9, "GPU-9", Wish("gpu_memory"))
    handovers = Handovers()
    for leaver in (first, second, third, other):
        handovers.ask(leaver, 0.0)
    assert handovers.due(0.0) == [first, other]
    handovers.begin(first, 21, 0.0)
    assert handovers.due(0.0) == [other]
    handovers.up(21, first.slot)
    assert handovers.due(0.0) == [other]
    handovers.gone(first.pid, 1.0)
    assert handovers.due(1.0) == [second, other]
    handovers.leave_first(second)
    handovers.gone(second.pid, 2.0)
    assert handovers.due(2.0) == [other], "the slot of the second is still empty"
    handovers.up(22, second.slot)
    assert handovers.due(2.0) == [third, other]


def test_one_who_has_to_wait_lets_the_next_in_turn_go_first() -> None:
    in_turn = Wish("schedule", in_turn=True)
    first, second = (Leaver(pid, pid, f"GPU-{pid}", in_turn) for pid in (1, 2))
    handovers = Handovers()
    handovers.ask(first, 0.0)
    handovers.ask(second, 0.0)
    handovers.begin(first, 21, 0.0)
    handovers.gone(21, 0.0)
    assert handovers.due(0.0) == [second]


def test_asking_again_changes_nothing() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    handovers.ask(FIRST, 0.0)
    handovers.begin(FIRST, 21, 0.0)
    handovers.ask(FIRST, 0.0)
    assert handovers.due(0.0) == []
    handovers.up(21, 0)
    handovers.ask(FIRST, 0.0)
    assert handovers.due(0.0) == []


def test_a_successor_that_fails_is_tried_again_later_and_later() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    now, pauses = 0.0, []
    for successor in range(21, 30):
        handovers.begin(FIRST, successor, now)
        assert handovers.gone(successor, now) == Handover(FIRST, successor, now)
        assert handovers.due(now) == []
        pause = next(
            seconds
            for seconds in (*(FIRST_PAUSE_SECONDS * 2**n for n in range(6)), LONGEST_PAUSE_SECONDS)
            if handovers.due(now + seconds)
        )
        pauses.append(pause)
        now += pause
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_an_empty_slot_is_not_filled_at_once_after_a_child_that_did_not_come_up() -> None:
    handovers = Handovers()
    assert not handovers.must_wait(0, 0.0)
    handovers.failed(0, 0.0)
    assert handovers.must_wait(0, FIRST_PAUSE_SECONDS - 0.1)
    assert not handovers.must_wait(1, 0.0)
    assert not handovers.must_wait(0, FIRST_PAUSE_SECONDS)
    handovers.failed(0, 10.0)
    assert handovers.must_wait(0, 10.0 + 2 * FIRST_PAUSE_SECONDS - 0.1)
    handovers.up(99, 0)
    assert not handovers.must_wait(0, 10.0)


def test_one_success_forgets_the_failures() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    handovers.begin(FIRST, 21, 0.0)
    handovers.gone(21, 0.0)
    handovers.begin(FIRST, 22, 5.0)
    handovers.up(22, 0)
    handovers.gone(11, 6.0)
    again = Leaver(pid=22, slot=0, device="host", wish=Wish("tasks"))
    handovers.ask(again, 0.0)
    assert handovers.due(6.0) == [again]


def test_a_child_that_rots_early_is_replaced_but_later_each_time() -> None:
    handovers = Handovers()
    now, pid = 0.0, 11
    for pause in (5, 10, 20):
        rotten = Leaver(pid, 0, "host", Wish("host_memory", rots_early=True))
        handovers.ask(rotten, now)
        assert handovers.due(now + pause - 0.1) == []
        assert handovers.due(now + pause) == [rotten]
        now += pause
        handovers.begin(rotten, pid + 1, now)
        handovers.up(pid + 1, 0)
        handovers.gone(pid, now)
        pid += 1
    healthy = Leaver(pid, 0, "host", Wish("host_memory"))
    handovers.ask(healthy, now)
    assert handovers.due(now) == [healthy]


def test_a_child_that_dies_while_its_successor_loads_is_replaced_by_it() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    handovers.begin(FIRST, 21, 0.0)
    assert handovers.gone(11, 1.0) is None
    assert handovers.promised_bytes == 0
    assert handovers.up(21, 0) is None
    assert handovers.gone(21, 2.0) is None
    assert handovers.due(2.0) == []


def test_where_two_do_not_fit_the_old_one_leaves_first() -> None:
    handovers = Handovers()
    handovers.ask(FIRST, 0.0)
    handovers.ask(SECOND, 0.0)
    handovers.leave_first(FIRST)
    assert handovers.leaving == {11}
    assert handovers.due(0.0) == []
    handovers.gone(11, 1.0)
    assert handovers.due(1.0) == [], "its slot is still empty"
    handovers.up(21, FIRST.slot)
    assert handovers.due(1.0) == [SECOND]


def test_a_slot_that_is_given_up_has_no_successor_and_bars_nobody() -> None:
    handovers = Handovers()
    for leaver in (SECOND, FIRST):
        handovers.ask(leaver, 0.0)
    handovers.begin(SECOND, 22, 0.0)
    handovers.give_up(1, [SECOND])
    assert handovers.leaving == {SECOND.pid}
    assert handovers.gone(22, 1.0) is None
    assert handovers.due(1.0) == [], "one at a time on a device"
    assert handovers.gone(SECOND.pid, 2.0) is None
    assert handovers.due(2.0) == [FIRST]


def test_a_slot_that_is_given_up_while_it_is_refilled_bars_nobody() -> None:
    handovers = Handovers()
    handovers.ask(SECOND, 0.0)
    handovers.leave_first(SECOND)
    handovers.ask(FIRST, 0.0)
    handovers.gone(SECOND.pid, 1.0)
    assert handovers.due(1.0) == []
    handovers.give_up(1, [])
    assert handovers.due(1.0) == [FIRST]


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, a device has one hand-over at most."""

    alive = Bundle("alive")

    def __init__(self) -> None:
        super().__init__()
        self.handovers = Handovers()
        self.now = 0.0
        self.next_pid = 1
        self.leaver_of: dict[int, Leaver] = {}
        self.successors: set[int] = set()

    @rule(target=alive, slot=st.integers(0, 3), in_turn=st.booleans())
    def asks(self, slot: int, in_turn: bool) -> int:
        self.next_pid += 1
        wish = Wish("tasks", in_turn=in_turn)
        leaver = Leaver(self.next_pid, slot, f"GPU-{slot % 2}", wish)
        self.leaver_of[leaver.pid] = leaver
        self.handovers.ask(leaver, self.now)
        return self.next_pid

    @rule(seconds=st.sampled_from([1.0, LONGEST_PAUSE_SECONDS]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        for leaver in self.handovers.due(self.now):
            self.next_pid += 1
            self.leaver_of[self.next_pid] = leaver
            self.handovers.begin(leaver, self.next_pid, self.now)
            self.successors.add(self.next_pid)

    @rule()
    def breaks(self) -> None:
        for leaver in self.handovers.due(self.now):
            self.handovers.leave_first(leaver)

    @rule(ready=st.booleans())
    def successor_ends(self, ready: bool) -> None:
        while self.successors:
            pid = self.successors.pop()
            if ready:
                assert self.handovers.up(pid, self.leaver_of[pid].slot) is not None
            else:
                assert self.handovers.gone(pid, self.now) is not None

    @rule(pid=consumes(alive))
    def dies(self, pid: int) -> None:
        self.handovers.gone(pid, self.now)
        self.successors -= {one for one in self.successors if self.leaver_of[one].pid == pid}
        assert pid not in self.handovers.leaving

    @invariant()
    def one_per_device(self) -> None:
        concerned = self.successors | self.handovers.leaving
        devices = Counter(self.leaver_of[pid].device for pid in concerned)
        assert all(count == 1 for count in devices.values())

    @invariant()
    def one_in_turn(self) -> None:
        concerned = self.successors | self.handovers.leaving
        assert sum(self.leaver_of[pid].wish.in_turn for pid in concerned) <= 1

    @invariant()
    def nobody_is_two_things(self) -> None:
        assert not self.successors & self.handovers.leaving


TestAnyOrder = AnyOrder.TestCase

"""Which child gets a batch that waits for a revision."""

from __future__ import annotations

import pytest

from worker.routing import Routing

OLD, NEW, APART = 1, 2, 3
LANES = {OLD: ("tone", "tone@base"), NEW: ("tone", "tone@r2"), APART: ("tone@r3",)}


@pytest.fixture
def routing() -> Routing:
    """Three children that have told their lanes."""
    routing = Routing()
    for pid, lanes in LANES.items():
        routing.told(pid, lanes)
    return routing


@pytest.mark.parametrize(
    ("lane", "pid"), [("tone@base", OLD), ("tone@r2", NEW), ("tone@r3", APART)]
)
def test_a_batch_goes_to_a_child_that_serves_its_lane(
    routing: Routing, lane: str, pid: int
) -> None:
    routing.hold(lane, "job")
    assert list(routing.release(LANES, LANES)) == [(pid, "job")]
    assert len(routing) == 0


def test_it_waits_for_one_that_is_busy_and_holds_up_no_other(routing: Routing) -> None:
    routing.hold("tone@r2", "first")
    routing.hold("tone@base", "second")
    routing.hold("tone@base", "third")
    assert list(routing.release([OLD], LANES)) == [(OLD, "second")]
    assert list(routing.release([NEW], LANES)) == [(NEW, "first")]
    assert len(routing) == 1


def test_batches_of_a_lane_keep_their_order(routing: Routing) -> None:
    for job in "abc":
        routing.hold("tone@r2", job)
    assert [list(routing.release([NEW], LANES)) for _ in "abc"] == [
        [(NEW, "a")],
        [(NEW, "b")],
        [(NEW, "c")],
    ]


def test_where_nobody_serves_a_lane_any_child_but_one_apart_sends_it_on(routing: Routing) -> None:
    routing.gone(NEW)
    routing.hold("tone@r2", "job")
    assert list(routing.release([APART], [OLD, APART])) == []
    assert list(routing.release([APART, OLD], [OLD, APART])) == [(OLD, "job")]


@pytest.mark.parametrize("lane", [None, "tone@base"])
def test_where_all_are_apart_one_of_them_sends_on_what_is_not_for_it(
    routing: Routing, lane: str | None
) -> None:
    routing.hold(lane, "job")
    assert list(routing.release([], [APART])) == []
    assert list(routing.release([APART], [APART])) == [(APART, "job")]


def test_what_any_child_may_have_goes_to_none_that_is_apart(routing: Routing) -> None:
    routing.hold(None, "job")
    assert list(routing.release([APART], [OLD, APART])) == []
    assert list(routing.release([APART, OLD], [OLD, APART])) == [(OLD, "job")]


def test_nobody_is_left_for_all_others_where_all_are_apart(routing: Routing) -> None:
    assert [routing.are_apart(pids) for pids in ([APART], [APART, OLD], [])] == [True, False, False]


def test_a_child_that_speaks_for_some_tenants_alone_is_apart(routing: Routing) -> None:
    assert [routing.is_apart(pid) for pid in LANES] == [False, False, True]
    assert not routing.is_apart(4), "it has not told"
    routing.told(APART, ("tone", "tone@r3"))
    assert not routing.is_apart(APART)


def test_what_is_held_is_dropped_where_the_broker_sends_it_again(routing: Routing) -> None:
    routing.hold("tone@r2", "job")
    routing.clear()
    assert len(routing) == 0
    assert list(routing.release(LANES, LANES)) == []

"""Children that leave for another revision before their successor is there: who may, and when."""

from __future__ import annotations

import os

import pytest

from tests.support import TONE, Valkey
from voicemill.rollouts import Canary
from voicemill.store import Store
from voicemill.workers import ChildRecord, child_id
from worker.breaks import Breaks
from worker.devices import HOST
from worker.handover import Leaver, Wish

HOLD_SECONDS = 60.0


def breaks(store: Store, node: str) -> Breaks:
    return Breaks(store, node, "tone", HOLD_SECONDS)


def leaver(slot: int = 0, reason: str = "model") -> Leaver:
    return Leaver(11 + slot, slot, HOST, Wish(reason))


def beat(store: Store, node: str, slot: int = 0, *, takes_work: bool = True) -> None:
    """The child of a slot lives."""
    name = child_id(node, os.getpid(), 11 + slot)
    child = ChildRecord(name, node, 11 + slot, "tone", "1", 0.0, revision="base")
    store.beat_child(child, 60, takes_work=takes_work, place=f"{node}/{slot}")


def start_rollout(store: Store) -> str:
    store.publish_engine(TONE)
    store.start_rollout("rollout_1", "tone", "r2", {}, Canary(percent=100), None)
    return "rollout_1"


def test_one_child_of_the_fleet_at_a_time_leaves_first(store: Store) -> None:
    first, second = breaks(store, "a"), breaks(store, "b")
    for node in "ab":
        beat(store, node)
    start_rollout(store)
    assert first.may_leave(leaver())
    assert first.may_leave(leaver()), "it has been told so"
    assert not second.may_leave(leaver())
    (alert,) = second.alerts
    assert alert.startswith("Child 11 keeps its revision: another does not fit beside it")
    first.settle(0)
    assert second.may_leave(leaver())
    assert second.alerts == []


@pytest.mark.parametrize("other_takes_work", [False, True])
def test_the_last_that_takes_work_does_not_leave(store: Store, other_takes_work: bool) -> None:
    here = breaks(store, "a")
    beat(store, "a")
    start_rollout(store)
    assert not here.may_leave(leaver())
    beat(store, "b", takes_work=other_takes_work)
    assert here.may_leave(leaver()) == other_takes_work


def test_the_last_one_leaves_to_go_back(store: Store) -> None:
    here = breaks(store, "a")
    beat(store, "a")
    rollout = start_rollout(store)
    assert not here.may_leave(leaver())
    store.move_rollout(rollout, "roll_back", "bad")
    assert here.may_leave(leaver())


def test_for_other_reasons_nobody_is_asked(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    own_valkey.stop()
    here = breaks(store, "a")
    assert here.may_leave(leaver(reason="gpu_memory"))
    assert not here.may_leave(leaver()), "while the store is away"


def test_slots_that_are_no_more_say_nothing(store: Store) -> None:
    here = breaks(store, "a")
    for slot in (0, 1):
        assert not here.may_leave(leaver(slot))
    here.forget(1)
    assert [alert.split()[1] for alert in here.alerts] == ["11"]

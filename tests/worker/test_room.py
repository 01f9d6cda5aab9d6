"""Whether a successor may start, by the memory of this machine."""

from __future__ import annotations

import time

import pytest

from tests.support import wait_until
from voicemill.workers import Footprint
from worker import memory
from worker.devices import HOST, Devices
from worker.handover import Leaver, Wish
from worker.room import Room

PATIENCE_SECONDS = 0.5


def leaver(share: float) -> Leaver:
    """A child that takes this share of the host memory that is free."""
    footprint = Footprint(host=int(share * memory.available_bytes()))
    return Leaver(pid=11, slot=0, device=HOST, wish=Wish("tasks", footprint))


def test_there_is_room_for_what_is_free_and_not_for_more() -> None:
    room = Room(Devices())
    assert room.lack(leaver(0.3)) is None
    assert "needed" in (room.lack(leaver(1.5)) or "")


def test_what_others_that_load_will_take_is_not_free() -> None:
    room = Room(Devices())
    assert room.is_left_for(leaver(0.3), leaver(0.3).wish.footprint.host)
    assert not room.is_left_for(leaver(0.3), leaver(0.8).wish.footprint.host)


def test_memory_that_does_not_come_back_is_awaited_for_a_while_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.room.PATIENCE_SECONDS", PATIENCE_SECONDS)
    room, began = Room(Devices()), time.monotonic()
    assert not room.is_awaited_for(leaver(0.3)), "it is back"
    assert room.is_awaited_for(leaver(1.5))
    wait_until(lambda: not room.is_awaited_for(leaver(1.5)), PATIENCE_SECONDS + 5)
    assert time.monotonic() - began >= PATIENCE_SECONDS

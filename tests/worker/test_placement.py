"""Two workers on one card: what one was promised the other does not get."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support import TONE, Valkey
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import Footprint
from worker.devices import HOST, Devices
from worker.handover import Leaver, Wish
from worker.parent import Parent
from worker.placement import Placement

MIB = 2**20
CARD = "GPU-a0"
SETTINGS = Settings(engine="tone")


class Card(Devices):
    """A card of which 1000 MiB are free until something else is set."""

    free_mib = 1000

    def of(self, slot: int) -> str:
        return CARD

    def sizes(self, device: str) -> tuple[int, int] | None:
        return 1000 * MIB, self.free_mib * MIB


@pytest.fixture
def card() -> Card:
    return Card()


def placement(store: Store, card: Devices, node: str = "a@host") -> Placement:
    return Placement(store, card, node, "tone", 30)


@pytest.fixture
def measured(store: Store) -> Store:
    """`tone` has been measured at 400 MiB."""
    store.publish_engine(TONE)
    store.note_footprint("tone", TONE.model_revision, Footprint(host=1, gpu=400 * MIB))
    return store


def test_a_child_of_a_model_that_was_never_measured_loads_at_once(store: Store, card: Card) -> None:
    card.free_mib = 1
    assert placement(store, card).lack(0) is None
    store.publish_engine(TONE)
    store.note_footprint("tone", TONE.model_revision, Footprint(host=1))
    assert placement(store, card).lack(0) is None
    store.note_footprint("tone", "another", Footprint(host=1, gpu=2 * MIB))
    assert placement(store, card).lack(0) is None


def test_what_a_worker_was_promised_is_not_there_for_another_until_it_shows(
    measured: Store, card: Card
) -> None:
    first, second = placement(measured, card), placement(measured, card, "b@host")
    assert [first.lack(0), first.lack(1)] == [None, None]
    assert second.lack(0) == (
        "tone needs 400 MiB of GPU-a0, which has 1000 free, 800 of them promised to others"
    )
    first.settle(0)
    card.free_mib = 600
    assert second.lack(0) is not None, "400 are promised, of 600"
    first.settle(1)
    assert second.lack(0) is None


def test_without_a_driver_there_is_always_room(measured: Store) -> None:
    here = Devices()
    assert here.of(0) == HOST
    assert placement(measured, here).lack(0) is None


def test_a_successor_that_fits_waits_only_for_what_others_were_promised(
    measured: Store, card: Card
) -> None:
    first, second = placement(measured, card), placement(measured, card, "b@host")
    assert first.lack(0) is None
    assert not second.is_promised(0, 700 * MIB)
    assert second.is_promised(0, 600 * MIB)
    assert second.is_promised(1, None), "it has nothing on the card"


def test_while_the_store_is_away_a_child_loads_without_a_promise(
    own_valkey: Valkey, card: Card
) -> None:
    store = Store.connect(own_valkey.url)
    own_valkey.stop()
    assert placement(store, card).lack(0) is None


def test_who_leaves_before_its_successor_starts_keeps_its_place(
    measured: Store, card: Card, redis_url: str
) -> None:
    parent = Parent(replace(SETTINGS, redis_url=redis_url), "a@host")
    parent.placement = placement(measured, card)
    other = placement(measured, card, "b@host")
    card.free_mib = 100
    wish = Wish("tasks", Footprint(host=1, gpu=800 * MIB))
    assert parent.breaks_first(Leaver(11, 0, CARD, wish), "two don't fit")
    card.free_mib = 900
    assert other.lack(0) is not None
    parent.child_up(0)
    assert other.lack(0) is None


def test_a_slot_that_waits_says_so_until_there_is_room(
    measured: Store, card: Card, redis_url: str
) -> None:
    parent = Parent(replace(SETTINGS, redis_url=redis_url), "a@host")
    parent.placement = placement(measured, card)
    card.free_mib = 399
    assert not parent.has_room(2)
    why = "Slot 2 waits for memory: tone needs 400 MiB of GPU-a0, which has 399 free."
    assert parent.alerts == [why]
    card.free_mib = 400
    assert parent.has_room(2)
    assert parent.alerts == []

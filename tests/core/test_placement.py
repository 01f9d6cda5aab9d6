"""Memory of devices that is promised to children which load, and what models were measured at."""

from __future__ import annotations

from tests.support import wait_until
from voicemill.store import Store
from voicemill.workers import Footprint

DEVICE = "GPU-a0"


def test_a_footprint_is_kept_for_each_revision_of_a_model_and_the_last_one_counts(
    store: Store,
) -> None:
    assert store.footprint("tone", "1") is None
    store.note_footprint("tone", "1", Footprint(host=100, gpu=50))
    store.note_footprint("tone", "2", Footprint(host=200))
    store.note_footprint("tone", "1", Footprint(host=110, gpu=60))
    assert store.footprint("tone", "1") == Footprint(host=110, gpu=60)
    assert store.footprint("tone", "2") == Footprint(host=200, gpu=None)
    assert store.footprint("hibari", "1") is None


def test_what_is_promised_to_one_is_not_free_for_another_of_the_same_device(store: Store) -> None:
    assert store.claim_room(DEVICE, "a/0", 60, 100, 30) == (True, 0)
    assert store.claim_room(DEVICE, "b/0", 41, 100, 30) == (False, 60)
    assert store.claim_room("GPU-b1", "b/0", 41, 100, 30) == (True, 0)
    assert store.claim_room(DEVICE, "b/0", 40, 100, 30) == (True, 60)
    assert store.claim_room(DEVICE, "c/0", 1, 100, 30) == (False, 100)


def test_who_asks_again_does_not_stand_in_its_own_way(store: Store) -> None:
    assert store.claim_room(DEVICE, "a/0", 60, 100, 30) == (True, 0)
    assert store.claim_room(DEVICE, "a/0", 80, 100, 30) == (True, 0)
    assert store.claim_room(DEVICE, "b/0", 21, 100, 30) == (False, 80)


def test_who_is_refused_keeps_nothing_and_what_is_released_is_free(store: Store) -> None:
    assert store.claim_room(DEVICE, "a/0", 101, 100, 30) == (False, 0)
    assert store.claim_room(DEVICE, "b/0", 100, 100, 30) == (True, 0)
    store.release_room(DEVICE, "b/0")
    assert store.claim_room(DEVICE, "a/0", 100, 100, 30) == (True, 0)


def test_a_place_that_is_kept_by_force_is_nobody_else_s_though_it_is_not_free(
    store: Store,
) -> None:
    assert store.claim_room(DEVICE, "a/0", 90, 5, 30, force=True) == (True, 0)
    assert store.claim_room(DEVICE, "b/0", 20, 95, 30) == (False, 90)


def test_the_promise_to_one_that_is_never_heard_of_again_runs_out(store: Store) -> None:
    assert store.claim_room(DEVICE, "a/0", 100, 100, 0.05) == (True, 0)
    wait_until(lambda: store.claim_room(DEVICE, "b/0", 100, 100, 30)[0])

"""What the parent of a worker says of its slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support import wait_until
from voicemill.cores import affinity, usable_cores
from voicemill.pools import Pool
from voicemill.settings import Settings
from voicemill.store import Store
from worker.devices import Devices
from worker.exits import EXIT_NO_MEMORY
from worker.handover import Handover, Leaver, Wish
from worker.parent import Parent
from worker.placement import slots_before
from worker.threads import NAMES


@pytest.fixture
def parent(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    """One that tells how it is, often."""
    monkeypatch.setattr("worker.heartbeat.LONGEST_PAUSE_SECONDS", 0.05)
    parent = Parent(Settings(redis_url=redis_url, engine="tone"), "node@host")
    parent.start()
    yield parent
    parent.stop()


def failure(store: Store) -> str | None:
    """What the record of the only worker names."""
    told: list[str | None] = [record["failure"] for record in store.snapshot().workers]
    return told[0] if told else None


def test_an_empty_slot_is_told_until_a_child_of_that_very_slot_is_up(
    parent: Parent, store: Store
) -> None:
    parent.load_failed(11, 0, 3)
    parent.load_failed(12, 1, 3)
    wait_until(lambda: "Child 12" in (failure(store) or ""))
    assert "Child 11" in (failure(store) or "")
    parent.child_up(1)
    wait_until(lambda: "Child 12" not in (failure(store) or ""))
    assert "Child 11" in (failure(store) or "")
    parent.child_up(0)
    wait_until(lambda: failure(store) is None)


def test_want_of_memory_is_told_by_its_code_with_what_to_do(parent: Parent, store: Store) -> None:
    wish = Wish("requested")
    parent.load_failed(11, 0, EXIT_NO_MEMORY)
    parent.handover_failed(Handover(Leaver(12, 1, "host", wish), 13, 0.0), EXIT_NO_MEMORY)
    wait_until(lambda: "Successor 13" in (failure(store) or ""))
    told = str(failure(store))
    assert told.count("out_of_memory: no memory was left to load its engine in; end what else") == 2


def test_a_slot_that_is_given_up_is_told_of_no_more(parent: Parent, store: Store) -> None:
    parent.load_failed(11, 0, 3)
    parent.load_failed(12, 1, 3)
    parent.slots_given_up(1)
    wait_until(lambda: "Child 11" in (failure(store) or ""))
    assert "Child 12" not in (failure(store) or "")


def test_children_share_the_cores_with_those_of_the_stack_s_other_engines(
    parent: Parent, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    cores = usable_cores()
    pools = (Pool("hibari", 1), Pool("tone", cores))
    for settings, threads in (
        (Settings(engine="tone", workers=1), cores),
        (Settings(engine="tone", engines=pools), 1),
        (Settings(engine="tone", workers=1, threads_per_child=5), 5),
    ):
        made = Parent(replace(settings, redis_url=redis_url), "other@host")
        found = made.environment_of(0)
        assert {found[name] for name in NAMES} == {str(threads)}
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in parent.environment_of(0), "what a user sets is passed on"


class Beside(Devices):
    """Devices beside one of the cores."""

    def cores_near(self, slot: int, allowed: frozenset[int]) -> frozenset[int]:
        """The first of them, for the first slot."""
        return frozenset({min(allowed)}) if slot == 0 else frozenset()


def test_a_child_beside_whose_device_cores_are_is_told_of_them_and_has_no_more_threads(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    first, told = str(min(affinity())), {}
    for numa in (True, False):
        made = Parent(Settings(redis_url=redis_url, engine="tone", workers=1, numa=numa), "o@host")
        made.devices = Beside()
        told[numa] = [made.environment_of(slot) for slot in (0, 1)]
    assert [one.get("VOICEMILL_CORES") for one in (*told[True], *told[False])] == [
        *(first, None, None, None)
    ]
    assert told[True][0]["OMP_NUM_THREADS"] == "1"
    assert {one["OMP_NUM_THREADS"] for one in told[False]} == {str(usable_cores())}


def test_the_slots_of_the_engines_that_come_first_are_taken() -> None:
    pools = (Pool("hibari", 3), Pool("tone", 2), Pool("piper"))
    taken = [slots_before(Settings(engine=pool.engine, engines=pools, workers=1)) for pool in pools]
    assert taken == [0, 3, 5]
    assert slots_before(Settings(engine="tone")) == 0

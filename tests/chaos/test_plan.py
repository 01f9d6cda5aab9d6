"""What is planned follows from the seed alone."""

from __future__ import annotations

import pytest

from tests.chaos.plan import BURST, KINDS, LEASE_SECONDS, Fault, count, plan


def faults_of(seed: int, rounds: int, faults: int, *, can_fill: bool = True) -> list[Fault]:
    planned = plan(seed, rounds, faults, can_fill=can_fill)
    return [fault for bursts in planned for burst in bursts for fault in burst.faults]


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plan(7, 3, 10, can_fill=True) == plan(7, 3, 10, can_fill=True)
    assert plan(7, 3, 10, can_fill=True) != plan(8, 3, 10, can_fill=True)


def test_each_round_has_as_many_faults_as_asked_for_in_short_bursts() -> None:
    for bursts in plan(7, 20, 10, can_fill=True):
        assert count(bursts) == 10
        assert all(1 <= len(burst.faults) == len(burst.pauses) <= BURST for burst in bursts)


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_falls_once_before_any_falls_again(seed: int) -> None:
    dealt = [(fault.deed, fault.part) for fault in faults_of(seed, 4, 10)]
    kinds = {(kind.deed, kind.part) for kind in KINDS}
    assert len(kinds) == len(KINDS) == 20
    assert set(dealt[:20]) == set(dealt[20:]) == kinds


def test_a_disk_that_is_not_one_of_its_own_is_not_filled() -> None:
    assert "fill" not in {fault.deed for fault in faults_of(7, 20, 10, can_fill=False)}


def test_times_are_those_of_the_kind_and_one_child_is_frozen_beyond_its_lease() -> None:
    spans = {(kind.deed, kind.part): (kind.shortest, kind.longest) for kind in KINDS}
    for fault in faults_of(7, 20, 10):
        shortest, longest = spans[fault.deed, fault.part]
        assert shortest <= fault.seconds <= longest
    assert spans["outlast", "child"][0] > LEASE_SECONDS


def test_a_fault_reads_as_what_it_does() -> None:
    assert str(Fault("freeze", "api", 1.25)) == "freeze api for 1.2 s"
    assert str(Fault("kill", "child")) == "kill child"
    assert str(Fault("cut")) == "cut"

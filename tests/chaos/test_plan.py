"""What is planned follows from the seed alone."""

from __future__ import annotations

import pytest

from tests.chaos.plan import BURST, LONGEST_OUTAGE_SECONDS, count, plan


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert plan(7, 3, 10, can_fill=True) == plan(7, 3, 10, can_fill=True)
    assert plan(7, 3, 10, can_fill=True) != plan(8, 3, 10, can_fill=True)


@pytest.mark.parametrize("can_fill", [True, False])
def test_each_round_has_as_many_faults_as_asked_for(can_fill: bool) -> None:
    for bursts in plan(7, 20, 10, can_fill=can_fill):
        faults = [fault for burst in bursts for fault in burst.faults]
        assert count(bursts) == len(faults) == 10
        assert sum(fault.deed == "fill" for fault in faults) == can_fill
        assert all(1 <= len(burst.faults) == len(burst.pauses) <= BURST for burst in bursts)


def test_what_all_wait_for_is_back_soon_and_some_are_frozen_beyond_their_lease() -> None:
    rounds = plan(7, 20, 10, can_fill=True)
    faults = [fault for bursts in rounds for burst in bursts for fault in burst.faults]
    for fault in faults:
        if fault.deed in {"stall", "slow"} or (fault.deed, fault.part) == ("freeze", "redis"):
            assert 0 < fault.seconds <= LONGEST_OUTAGE_SECONDS
    assert any(fault.deed == "freeze" and fault.seconds > 5 for fault in faults)

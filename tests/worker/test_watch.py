"""A worker is found to take no more work, and nobody is who could not look."""

from __future__ import annotations

import pytest

from worker.watch import Finding, Watch

LIMIT = 10.0


def findings(
    watch: Watch, seconds: range, *, turns: bool = True, unheard: bool = False
) -> dict[int, Finding]:
    """A look a second; what was found that is not well, by second."""
    found: dict[int, Finding] = {}
    for now in seconds:
        if turns:
            watch.turned(now)
        finding = watch.look(now, unheard=unheard)
        if finding is not Finding.WELL:
            found[now] = finding
    return found


@pytest.fixture
def watch() -> Watch:
    return Watch(LIMIT, 0.0)


def test_a_loop_that_goes_round_is_well(watch: Watch) -> None:
    assert findings(watch, range(100)) == {}


def test_a_loop_that_stands_still_for_longer_than_the_limit_hangs(watch: Watch) -> None:
    assert findings(watch, range(5)) == {}
    assert findings(watch, range(5, 16), turns=False) == {15: Finding.HUNG}


def test_a_loop_that_never_began_hangs_too(watch: Watch) -> None:
    assert findings(watch, range(12), turns=False) == {11: Finding.HUNG}


def test_a_message_that_waits_beside_a_free_child_is_told_half_way_and_at_the_limit(
    watch: Watch,
) -> None:
    assert findings(watch, range(5)) == {}
    found = findings(watch, range(5, 16), unheard=True)
    assert found == {10: Finding.UNHEARD, 15: Finding.DEAF}


def test_a_message_that_is_taken_in_between_begins_the_count_again(watch: Watch) -> None:
    assert findings(watch, range(9), unheard=True) == {6: Finding.UNHEARD}
    assert findings(watch, range(9, 10)) == {}
    assert findings(watch, range(10, 20), unheard=True) == {15: Finding.UNHEARD}


def test_time_without_a_look_counts_for_nothing(watch: Watch) -> None:
    assert findings(watch, range(3), unheard=True) == {}
    late = range(100, 111)
    assert findings(watch, late, turns=False, unheard=True) == {}
    assert findings(watch, range(111, 112), turns=False) == {111: Finding.HUNG}


def test_a_loop_that_stands_still_is_not_asked_to_listen(watch: Watch) -> None:
    found = findings(watch, range(12), turns=False, unheard=True)
    assert found == {11: Finding.HUNG}

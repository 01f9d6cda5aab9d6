"""How fast a child speaks now, against how fast it did when it was fresh."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.pace import FIRST, LEAST_AUDIO_SECONDS, WINDOW, Pace, size


def spoken(*factors: float) -> Pace:
    """A pace after calls of these real-time factors."""
    pace = Pace()
    for factor in factors:
        pace.add(factor * 2.0, 2.0)
    return pace


def test_it_says_nothing_before_there_are_calls_enough() -> None:
    assert spoken().now is None
    early = spoken(*[0.1] * (WINDOW - 1))
    assert (early.baseline, early.now, early.slowdown) == (None, 0.1, None)
    assert spoken(*[0.1] * (FIRST + WINDOW - 1)).slowdown is None
    assert spoken(*[0.1] * (FIRST + WINDOW)).slowdown == 1.0


def test_it_tells_how_many_times_slower_than_at_first() -> None:
    pace = spoken(*[0.1] * WINDOW, *[0.25] * WINDOW)
    assert (pace.baseline, pace.now, pace.slowdown) == (0.1, 0.25, 2.5)


@given(st.lists(st.floats(0.01, 100), max_size=FIRST // 2 - 1))
def test_a_few_odd_texts_change_nothing(odd: list[float]) -> None:
    usual = [0.1] * (FIRST - len(odd))
    assert spoken(*usual, *odd, *[0.1] * WINDOW, *odd).slowdown == 1.0


def test_only_the_last_window_counts() -> None:
    assert spoken(*[0.1] * WINDOW, *[0.9] * WINDOW, *[0.1] * WINDOW).slowdown == 1.0


def test_very_short_audio_does_not_count() -> None:
    pace = Pace()
    for _ in range(3 * WINDOW):
        pace.add(1.0, LEAST_AUDIO_SECONDS / 2)
    assert pace.now is None


kinds = st.tuples(st.integers(1, 64), st.floats(LEAST_AUDIO_SECONDS, 60))


@given(st.lists(kinds, min_size=1, max_size=300))
def test_other_texts_and_other_batches_are_no_rot(calls: list[tuple[int, float]]) -> None:
    pace = Pace()
    for segments, audio_seconds in calls:
        pace.add(0.3, audio_seconds, segments)
    assert pace.slowdown is None or pace.slowdown < 2**0.5


@given(st.floats(0.5, 64))
def test_what_is_of_one_size_differs_by_little(value: float) -> None:
    assert size(value * 1.42) > size(value)
    assert size(value * 2) == size(value) + 2


@given(st.lists(kinds, min_size=1, max_size=4), st.floats(1.1, 20))
def test_rot_is_seen_through_any_mixture(mixture: list[tuple[int, float]], rot: float) -> None:
    pace = Pace()
    for slowness in (1.0, rot):
        for _ in range(WINDOW):
            for segments, audio_seconds in mixture:
                pace.add(slowness * (0.2 + 0.1 * audio_seconds), audio_seconds, segments)
    assert pace.slowdown is not None
    assert pace.slowdown == pytest.approx(rot)

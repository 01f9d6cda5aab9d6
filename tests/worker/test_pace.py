"""How fast a child speaks now, against how fast it did when it was fresh."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.pace import LEAST_AUDIO_SECONDS, WINDOW, Pace


def spoken(*factors: float) -> Pace:
    """A pace after items of these real-time factors."""
    pace = Pace()
    for factor in factors:
        pace.add(factor * 2.0, 2.0)
    return pace


def test_it_says_nothing_before_two_windows_are_full() -> None:
    assert spoken().now is None
    early = spoken(*[0.1] * (WINDOW - 1))
    assert (early.baseline, early.now, early.slowdown) == (None, 0.1, None)
    assert spoken(*[0.1] * (2 * WINDOW - 1)).slowdown is None
    assert spoken(*[0.1] * 2 * WINDOW).slowdown == 1.0


def test_it_tells_how_many_times_slower_than_at_first() -> None:
    pace = spoken(*[0.1] * WINDOW, *[0.25] * WINDOW)
    assert (pace.baseline, pace.now, pace.slowdown) == (0.1, 0.25, 2.5)


@given(st.lists(st.floats(0.01, 100), max_size=WINDOW // 2 - 1))
def test_a_few_odd_texts_change_nothing(odd: list[float]) -> None:
    usual = [0.1] * (WINDOW - len(odd))
    assert spoken(*usual, *odd, *usual, *odd).slowdown == 1.0


def test_only_the_last_window_counts() -> None:
    assert spoken(*[0.1] * WINDOW, *[0.9] * WINDOW, *[0.1] * WINDOW).slowdown == 1.0


def test_very_short_audio_does_not_count() -> None:
    pace = Pace()
    for _ in range(3 * WINDOW):
        pace.add(1.0, LEAST_AUDIO_SECONDS / 2)
    assert pace.now is None

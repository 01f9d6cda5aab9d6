"""The line through what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.costs import DECAY, UNMEASURED, CostModel, Observations
from voicemill.store import Store

Pair = tuple[int, float]
pairs = st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 10_000)), max_size=60)


def observe(measured: list[Pair], decay: float = DECAY) -> Observations:
    """Fold pairs as the store does."""
    sums = Observations()
    for x, y in measured:
        sums = Observations(
            n=sums.n * decay + 1,
            x=sums.x * decay + x,
            y=sums.y * decay + y,
            xx=sums.xx * decay + x * x,
            xy=sums.xy * decay + x * y,
        )
    return sums


def test_nothing_measured_is_a_careful_guess() -> None:
    assert Observations().fit() == UNMEASURED


@given(base=st.floats(0, 5), slope=st.floats(1e-5, 0.5))
def test_a_line_is_recovered_from_points_on_it(base: float, slope: float) -> None:
    measured = [(x, base + slope * x) for x in (10, 400, 35, 900, 120, 60)]
    fitted = observe(measured).fit()
    assert fitted.base == pytest.approx(base, abs=1e-6, rel=1e-6)
    assert fitted.per_character == pytest.approx(slope, rel=1e-6)


@given(measured=pairs, characters=st.integers(0, 100_000))
def test_no_estimate_is_negative(measured: list[Pair], characters: int) -> None:
    fitted = observe(measured).fit()
    assert fitted.base >= 0
    assert fitted.per_character >= 0
    assert fitted.seconds(characters) >= 0


def test_texts_of_one_length_give_a_cost_in_proportion() -> None:
    assert observe([(100, 2.0), (100, 4.0)], decay=1).fit() == CostModel(0.0, 0.03)


def test_a_line_that_would_start_below_zero_goes_through_it() -> None:
    fitted = observe([(100, 0.1), (200, 2.0)]).fit()
    assert fitted.base == 0.0
    assert fitted.seconds(200) == pytest.approx(200 * fitted.per_character)


def test_longer_texts_that_took_less_time_cost_the_mean() -> None:
    assert observe([(100, 3.0), (200, 1.0)], decay=1).fit() == CostModel(2.0, 0.0)


def test_the_estimate_follows_a_machine_that_became_slower() -> None:
    fast = [(x, 0.001 * x) for x in (50, 100, 150)] * 50
    slow = [(x, 0.004 * x) for x in (50, 100, 150)] * 100
    assert observe(fast + slow).fit().seconds(100) == pytest.approx(0.4, rel=0.1)


def test_the_store_folds_measurements_the_same_way(store: Store) -> None:
    measured = [(10, 0.3), (400, 2.1), (35, 0.4), (900, 4.9)]
    for x, y in measured:
        store.observe_cost("tone", x, y)
    fitted, expected = store.cost("tone"), observe(measured).fit()
    assert fitted.base == pytest.approx(expected.base, rel=1e-5)
    assert fitted.per_character == pytest.approx(expected.per_character, rel=1e-5)
    assert store.cost("hibari") == UNMEASURED

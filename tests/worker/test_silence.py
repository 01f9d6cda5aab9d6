"""A child is given up after so many ticks in a row without an answer, and only once."""

from __future__ import annotations

from worker.silence import PATIENCE_TICKS, Silence


def test_each_is_named_once_after_its_last_tick() -> None:
    silence = Silence()
    named = [silence.note([7]) for _ in range(PATIENCE_TICKS + 3)]
    assert named == [[]] * (PATIENCE_TICKS - 1) + [[7]] + [[]] * 3


def test_an_answer_begins_the_count_again() -> None:
    silence = Silence()
    for _ in range(PATIENCE_TICKS - 1):
        assert silence.note([7, 8]) == []
    assert silence.note([8]) == [8]
    assert silence.note([7]) == []

"""What ``benchmarks/padded.py`` makes of lines and of what it measured."""

from __future__ import annotations

import pytest

from benchmarks.padded import Spoken, Way, cells, cut, groups, mixed_lines, row, waste, ways

LENGTHS = [100, 10, 110, 12, 400]


def spoken(
    seconds: float,
    samples: list[int],
    together: list[list[int]],
    *,
    device_mb: float | None = None,
) -> Spoken:
    """What a process found."""
    return Spoken("cpu", together, samples, 0.5, 0.25, seconds, 100.4, device_mb)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("unsorted", [[0, 1], [2, 3], [4]]),
        ("sorted", [[1, 3], [0, 2], [4]]),
        ("bucketed", [[1], [0, 2], [3], [4]]),
    ],
)
def test_lines_go_together_as_the_way_says(order: str, expected: list[list[int]]) -> None:
    assert groups(Way(2, order), LENGTHS, window=3) == expected


def test_every_way_speaks_every_line_once() -> None:
    lengths = [len(line) for line in mixed_lines(37)]
    for way in ways([8, 16], None, compiled=False):
        together = groups(way, lengths, window=way.batch)
        assert sorted(line for group in together for line in group) == list(range(37))
        assert max(map(len, together)) <= way.batch


def test_waste_is_padding_for_one_that_is_none() -> None:
    assert waste([10, 30], [[0, 1]]) == pytest.approx(20 / 40)
    assert waste([10, 30], [[0], [1]]) == 0.0
    assert waste([1, 1, 4], [[0, 2], [1]]) == pytest.approx(3 / 6)


def test_sorted_lines_waste_less_and_buckets_least() -> None:
    lengths = [len(line) for line in mixed_lines(32)]
    wasted = [
        waste(lengths, groups(Way(8, order), lengths, window=8))
        for order in ("unsorted", "sorted", "bucketed")
    ]
    assert wasted[0] > wasted[1] > 0
    assert wasted[0] > wasted[2] > 0


def test_line_by_line_comes_first_and_the_faster_ways_are_bucketed() -> None:
    assert [way.name for way in ways([8], None, compiled=False)] == [
        *("1", "8 unsorted", "8 sorted", "8 bucketed"),
    ]
    assert [way.name for way in ways([8], "float16", compiled=True)][4:] == [
        *("1 float16", "8 bucketed float16"),
        *("1 float16 compiled", "8 bucketed float16 compiled"),
    ]


def test_figures_are_those_of_the_median_round_against_line_by_line_in_the_same() -> None:
    ones = [spoken(seconds, [16000, 48000], [[0], [1]]) for seconds in (4.0, 8.0, 2.0)]
    rounds = [
        spoken(seconds, [16000, 48000], [[0, 1]], device_mb=300.4) for seconds in (1.0, 4.0, 2.0)
    ]
    found = row(rounds, ones, tokens=[10, 30])
    assert (found.times_real_time, found.texts_per_second) == (2.0, 1.0)
    assert found.against_one == 2.0
    assert (found.padded_tokens, found.padded_samples) == (0.5, 0.5)
    assert (found.load_seconds, found.warm_seconds) == (0.5, 0.25)
    assert (found.rss_mb, found.device_mb) == (100, 300)
    assert cells(Way(2, "sorted"), found) == [
        *("2 sorted", "2.0", "1.0", "2.00", "0.50", "0.50", "0.5", "0.2", "100", "300"),
    ]
    assert row(rounds, [], tokens=[10, 30]).against_one is None


def test_lines_are_mixed_and_always_the_same() -> None:
    lines = mixed_lines(512)
    assert lines == mixed_lines(600)[:512]
    counts = [len(line.split()) for line in lines]
    assert (min(counts), max(counts)) == (3, 32)
    assert set("".join(lines)) <= set("abcdefghijklmnopqrstuvwxyz ")


def test_lines_are_cut_in_groups_of_which_the_last_may_be_smaller() -> None:
    assert cut([5, 6, 7], 2) == [[5, 6], [7]]
    assert cut([], 2) == []

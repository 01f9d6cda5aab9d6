"""Which segments are padded to the length of which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.engines.buckets import buckets, padding


def test_like_lengths_come_together_shortest_first() -> None:
    assert list(buckets([100, 10, 110, 12, 400], 8)) == [[1, 3], [0, 2], [4]]


def test_no_bucket_holds_more_than_it_may() -> None:
    assert list(buckets([5, 5, 5, 5, 5], 2)) == [[0, 1], [2, 3], [4]]
    assert list(buckets([], 2)) == []


@given(st.lists(st.integers(1, 400), max_size=40), st.integers(1, 16))
def test_every_segment_is_in_one_bucket(lengths: list[int], most: int) -> None:
    found = list(buckets(lengths, most))
    assert sorted(index for bucket in found for index in bucket) == list(range(len(lengths)))
    assert all(len(bucket) <= most for bucket in found)
    assert padding(lengths, found) < 0.7


def test_padding_is_what_is_computed_for_nothing() -> None:
    assert padding([10, 30], [[0, 1]]) == 1 - 40 / 60
    assert padding([10, 30], [[0], [1]]) == 0.0
    assert padding([], []) == 0.0

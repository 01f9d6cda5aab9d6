"""Padded batches that hold little padding. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MOST_STRETCH = 2.0
SLACK = 16


def buckets(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indexes by length, shortest first, up to ``most`` together.

    The longest of a bucket is at most twice as long as its shortest, and a little more.
    """
    bucket: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if bucket:
            longest = MOST_STRETCH * lengths[bucket[0]] + SLACK
            if len(bucket) == most or lengths[index] > longest:
                yield bucket
                bucket = []
        bucket.append(index)
    if bucket:
        yield bucket


def padding(lengths: Sequence[int], groups: Sequence[Sequence[int]]) -> float:
    """The share of padding in what is computed, in [0, 1)."""
    computed = sum(len(group) * max(lengths[index] for index in group) for group in groups)
    return 1 - sum(lengths) / computed if computed else 0.0

"""Memory quotas: what calls will take is foretold, what they took is judged."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wait_until
from tests.worker.bench import Bench, CountingEngine
from voicemill.errors import MemoryQuotaExceededError
from voicemill.health import MEBIBYTE
from voicemill.jobs import ItemStatus, JobRules
from voicemill.limits import Limits
from voicemill.store import Store
from worker.engines.base import Samples, SynthesisOptions
from worker.peaks import PeakWatch
from worker.quota import LEAST_CALLS, Quota
from worker.recycle import Policy, Reason, reason_to_leave

HELD = 500 * MEBIBYTE
"""What the process has at rest."""


class Process:
    """A process whose memory is what it is set to."""

    def __init__(self, quota_mb: int | None = 100) -> None:
        self.bytes = HELD
        self.looks: set[int] = set()
        self.quota = Quota(self.look)
        self.begin(quota_mb)

    def begin(self, quota_mb: int | None = 100) -> None:
        self.quota.begin(Limits(max_memory_mb=quota_mb))

    def look(self) -> int:
        self.looks.add(self.bytes)
        return self.bytes

    def call(self, *lengths: int, takes: float, keeps: float = 0.0) -> None:
        """The engine speaks segments, takes so many MiB for a while and keeps some."""
        began = self.bytes
        self.looks.clear()
        with self.quota.watched(lengths):
            self.bytes = peak = began + round(takes * MEBIBYTE)
            wait_until(lambda: peak in self.looks, what="a look at the peak")
            self.bytes = began + round(keeps * MEBIBYTE)

    def foretold_mb(self, characters: int) -> float | None:
        foretold = self.quota.foretold(characters)
        return None if foretold is None else round(foretold / MEBIBYTE, 1)


def learned(quota_mb: int = 100) -> Process:
    """One whose calls take 10 MiB and 0.1 for each character."""
    process = Process(quota_mb)
    for characters in (100, 200, 300):
        process.begin(quota_mb)
        process.call(characters, takes=10 + characters / 10)
    return process


def test_a_peak_that_is_over_before_the_end_is_seen() -> None:
    process = Process()
    with PeakWatch(process.look) as peak:
        process.bytes = 2 * HELD
        wait_until(lambda: peak.bytes == 2 * HELD, what="the peak")
        process.bytes = HELD
    assert peak.bytes == 2 * HELD


def test_calls_are_foretold_by_a_line_through_those_that_were_watched() -> None:
    process = learned()
    assert process.foretold_mb(200) == 30.0
    assert process.foretold_mb(800) == 90.0
    assert not process.quota.was_exceeded


def test_nothing_is_foretold_before_some_calls_and_these_have_one_segment() -> None:
    process = Process()
    for _ in range(LEAST_CALLS):
        assert process.foretold_mb(100) is None
        assert process.quota.fitting([10, 10, 10], 4) == 1
        process.begin()
        process.call(10, takes=1)
    assert process.quota.fitting([10, 10, 10], 4) == 3


@pytest.mark.parametrize(
    ("lengths", "count"),
    [([200, 200, 200, 200], 4), ([400, 400, 400], 2), ([500, 500], 1), ([890, 20], 1)],
)
def test_a_call_has_as_many_segments_as_the_quota_allows(lengths: list[int], count: int) -> None:
    assert learned().quota.fitting(lengths, 4) == count


def test_a_segment_that_would_take_too_much_is_refused_before_it_is_spoken() -> None:
    process = learned()
    with pytest.raises(MemoryQuotaExceededError, match=r"takes about 101\.0 MiB .* may take 100;"):
        process.quota.fitting([910, 10], 4)
    assert not process.quota.was_exceeded, "nothing was taken"


def test_one_segment_that_took_too_much_is_to_blame_and_of_several_nobody() -> None:
    process = learned()
    process.call(300, 300, takes=120)
    assert process.quota.was_exceeded
    with pytest.raises(MemoryQuotaExceededError, match=r"of 300 characters took 120\.0 MiB"):
        process.call(300, takes=120)


def test_what_a_call_left_behind_is_not_held_against_the_next() -> None:
    process = learned()
    process.call(300, 300, takes=120, keeps=120)
    for _ in range(10):
        process.call(10, takes=90, keeps=90)


@pytest.mark.parametrize("takes", [0, 40], ids=["it finds a cache", "it leaks as well"])
def test_only_the_first_call_of_a_task_tells_what_others_take(takes: int) -> None:
    process = Process()
    for _ in range(LEAST_CALLS):
        process.bytes = HELD
        process.begin()
        process.call(400, takes=40, keeps=40)
        process.call(400, takes=takes, keeps=takes)
        process.call(10, takes=takes, keeps=takes)
    assert process.foretold_mb(10) == 1.0


def test_without_a_quota_nobody_looks() -> None:
    process = Process(None)
    with process.quota.watched([900]):
        process.bytes = 10 * HELD
    assert process.looks == set()
    assert process.quota.fitting([900, 900], 4) == 4


# --- in a child -------------------------------------------------------------------

TEXTS = [f"This is line {n}, longer than the last{' one' * n}." for n in range(6)]


def quota(mebibytes: int) -> JobRules:
    return JobRules(limits=Limits(max_memory_mb=mebibytes))


def reason(bench: Bench) -> Reason | None:
    """Why its child should leave."""
    bench.vitals.tally.tasks += 1
    now = bench.vitals.measure(took_too_much=bench.synthesizer.took_too_much)
    return reason_to_leave(Policy(), now)


@pytest.fixture
def collected() -> Iterator[None]:
    """What other tests have left behind is not given back in the middle of a call."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaking(store: Store, url: str, folder: Path, mebibytes: int) -> Bench:
    """A child whose engine takes so much for each segment, and keeps it."""
    return Bench(store, url, folder, engine_options={"leak_host_mb": mebibytes})


@pytest.mark.usefixtures("collected")
def test_a_segment_that_took_too_much_fails_and_its_child_leaves(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = leaking(store, redis_url, tmp_path, 64)
    (item,) = bench.job(TEXTS[0], rules=quota(32))
    assert (item.status, item.attempts, item.audio) == (ItemStatus.FAILED, 1, None)
    assert item.error is not None
    assert (item.error.code, item.error.retryable) == ("memory_quota_exceeded", False)
    assert "took 6" in item.error.message
    assert "may take 32" in item.error.message
    assert reason(bench) is Reason.HOST_MEMORY


@pytest.mark.usefixtures("collected")
def test_what_would_take_too_much_is_not_spoken_once_that_is_known(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = leaking(store, redis_url, tmp_path, 64)
    for n in range(LEAST_CALLS):
        (item,) = bench.job(TEXTS[n], job=f"job_{n}", rules=quota(32))
        assert item.error is not None
        assert "took 6" in item.error.message
    (item,) = bench.job(TEXTS[3], job="job_3", rules=quota(32))
    assert (item.status, item.attempts) == (ItemStatus.FAILED, 1)
    assert item.error is not None
    assert item.error.code == "memory_quota_exceeded"
    assert "takes about 6" in item.error.message
    assert bench.engine.texts == TEXTS[:LEAST_CALLS], "it was not spoken"
    (item,) = bench.job(TEXTS[3], job="job_4", rules=quota(512))
    assert item.status is ItemStatus.SUCCEEDED


def test_a_quota_with_room_leaves_the_child_and_the_batches_as_they_are(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = leaking(store, redis_url, tmp_path, 1)
    items = bench.job(*TEXTS, rules=quota(512))
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    assert bench.engine.texts == TEXTS
    assert reason(bench) is None


class GreedyEngine(CountingEngine):
    """Has a MiB for each character while it speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.calls: list[int] = []
        self.meanwhile = self._wait
        self._looked_at: set[int] = set()

    def look(self) -> int:
        self._looked_at.add(self.held)
        return self.held

    def _wait(self) -> None:
        wait_until(lambda: self.held in self._looked_at, what="a look at what it has")

    def synthesize(self, batch: Any, voice: str, options: SynthesisOptions) -> list[Samples | Any]:
        self.calls.append(len(batch))
        self._looked_at.clear()
        self.held = sum(len(segment.text) for segment in batch) * MEBIBYTE
        spoken = super().synthesize(batch, voice, options)
        self.held = 0
        return spoken


def test_a_batch_that_would_take_too_much_is_split(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = Bench(store, redis_url, tmp_path)
    bench.engine = greedy = GreedyEngine()
    bench.synthesizer = bench.child()
    bench.synthesizer._quota = Quota(greedy.look)
    texts = [f"Almost as long as this:{'!' * n}" for n in range(6)]
    bench.job(*texts, job="job_6", rules=quota(60))
    assert greedy.calls == [1] * 6, "too little was known"
    for n in range(LEAST_CALLS):
        bench.job(texts[n], job=f"job_{n}", rules=quota(60))
    greedy.calls.clear()
    items = bench.job(*texts, job="job_7", rules=quota(60))
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    assert max(greedy.calls) == 2, "of about 25 characters each"
    assert not bench.synthesizer.took_too_much
    # Without a quota the same child speaks more at a time.
    greedy.calls.clear()
    greedy.meanwhile = lambda: None
    bench.job(*texts, *texts, job="job_8", reuse=False)
    assert max(greedy.calls) > 2

"""Each attempt has a session of its own, and nothing of it stays, however it ends."""

from __future__ import annotations

import gc
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import inputs
from tests.worker.bench import Bench, Killed
from voicemill.jobs import Item, ItemStatus, JobRules
from voicemill.limits import Limits
from voicemill.store import Store
from voicemill.tenants import Tenant, new_api_key
from voicemill.workers import SessionCounts
from worker import audio
from worker.engines.tone import seconds as tone_seconds
from worker.sessions import Session, Sessions, seed_of

TEXT = "This line is said by itself."
(ITEM,) = inputs(TEXT)
LONG = "All of this is said in one breath, and it goes on for a while. " * 20
"""Of several segments."""


@pytest.fixture
def bench(store: Store, redis_url: str, tmp_path: Path) -> Bench:
    return Bench(store, redis_url, tmp_path / "out")


# --- one session ----------------------------------------------------------------


def test_a_folder_is_made_when_it_is_asked_for_and_goes_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sessions = Sessions()
    with sessions.session(ITEM), sessions.session(ITEM):
        assert list(tmp_path.iterdir()) == []
    with suppress(Killed), sessions.session(ITEM) as one, sessions.session(ITEM) as other:
        (one.folder() / "prompt.wav").write_bytes(b"sound")
        assert one.folder() == one.folder() != other.folder()
        assert set(tmp_path.iterdir()) == {one.folder(), other.folder()}
        raise Killed
    assert list(tmp_path.iterdir()) == []
    assert sessions.counts == SessionCounts(4, 4)


def test_a_folder_that_can_not_be_removed_harms_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sessions = Sessions()
    with sessions.session(ITEM) as session:
        os.rmdir(session.folder())
    assert sessions.counts == SessionCounts(1, 1)
    assert "voicemill-" in caplog.text
    assert "stays" in caplog.text


def test_what_was_entered_into_a_session_ends_with_it() -> None:
    ended: list[str] = []
    with Sessions().session(ITEM) as session:
        for name in ("features", "cache"):
            session.resources.callback(ended.append, name)
        assert ended == []
    assert ended == ["cache", "features"]


def test_seeds_follow_from_the_item_and_its_attempt_alone() -> None:
    free = [Session(ITEM).seed(0), Session(ITEM, draws=1).seed(0)]
    assert free == [None, seed_of(None, 0, 1)]
    seeded = Session(replace(ITEM, seed=7))
    assert [seeded.seed(0), seeded.seed(1), seeded.seed(0)] == [7, seed_of(7, 1, 0), 7]


def test_news_that_nobody_heard_are_told_again() -> None:
    sessions = Sessions()
    with sessions.session(ITEM):
        news = sessions.take_news()
        assert news == SessionCounts(1, 0)
        assert sessions.take_news() == SessionCounts(0, 0)
        sessions.return_news(news)
    assert sessions.take_news() == SessionCounts(1, 1)
    assert sessions.take_news() == SessionCounts(0, 0)


# --- every ending ---------------------------------------------------------------


def cancel(bench: Bench) -> None:
    bench.engine.meanwhile = lambda: bench.store.cancel("job_1")


def lose_lease(bench: Bench) -> None:
    bench.engine.meanwhile = lambda: bench.lose("c1")


def kill(bench: Bench) -> None:
    bench.engine.kills = True


ENDINGS: dict[str, tuple[Callable[[Bench], Any], str]] = {
    "success": (lambda bench: None, TEXT),
    "one of the batch fails": (lambda bench: None, TEXT + "{tone:fail}"),
    "nothing to speak": (lambda bench: None, "{tone:empty}"),
    "the engine is poisoned": (lambda bench: None, TEXT + "{tone:poison}"),
    "cancelled": (cancel, LONG),
    "the lease is lost": (lose_lease, LONG),
    "the process dies": (kill, TEXT),
}


@pytest.mark.parametrize(("prepare", "text"), ENDINGS.values(), ids=ENDINGS)
def test_no_session_stays_open_however_its_attempt_ends(
    bench: Bench, prepare: Callable[[Bench], Any], text: str
) -> None:
    prepare(bench)
    seen: list[int] = []
    happens = bench.engine.meanwhile

    def meanwhile() -> None:
        seen.append(bench.synthesizer.sessions.counts.open)
        happens()

    bench.engine.meanwhile = meanwhile
    bench.submit(text, "And another one.", "One for later.", "And its neighbour.")
    task = bench.start()
    assert task.indexes == (0, 1)
    bench.run(task)
    assert bench.synthesizer.sessions.counts == SessionCounts(2, 2)
    assert set(seen) == (set() if bench.engine.kills else {2})


def test_a_store_that_fails_in_the_middle_leaves_no_session_open(bench: Bench) -> None:
    bench.submit(TEXT)
    task = bench.start()

    def fail(*_: Any) -> Any:
        raise RuntimeError("The store has a fault.")

    bench.synthesizer._reuse.spoken = fail  # type: ignore[method-assign, assignment]
    with suppress(RuntimeError):
        bench.synthesizer.run(task)
    assert bench.synthesizer.sessions.counts == SessionCounts(1, 1)


def test_memory_and_folders_are_as_before_after_many_items(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bench.job(*[LONG] * 2, reuse=False)
    tracemalloc.start()
    try:
        bench.job(*[LONG] * 10, job="job_2", reuse=False)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > tone_seconds(LONG) * 24000 * 4, "the audio of one item, at least"
    assert kept < peak / 10
    assert bench.synthesizer.sessions.counts == SessionCounts(12, 12)
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


# --- limits of audio and time -----------------------------------------------------


def limited(**limits: Any) -> JobRules:
    return JobRules(limits=Limits(**limits))


def assert_failed(item: Item, code: str, message: str) -> None:
    assert (item.status, item.attempts, item.audio) == (ItemStatus.FAILED, 1, None)
    assert item.error is not None
    assert (item.error.code, item.error.retryable) == (code, False)
    assert message in item.error.message


def test_an_item_stops_at_the_segment_that_makes_it_too_long(bench: Bench) -> None:
    long, short = bench.job(LONG, TEXT, rules=limited(max_output_seconds=30.0))
    assert_failed(long, "output_too_long", "and may have 30; split the text")
    assert short.status is ItemStatus.SUCCEEDED
    spoken = sum(map(tone_seconds, (text for text in bench.engine.texts if text != TEXT)))
    assert 30 < spoken < tone_seconds(LONG)


def test_the_pauses_between_segments_are_part_of_its_audio(bench: Bench) -> None:
    (whole,) = bench.job(LONG)
    assert whole.audio is not None
    length = whole.audio.duration_seconds
    gaps = (len(bench.engine.texts) - 1) * audio.GAP_SECONDS
    assert gaps > 0.3
    fits = limited(max_output_seconds=length + 0.001)
    (item,) = bench.job(LONG, job="job_2", rules=fits, reuse=False)
    assert item.status is ItemStatus.SUCCEEDED
    passes = limited(max_output_seconds=length - gaps / 2)
    (item,) = bench.job(LONG, job="job_3", rules=passes, reuse=False)
    assert_failed(item, "output_too_long", "s so far")


def test_audio_that_is_shared_may_not_be_longer_either(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = Bench(store, redis_url, tmp_path, cache_mb=10)
    bench.job(TEXT)
    (item,) = bench.job(TEXT, job="job_2", rules=limited(max_output_seconds=1.0))
    assert_failed(item, "output_too_long", "may have 1;")
    assert bench.engine.texts == [TEXT], "it was shared"
    assert not list((tmp_path / "job_2").rglob("*.wav"))


def test_an_item_that_takes_too_long_stops_and_others_of_its_batch_do_not(bench: Bench) -> None:
    slow = "It takes its time.{tone:seconds=0.1} " * 200
    items = bench.job(slow, TEXT, rules=limited(max_item_seconds=0.25))
    assert_failed(items[0], "item_timeout", "s for it so far and may take 0.25; split the text")
    assert items[1].status is ItemStatus.SUCCEEDED
    assert len(bench.engine.texts) == 5, "four of one call, and the other item's"


@pytest.mark.parametrize("where", ["settings", "tenant", "job"])
def test_the_limit_of_the_settings_the_tenant_and_the_job_count_alike(
    where: str, store: Store, redis_url: str, tmp_path: Path
) -> None:
    limits = Limits(max_output_seconds=1.0)
    settings = {"max_output_seconds": 1.0} if where == "settings" else {}
    bench = Bench(store, redis_url, tmp_path, **settings)
    of_tenant = limits if where == "tenant" else Limits(5.0)
    of_job = limits if where == "job" else Limits(7.0)
    store.create_tenant(Tenant("ann", limits=of_tenant), new_api_key())
    (item,) = bench.job(TEXT, rules=JobRules(limits=of_job))
    assert_failed(item, "output_too_long", "may have 1;")


def test_a_job_can_not_raise_the_limit_of_its_tenant(bench: Bench) -> None:
    bench.store.create_tenant(Tenant("ann", limits=Limits(1.0)), new_api_key())
    (item,) = bench.job(TEXT, rules=limited(max_output_seconds=600.0))
    assert_failed(item, "output_too_long", "may have 1;")

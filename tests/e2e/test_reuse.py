"""A real worker speaks what is identical once, whatever happens to it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import soundfile

from tests.e2e.solo import SoloWorker, tone
from tests.support import wait_until
from voicemill.jobs import Item, ItemStatus
from voicemill.store import Store

TEXTS = [f"Line {n % 20}." for n in range(60)]
SLOW = {"VOICEMILL_BATCH_SECONDS": "0.2", **tone(seconds_per_segment=0.05)}


def assert_whole(items: list[Item]) -> None:
    """Each succeeded, with a file of its own that is as recorded and can be played."""
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    paths = {item.audio.audio_path for item in items if item.audio}
    assert len(paths) == len(items)
    for item in items:
        assert item.audio is not None
        data = Path(item.audio.audio_path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == item.audio.sha256
        assert soundfile.info(item.audio.audio_path).duration == item.audio.duration_seconds


def spoken(store: Store) -> int:
    """Items that an engine has spoken so far."""
    metrics = {name: value for name, _, value in store.metrics()}
    return int(metrics.get("voicemill_synthesis_seconds_count", 0))


def cached(items: list[Item]) -> int:
    return sum(item.cached for item in items)


@pytest.mark.full
@pytest.mark.parametrize("children", [1, 3])
def test_sixty_rows_of_twenty_texts_are_spoken_twenty_times(
    tmp_path: Path, redis_url: str, children: int
) -> None:
    env = {**SLOW, "VOICEMILL_WORKERS": str(children), "VOICEMILL_BATCH_SECONDS": "0.1"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_until("all children", lambda: len(worker.processes("ready")) == children)
        items = worker.wait_for(worker.submit(*TEXTS))
        assert spoken(worker.store) == 20
        assert worker.stop() == 0
    assert_whole(items)
    assert {item.attempts for item in items} == {1}
    job = worker.store.job(items[0].job_id)
    assert (job.counts.succeeded, job.counts.cached, cached(items)) == (60, 40, 40)
    assert job.device_seconds == pytest.approx(
        sum(item.audio.device_seconds for item in items if item.audio and not item.cached)
    )


@pytest.mark.full
@pytest.mark.parametrize("ended", [5, 20, 40])
def test_what_a_killed_child_had_in_hand_is_waited_for_and_spoken_once(
    tmp_path: Path, redis_url: str, ended: int
) -> None:
    with SoloWorker(redis_url, tmp_path, **SLOW) as worker:
        job_id = worker.submit(*TEXTS)
        worker.wait_until("some", lambda: worker.store.job(job_id).counts.succeeded >= ended)
        kill(worker.the_child()["pid"])
        items = worker.wait_for(job_id)
        assert worker.stop() == 0
    assert_whole(items)
    counts = worker.store.job(job_id).counts
    assert (counts.succeeded, counts.cached, cached(items)) == (60, 40, 40)
    assert spoken(worker.store) == 20
    assert max(item.attempts for item in items) <= 2


@pytest.mark.full
def test_a_text_that_kills_children_takes_the_attempts_of_two_of_its_items(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**SLOW, "VOICEMILL_WORKERS": "2", "VOICEMILL_RETRY_SECONDS": "0.1"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        items = worker.wait_for(worker.submit(*["Poison {tone:crash} here."] * 30, "Good."))
        assert worker.stop() == 0
    assert_whole(items[30:])
    assert {item.status for item in items[:30]} == {ItemStatus.FAILED}
    assert {item.error and item.error.code for item in items[:30]} == {"worker_lost"}
    assert sorted(item.attempts for item in items) == [1] * 29 + [3] * 2


def kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    gone: Callable[[], bool] = lambda: not psutil.pid_exists(pid)  # noqa: E731
    wait_until(gone, what=f"the end of {pid}")


@pytest.mark.full
def test_another_job_finds_what_was_kept_and_a_restart_changes_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**SLOW, "VOICEMILL_CACHE_MB": "10"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        first = worker.wait_for(worker.submit(*TEXTS[:20]))
        assert worker.stop() == 0
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        second = worker.wait_for(worker.submit(*TEXTS[10:30], "One more."))
        assert spoken(worker.store) == 21
        assert worker.stop() == 0
    assert_whole(first + second)
    assert [item.cached for item in second] == [True] * 20 + [False]

"""What Celery's result says of an item is what has become of it."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import Valkey, wait_until
from tests.worker.bench import Bench
from voicemill.jobs import ItemAudio, ItemStatus
from voicemill.store import Store
from worker.attempts import Outcome

NEVER = "{tone:fail} Never."
LONG = "All of this is said in one breath. " * 11


@pytest.fixture
def bench(store: Store, redis_url: str, tmp_path: Path) -> Bench:
    return Bench(store, redis_url, tmp_path / "outputs")


def test_an_item_that_failed_waits_again_until_its_attempts_in_this_run_are_used_up(
    bench: Bench,
) -> None:
    bench.submit(NEVER)
    for run in (1, 2):
        for expected in (ItemStatus.QUEUED, ItemStatus.QUEUED, ItemStatus.FAILED):
            (outcome,) = bench.run(bench.start())
            assert outcome.status == expected, f"run {run}"
            assert bench.store.item("job_1", "row-000001").status == expected
            assert outcome.error is not None
            assert outcome.error["code"] == "synthesis_failed"
        bench.store.retry("job_1")


def test_a_job_that_was_cancelled_ends_its_items_whatever_they_failed_of(bench: Bench) -> None:
    bench.submit(NEVER)
    bench.engine.meanwhile = lambda: bench.store.cancel("job_1")
    (outcome,) = bench.run(bench.start())
    assert outcome == Outcome("job_1", "row-000001", ItemStatus.CANCELLED)


def test_a_job_that_is_gone_was_cancelled(bench: Bench) -> None:
    bench.submit("One.")

    def delete() -> None:
        bench.store.delete("job_1", cancel=True)
        bench.lose("c1")
        bench.store.purge("job_1")

    bench.engine.meanwhile = delete
    (outcome,) = bench.run(bench.start())
    assert outcome == Outcome("job_1", "row-000001", ItemStatus.CANCELLED)


def test_one_file_that_can_not_be_written_costs_its_item_its_attempts_and_no_other(
    bench: Bench,
) -> None:
    bench.submit("One.")
    bench.submit("Another.", job="job_2")
    (bench.folder / "job_1").write_text("no folder at all")
    (item,) = bench.speak()
    assert (item.status, item.attempts) == (ItemStatus.FAILED, 3)
    assert item.error is not None
    assert item.error.code == "output_failed"
    (other,) = bench.store.items("job_2")
    assert (other.status, other.attempts) == (ItemStatus.SUCCEEDED, 1)


def test_what_is_spoken_while_redis_takes_no_writes_waits_to_be_recorded(
    own_valkey: Valkey, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.connect(own_valkey.url)
    client: Any = store._redis
    bench = Bench(store, own_valkey.url, tmp_path / "outputs")
    bench.submit("One.")
    bench.engine.meanwhile = lambda: client.config_set("maxmemory", 1)

    def let_write() -> None:
        wait_until(lambda: "Redis takes no writes" in caplog.text, what="a refusal")
        assert store.item("job_1", "row-000001").status is ItemStatus.IN_PROGRESS
        client.config_set("maxmemory", 0)

    with ThreadPoolExecutor(1) as other:
        told = other.submit(let_write)
        (outcome,) = bench.run(bench.start())
        told.result()
    item = store.item("job_1", "row-000001")
    assert (outcome.status, item.status, item.attempts) == ("succeeded", ItemStatus.SUCCEEDED, 1)
    store.close()


@pytest.mark.parametrize("text", ["One.", NEVER])
def test_whoever_lost_its_lease_says_that_the_item_waits_again(bench: Bench, text: str) -> None:
    bench.submit(text)
    bench.engine.meanwhile = lambda: bench.lose("c1")
    (outcome,) = bench.run(bench.start())
    assert (outcome.status, outcome.audio_path) == (ItemStatus.QUEUED, None)
    assert outcome.error is not None
    assert outcome.error["code"] == "worker_lost"
    assert list(bench.folder.rglob("*.wav")) == []


def test_whoever_was_overtaken_gives_the_path_that_the_record_has(bench: Bench) -> None:
    bench.submit("One.")
    digest = hashlib.sha256(b"RIFF").hexdigest()
    audio = ItemAudio("/out/other.wav", digest, 4, 1.5, 24000, 0.1, "tone", "1")

    def overtake() -> None:
        bench.lose("c1")
        task = bench.start("c2")
        bench.store.start_items(task, [0], 60)
        assert bench.store.succeed_item(task, 0, audio)

    bench.engine.meanwhile = overtake
    (outcome,) = bench.run(bench.start())
    assert outcome == Outcome(
        "job_1", "row-000001", ItemStatus.SUCCEEDED, "/out/other.wav", 1.5, 24000, digest
    )


def test_segments_are_halved_for_want_of_memory_in_this_run_alone(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    bench = Bench(store, redis_url, tmp_path, engine_options={"memory_characters": 1})
    bench.submit(LONG)
    runs = []
    for _ in range(2):
        bench.speak()
        runs.append(bench.engine.texts)
        bench.engine.texts = []
        assert store.retry("job_1").counts.queued == 1
    assert runs[0] == runs[1], "another run begins with segments of the usual length"
    assert store.item("job_1", "row-000001").attempts == 6
    longest = max(len(text) for text in runs[0])
    assert longest > 300
    assert {len(text) > longest / 2 for text in runs[0][1:]} == {False}

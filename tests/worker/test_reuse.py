"""What is to sound the same is spoken once, by a child's synthesis without its process."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.support import inputs
from tests.worker.bench import Bench
from voicemill.jobs import Item, ItemError, ItemStatus, JobStatus
from voicemill.reuse import marked
from voicemill.store import Spoken, Store
from worker import sharing
from worker.attempts import groups
from worker.cache import Cache
from worker.housekeeping import Housekeeper
from worker.reuse import pause_for
from worker.sweep import Sweep

FAILED = ItemError("synthesis_failed", "It failed.", True)


@pytest.fixture
def bench(store: Store, redis_url: str, tmp_path: Path) -> Bench:
    return Bench(store, redis_url, tmp_path / "outputs")


@pytest.fixture
def caching(store: Store, redis_url: str, tmp_path: Path) -> Bench:
    return Bench(store, redis_url, tmp_path / "outputs", cache_mb=1)


def path_of(item: Item) -> Path:
    assert item.audio is not None, item
    return Path(item.audio.audio_path)


def assert_whole(items: list[Item]) -> None:
    """Each succeeded with a file of its own that is as recorded and can be played."""
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    assert len({path_of(item) for item in items}) == len(items)
    for item in items:
        assert item.audio is not None
        data = path_of(item).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (
            item.audio.sha256,
            item.audio.size_bytes,
        )
        assert soundfile.info(path_of(item)).duration == item.audio.duration_seconds


def cached(items: list[Item]) -> list[bool]:
    return [item.cached for item in items]


# --- in a job -------------------------------------------------------------------


def test_identical_items_of_a_batch_and_of_many_are_spoken_once(bench: Bench) -> None:
    texts = [f"Line {n % 20}." for n in range(60)]
    items = bench.job(*texts)

    assert sorted(bench.engine.texts) == sorted(set(texts))
    assert_whole(items)
    assert cached(items) == [n >= 20 for n in range(60)]
    assert {(item.attempts, bool(item.task_id)) for item in items} == {(1, True)}
    assert [item.audio and item.audio.sha256 for item in items[:20]] == [
        item.audio and item.audio.sha256 for item in items[40:]
    ]
    assert all(path_of(items[n]).samefile(path_of(items[n % 20])) for n in range(60))
    job = bench.store.job("job_1")
    assert (job.status, job.counts.succeeded, job.counts.cached) == (JobStatus.COMPLETED, 60, 40)
    assert {item.audio.device_seconds for item in items[20:] if item.audio} == {0.0}
    spent = sum(item.audio.device_seconds for item in items if item.audio)
    assert job.device_seconds == pytest.approx(spent)


def test_another_voice_seed_or_format_is_spoken_for_itself(bench: Bench) -> None:
    plain = inputs(*["Hello."] * 5)
    items = [
        plain[0],
        replace(plain[1], voice="high"),
        replace(plain[2], seed=7),
        replace(plain[3], response_format="flac"),
        plain[4],
    ]
    bench.store.create_job("job_1", "ann", items, {})
    assert cached(bench.speak()) == [False] * 4 + [True]
    assert len(bench.engine.texts) == 4


def test_a_job_may_have_each_spoken(caching: Bench) -> None:
    assert cached(caching.job("One.", "One.", reuse=False)) == [False, False]
    assert cached(caching.job("One.", job="job_2")) == [False], "nor is it kept for others"
    assert caching.engine.texts == ["One."] * 3


def test_where_the_first_fails_one_more_is_spoken_and_shared(bench: Bench) -> None:
    once = bench.folder / "once"
    text = f"It fails {{tone:fail-once={once}}} once."
    bench.settings = replace(bench.settings, max_attempts=1)
    bench.synthesizer = bench.child()

    items = bench.job(text, text, text, text)

    assert items[0].error is not None
    assert (items[0].status, items[0].error.code) == (ItemStatus.FAILED, "synthesis_failed")
    assert_whole(items[1:])
    assert cached(items) == [False, False, True, True]
    assert len(bench.engine.texts) == 2


def test_each_fails_for_itself_where_the_engine_fails_now_and_then(bench: Bench) -> None:
    items = bench.job(*["{tone:fail} Never."] * 3, "Good.")
    assert [item.status for item in items[:3]] == [ItemStatus.FAILED] * 3
    assert [item.attempts for item in items] == [3, 3, 3, 1]
    assert bench.store.job("job_1").counts.cached == 0


def test_a_text_that_can_t_be_said_is_tried_twice_and_the_others_fail_unspoken(
    bench: Bench,
) -> None:
    plain = inputs(*["Hello."] * 5, "Good.")
    items = [replace(one, language="tlh" if one.text == "Hello." else None) for one in plain]
    bench.store.create_job("job_1", "ann", items, {})

    found = bench.speak()

    assert [item.status for item in found] == [ItemStatus.FAILED] * 5 + [ItemStatus.SUCCEEDED]
    errors = [item.error for item in found[:5] if item.error]
    assert len({error.code for error in errors}) == 1
    assert len({error.message for error in errors[:2]}) == 1
    assert {error.message for error in errors[2:]} == {
        f"Not spoken, as two items that are to sound the same have failed: {errors[0].message}"
    }


def test_a_text_that_kills_children_takes_the_attempts_of_two_items_and_the_others_fail_unspoken(
    bench: Bench,
) -> None:
    bench.engine.kills = True
    items = bench.job(*["Poison."] * 40)

    assert bench.engine.texts == ["Poison."] * 6
    assert {item.status for item in items} == {ItemStatus.FAILED}
    assert {item.error and item.error.code for item in items} == {"worker_lost"}
    assert sorted(item.attempts for item in items) == [1] * 38 + [3] * 2

    bench.engine.kills = False
    bench.store.retry("job_1")
    assert_whole(bench.speak())
    assert bench.engine.texts[6:] == ["Poison."], "another run hears it again"


def test_a_job_that_is_cancelled_half_way_has_given_what_was_spoken_to_most_that_share_it(
    bench: Bench,
) -> None:
    chance = random.Random(7)
    texts = [f"Line {n}." for n in range(60)]
    texts += chance.choices(texts, k=60)
    chance.shuffle(texts)
    bench.submit(*texts)
    while len(bench.engine.texts) < 30:
        bench.run(bench.start(batch_seconds=1e-6))
    bench.store.cancel("job_1")

    items = bench.store.items("job_1", limit=1000)

    spoken = {item.input.text for item in items if item.status is ItemStatus.SUCCEEDED}
    alike = [item for item in items if item.input.same_as is not None and item.input.text in spoken]
    assert len(spoken) == 30
    assert len(alike) > 20
    assert sum(item.cached for item in alike) > 0.9 * len(alike)


@pytest.mark.parametrize("damage", ["gone", "shorter", "other", "link", "folder"])
def test_a_file_that_is_not_as_recorded_is_not_shared(bench: Bench, damage: str) -> None:
    bench.submit("One.", "One.")
    bench.run(bench.start())
    first = path_of(bench.store.item("job_1", "row-000001"))
    whole = first.read_bytes()
    first.unlink()
    match damage:
        case "shorter":
            first.write_bytes(whole[:-1])
        case "other":
            first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        case "link":
            elsewhere = bench.folder / "elsewhere"
            elsewhere.write_bytes(whole)
            first.symlink_to(elsewhere)
        case "folder":
            first.mkdir()

    items = bench.speak()

    assert_whole(items[1:])
    assert cached(items) == [False, False]
    assert bench.engine.texts == ["One.", "One."]


@contextmanager
def unreadable(path: Path, code: int) -> Iterator[None]:
    """While the system can't open this file, under any of its names."""
    broken, real = path.stat().st_ino, os.open

    def refused(name: str | Path, flags: int, *args: int, **kwargs: int) -> int:
        descriptor = real(name, flags, *args, **kwargs)
        if os.fstat(descriptor).st_ino == broken:
            os.close(descriptor)
            raise OSError(code, os.strerror(code), str(name))
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.sharing.os.open", refused)
        yield


UNREADABLE = [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EACCES]


@pytest.mark.parametrize("code", UNREADABLE)
def test_what_can_not_be_read_now_is_spoken_again_and_the_log_says_so(
    bench: Bench, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench.submit("One.", "One.")
    bench.run(bench.start())
    first = path_of(bench.store.item("job_1", "row-000001"))
    with unreadable(first, code):
        items = bench.speak()

    assert_whole(items)
    assert cached(items) == [False, False]
    assert bench.engine.texts == ["One.", "One."]
    assert f"can't be read now: {os.strerror(code)}." in caplog.text


@pytest.mark.parametrize("code", UNREADABLE)
def test_what_can_not_be_read_now_stays_in_the_cache_and_is_shared_later(
    caching: Bench, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caching.job("One.")
    (entry,) = (caching.folder / ".cache").rglob("*.wav")
    with unreadable(entry, code):
        spoken = caching.job("One.", job="job_2")
        assert entry.exists()

    shared = caching.job("One.", job="job_3")

    assert_whole(spoken + shared)
    assert (cached(spoken), cached(shared)) == ([False], [True])
    assert path_of(shared[0]).samefile(entry)
    assert f"can't be read now: {os.strerror(code)}." in caplog.text


@pytest.mark.parametrize("code", UNREADABLE)
def test_a_shelf_that_can_not_be_read_now_loses_nothing(
    caching: Bench, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caching.job("One.")
    (entry,) = (caching.folder / ".cache").rglob("*.wav")

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.cache.os.scandir", refused)
        spoken = caching.job("One.", job="job_2")
        Cache(caching.folder).trim(0)

    assert_whole(spoken)
    assert (cached(spoken), entry.exists()) == ([False], True)
    assert os.strerror(code) in caplog.text
    assert cached(caching.job("One.", job="job_3")) == [True]


def test_thousands_of_the_same_text_are_not_read_for_each(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []
    real = sharing.blocks_of
    monkeypatch.setattr(sharing, "blocks_of", lambda path: reads.append(path) or real(path))
    bench.submit(*["One."] * 150)
    bench.run(bench.start())
    first = path_of(bench.store.item("job_1", "row-000001"))
    os.utime(first, (0, 0))
    reads.clear()

    items = bench.speak()

    assert cached(items) == [False] + [True] * 149
    assert len(reads) == 1
    assert_whole(items)


def test_what_another_model_spoke_is_spoken_again(bench: Bench) -> None:
    bench.submit(*["One."] * 4)
    bench.run(bench.start())
    bench.synthesizer = bench.child("2")
    items = bench.speak()
    assert cached(items) == [False, True, False, True], "of the new model there is one now"
    revisions = [item.audio.model_revision for item in items if item.audio]
    assert revisions == ["1", "1", "2", "2"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP])
def test_where_no_link_can_be_made_the_audio_is_copied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    bench.submit("One.", "One.")
    bench.run(bench.start())

    def link(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("voicemill.outputs.os.link", link)
    items = bench.speak()
    assert_whole(items)
    assert cached(items) == [False, True]
    assert not path_of(items[0]).samefile(path_of(items[1]))
    assert list(bench.folder.rglob("*.tmp")) == []


def test_an_item_that_another_child_speaks_is_waited_for_and_no_slot_is_held(
    bench: Bench,
) -> None:
    bench.submit("One.", "One.")
    first = bench.start("c1")
    assert bench.store.start_items(first, [0], 60) == {0: 1}

    bench.run(bench.start("c2"))

    assert bench.engine.texts == []
    second = bench.store.item("job_1", "row-000002")
    assert (second.status, second.attempts, second.error) == (ItemStatus.QUEUED, 0, None)
    assert bench.store.snapshot().queued == {"tone": 1}
    ((_, due),) = bench.end_pauses()
    assert 0 < due - bench.store.snapshot().at <= 0.5
    bench.store.fail_item(first, 0, FAILED, max_attempts=1)
    bench.store.end_task(first, max_attempts=1)

    items = bench.speak()

    assert bench.engine.texts == ["One."], "the other one failed"
    assert [item.status for item in items] == [ItemStatus.FAILED, ItemStatus.SUCCEEDED]
    assert (items[1].attempts, items[1].cached) == (1, False)


@pytest.mark.parametrize(
    ("spoken", "pause"),
    [
        (None, None),
        (Spoken(0), None),
        (Spoken(0, pending_seconds=0.0), 0.5),
        (Spoken(0, pending_seconds=7.0), 7.0),
        (Spoken(0, pending_seconds=900.0), 30.0),
    ],
)
def test_the_longer_one_takes_the_less_often_it_is_looked_at(
    spoken: Spoken | None, pause: float | None
) -> None:
    assert pause_for(spoken) == pause


def test_a_cancelled_job_keeps_no_file_that_was_shared_too_late(bench: Bench) -> None:
    bench.submit("One.", "One.")
    bench.run(bench.start())
    task = bench.start()
    store = bench.store
    share = store.share_item

    def share_late(*args: Any) -> Any:
        found = share(*args)
        store.cancel("job_1")
        return found

    store.share_item = share_late  # type: ignore[method-assign]
    bench.run(task)

    assert store.item("job_1", "row-000002").status is ItemStatus.CANCELLED
    (kept,) = bench.folder.rglob("*.wav")
    assert kept == path_of(store.item("job_1", "row-000001"))


def test_an_empty_mount_point_gets_no_link(bench: Bench) -> None:
    bench.submit("One.", "One.")
    bench.run(bench.start())
    bench.folder.rename(bench.folder.with_name("unmounted"))
    bench.folder.mkdir()

    bench.run(bench.start())

    assert list(bench.folder.iterdir()) == []
    item = bench.store.item("job_1", "row-000002")
    assert (item.status, item.attempts) == (ItemStatus.QUEUED, 0)
    assert item.error is not None
    assert item.error.code == "output_missing"


def test_what_comes_again_comes_last_and_one_by_one() -> None:
    items = list(marked(inputs("a", "b", "a", "a", "c")))
    assert [[one.index for one in group] for group in groups(items, 8)] == [[0, 1, 4], [2], [3]]


# --- across jobs ----------------------------------------------------------------


def test_another_job_of_the_tenant_shares_what_was_kept(caching: Bench) -> None:
    first = caching.job("One.", "Two.")
    second = caching.job("Two.", "One.", "Three.", "One.", job="job_2")

    assert_whole(first + second)
    assert cached(second) == [True, True, False, True]
    assert caching.engine.texts == ["One.", "Two.", "Three."]
    assert [path_of(item).parts[-3] for item in second] == ["job_2"] * 4
    job = caching.store.job("job_2")
    assert (job.counts.cached, job.counts.succeeded) == (3, 4)
    (spoken,) = [item.audio for item in second if not item.cached]
    assert spoken is not None
    assert job.device_seconds == pytest.approx(spoken.device_seconds)


def test_no_other_tenant_does(caching: Bench) -> None:
    caching.job("One.")
    assert cached(caching.job("One.", job="job_2", tenant="bob")) == [False]
    assert cached(caching.job("One.", job="job_3", tenant="bob")) == [True]


def test_nothing_is_kept_unless_it_is_asked_for(bench: Bench) -> None:
    bench.job("One.")
    assert cached(bench.job("One.", job="job_2")) == [False]
    assert not (bench.folder / ".cache").exists()


def test_other_options_of_the_engine_or_another_model_are_spoken_anew(caching: Bench) -> None:
    caching.job("One.")
    caching.synthesizer = caching.child("2")
    assert cached(caching.job("One.", job="job_2")) == [False]
    caching.settings = replace(caching.settings, engine_options={"slow_factor": 1.0})
    caching.synthesizer = caching.child("2")
    assert cached(caching.job("One.", job="job_3")) == [False]


def test_what_is_damaged_in_the_cache_is_spoken_anew_and_goes(caching: Bench) -> None:
    caching.job("One.")
    (entry,) = (caching.folder / ".cache").rglob("*.wav")
    data = entry.read_bytes()
    entry.unlink()
    entry.write_bytes(data[:-2])

    items = caching.job("One.", job="job_2")

    assert_whole(items)
    assert cached(items) == [False]
    assert entry.read_bytes() == data, "what was spoken now is kept in its place"


def test_a_deleted_job_leaves_nothing_in_the_cache_and_others_keep_theirs(caching: Bench) -> None:
    store = caching.store
    caching.job("One.", "Two.")
    shared = caching.job("Two.", job="job_2")
    store.delete("job_1")
    Housekeeper(store, caching.settings).tick()

    assert not (caching.folder / "job_1").exists()
    assert len(list((caching.folder / ".cache").rglob("*.wav"))) == 1
    assert_whole(shared)
    assert cached(caching.job("Two.", "One.", job="job_3")) == [True, False]


@pytest.mark.parametrize("limit", [0, 1])
def test_the_clerk_keeps_the_cache_to_its_size_and_no_job_loses_a_file(
    caching: Bench, limit: int
) -> None:
    items = caching.job("One.", "A longer one, of which there is more to hear. " * 10)
    sizes = [item.audio.size_bytes for item in items if item.audio]
    assert min(sizes) < 2**20 < sum(sizes)
    settings = replace(caching.settings, cache_mb=limit)
    Housekeeper(caching.store, settings).tick()

    kept = [path.stat().st_size for path in (caching.folder / ".cache").rglob("*.wav")]
    assert sum(kept) <= limit * 2**20
    assert bool(kept) is bool(limit)
    assert_whole(items)


def test_the_sweep_takes_nothing_out_of_the_cache_nor_out_of_jobs_that_share(
    caching: Bench,
) -> None:
    items = caching.job("One.", "One.", "Two.")
    items += caching.job("One.", job="job_2")
    for path in caching.folder.rglob("*.wav"):
        os.utime(path, (0, 0))
    assert Sweep(caching.store, caching.folder, 60).step() == 0
    assert_whole(items)
    assert len(list((caching.folder / ".cache").rglob("*.wav"))) == 2

"""What the clerk removes, and what it never touches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.costs import CostModel
from voicemill.errors import DataRemovedError
from voicemill.jobs import ItemAudio, ItemError, JobRules, JobStatus
from voicemill.outputs import audio_path, remove_job, write_audio
from voicemill.settings import Settings
from voicemill.storage import MARKER
from voicemill.store import StartedTask, Store
from voicemill.store.removal import Attempted
from voicemill.workers import ChildRecord
from worker.housekeeping import Housekeeper
from worker.sweep import Sweep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


@pytest.fixture
def housekeeper(store: Store, redis_url: str, folder: Path) -> Housekeeper:
    store.publish_engine(TONE)
    settings = Settings(redis_url=redis_url, output_dir=folder, sweep_seconds=60)
    return Housekeeper(store, settings)


def spoken(folder: Path, job_id: str, index: int = 0) -> Path:
    path = audio_path(folder, job_id, index, f"row-{index + 1:06d}", 1, "ab12", "wav")
    return write_audio(path, b"RIFF").path


def test_a_deleted_job_loses_its_files_and_no_other_does(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    for job_id in ("job_1", "job_2"):
        store.create_job(job_id, "default", inputs("a", "b"), {})
        store.cancel(job_id)
        spoken(folder, job_id)
        spoken(folder, job_id, 1000)
    store.delete("job_1")

    housekeeper.tick()

    assert not (folder / "job_1").exists()
    assert sum(path.is_file() for path in (folder / "job_2").rglob("*")) == 2
    assert store.removals() == []
    assert store.job("job_2").status is JobStatus.CANCELLED


def test_files_that_cannot_be_removed_keep_the_job_to_be_removed(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    (folder / "job_1").write_text("no folder at all")

    housekeeper.tick()
    assert store.removals() == ["job_1"]
    (folder / "job_1").unlink()
    housekeeper.tick()

    assert store.removals() == []


def test_many_jobs_that_cannot_be_removed_keep_no_other_from_it(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    stuck = {f"job_{number}" for number in range(10)}
    stuck_expired = {f"old_{number}" for number in range(10)}
    for job_id in (*sorted(stuck), "job_x"):
        store.create_job(job_id, "default", inputs("a"), {})
        store.delete(job_id, cancel=True)
    for job_id in (*sorted(stuck_expired), "old_x"):
        ended(store, job_id, output_expires_after=0.001)
    for job_id in stuck | stuck_expired:
        (folder / job_id).write_text("no folder at all")
    for job_id in ("job_x", "old_x"):
        spoken(folder, job_id)

    for _ in range(2):
        housekeeper.tick()

    assert not any((folder / job_id).exists() for job_id in ("job_x", "old_x"))
    assert set(store.removals(limit=100)) == stuck
    assert set(store.expired_outputs(limit=100)) == stuck_expired


def test_a_clerk_whose_clock_is_ahead_sweeps_nothing_that_is_new(
    store: Store, housekeeper: Housekeeper, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    draft = spoken(folder, "job_1").with_name(".000000-row-000001.1-ab12.wav.x.tmp")
    draft.write_bytes(b"RIFF")
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 7200)

    housekeeper.tick()
    assert draft.exists()
    os.utime(draft, (0, 0))
    Sweep(store, folder, 60).step()

    assert not draft.exists()


def test_a_link_in_place_of_a_job_is_removed_and_not_followed(tmp_path: Path, folder: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (folder / "job_1").symlink_to(elsewhere)
    (folder / "job_2").mkdir()
    (folder / "job_2" / "0000").symlink_to(elsewhere)

    remove_job(folder, "job_1")
    remove_job(folder, "job_2")

    assert list(folder.iterdir()) == []
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "/etc", "x" * 65, "job\n"])
def test_no_name_of_a_job_leads_out_of_the_folder(folder: Path, name: str) -> None:
    (folder / "job_1").mkdir()
    with pytest.raises(OSError, match="no name of a job's folder"):
        remove_job(folder, name)
    assert (folder / "job_1").exists()


def test_deleted_texts_leave_the_append_only_file_when_it_is_rewritten(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    client: Any = store._redis
    assert not store.rewrite_append_only_file()
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    store.purge("job_1")
    assert not store.rewrite_append_only_file(), "not yet due"
    rewrites = client.info("stats").get("total_forks", 0)
    client.set("voicemill:rewrite_at", 1)

    assert store.rewrite_append_only_file()

    assert client.info("stats")["total_forks"] == rewrites + 1
    assert not store.rewrite_append_only_file(), "once"
    store.close()


def test_a_rewrite_that_can_not_begin_when_it_is_due_stays_due(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    client: Any = store._redis

    def is_rewritten() -> bool:
        return not client.info("persistence")["aof_rewrite_in_progress"]

    client.config_set("rdb-key-save-delay", 100_000)
    client.mset({f"filler:{number}": number for number in range(5)})
    client.set("voicemill:rewrite_at", 1)
    client.bgrewriteaof()
    assert not store.rewrite_append_only_file(), "another is being written, which began before"
    wait_until(is_rewritten, what="the end of the other")
    assert store.rewrite_append_only_file()
    client.config_set("rdb-key-save-delay", 0)
    store.close()


# --- retention ------------------------------------------------------------------


def ended(store: Store, job_id: str, **rules: float) -> None:
    """A job of 150 items that has ended."""
    rule = JobRules(**rules)
    store.create_job(job_id, "default", inputs(*["A secret."] * 150), {"book": "x"}, rules=rule)
    store.cancel(job_id)


def test_expired_audio_and_texts_are_removed_and_the_record_stays(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    client: Any = store._redis
    ended(store, "job_1", output_expires_after=0.01)
    ended(store, "job_2", output_expires_after=1000)
    ended(store, "job_3")
    for job_id in ("job_1", "job_2", "job_3"):
        spoken(folder, job_id)
    kept_until = store.job("job_1").output_expires_at
    assert kept_until is not None
    wait_until(lambda: store.snapshot().at > kept_until)

    housekeeper.tick()

    job = store.job("job_1")
    assert (job.data_removed, job.status, job.metadata) == (
        True,
        JobStatus.CANCELLED,
        {"book": "x"},
    )
    items = store.items("job_1", limit=1000)
    assert {item.input.text for item in items} == {""}
    assert [item.input.custom_id for item in items][-1] == "row-000150"
    assert not (folder / "job_1").exists()
    assert client.exists("voicemill:rewrite_at")
    for job_id in ("job_2", "job_3"):
        assert not store.job(job_id).data_removed
        assert (folder / job_id).exists()
        assert store.item(job_id, "row-000001").input.text == "A secret."
    assert store.job("job_3").output_expires_at is None
    assert store.expired_outputs() == []


def test_a_removal_that_stopped_half_way_goes_on(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    ended(store, "job_1", output_expires_after=0.01)
    wait_until(lambda: store.expired_outputs() == ["job_1"])
    spoken(folder, "job_1")
    assert store.job("job_1").data_removed, "it reads as removed before the first file is"

    housekeeper.tick()

    assert store.expired_outputs() == []
    assert not (folder / "job_1").exists()


def test_what_was_removed_can_not_run_again(store: Store, housekeeper: Housekeeper) -> None:
    ended(store, "job_1", output_expires_after=0.01)
    wait_until(lambda: store.expired_outputs() == ["job_1"])
    with pytest.raises(DataRemovedError):
        store.retry("job_1")


def test_a_deleted_job_that_had_expired_is_gone(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    ended(store, "job_1", output_expires_after=0.01)
    wait_until(lambda: store.expired_outputs() == ["job_1"])
    store.delete("job_1")
    housekeeper.tick()
    assert (store.removals(), store.expired_outputs()) == ([], [])


# --- the sweep ------------------------------------------------------------------


def old(path: Path, seconds: float = 120) -> Path:
    """The same file, as if it had been written so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    at = time.time() - seconds
    os.utime(path, (at, at))
    return path


def speaking(store: Store) -> StartedTask:
    """A task with three items in hand."""
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job("job_1", "default", inputs(*"abcdef"), {})
    (admitted,) = store.admit("tone", CostModel(1.0, 0.0), 100.0, most=1)
    task = store.start_task(admitted.id, "c1", 60)
    assert task is not None
    assert store.start_items(task, [0, 1, 2], 60) == {0: 1, 1: 1, 2: 1}
    return task


def test_only_old_files_of_ours_that_no_record_points_to_are_swept(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    task = speaking(store)
    group = folder / "job_1" / "0000"
    published = old(group / "000000-row-000001.1-0b0b0b0b.wav")
    audio = ItemAudio(f"/other/mount/{published.name}", "ab" * 32, 4, 1.0, 24000, 0.1, "tone", "1")
    assert store.succeed_item(task, 0, audio)
    store.fail_item(task, 2, ItemError("synthesis_failed", "No.", True), max_attempts=3)
    kept = [
        published,
        old(group / "000001-row-000002.1-3fa9c2d1.wav"),  # being written
        old(group / "notes.txt"),
        old(group / "000003-young.1.wav", seconds=0),
        old(folder / "job_9" / "0000" / "000000-of-another-store.1.wav"),
        old(folder / "notes" / "0000" / "000000-a.1.wav"),
        old(folder / "a file"),
    ]
    swept = [
        old(group / "000000-row-000001.1-3fa9c2d1.wav"),  # of a lease that was lost
        old(group / "000001-row-000002.0-3fa9c2d1.wav"),
        old(group / "000002-row-000003.1-3fa9c2d1.wav"),  # its attempt failed
        old(group / "000004-never-begun.1-3fa9c2d1.flac"),
        old(group / ".000001-row-000002.1-3fa9c2d1.wav.a1b2c3d4.tmp"),
        old(folder / ".voicemill.a1b2c3d4.tmp"),
    ]

    housekeeper.tick()

    assert [path for path in kept if not path.exists()] == []
    assert [path for path in swept if path.exists()] == []


def test_the_sweep_follows_no_link(
    store: Store, housekeeper: Housekeeper, folder: Path, tmp_path: Path
) -> None:
    speaking(store)
    elsewhere = tmp_path / "elsewhere"
    precious = old(elsewhere / "0000" / "000004-never-begun.1.wav")
    group = folder / "job_1" / "0000"
    group.mkdir(parents=True)
    link = group / "000005-a-link.1.wav"
    link.symlink_to(precious)
    (folder / "job_1" / "0001").symlink_to(elsewhere / "0000")
    store.create_job("job_2", "default", inputs("a"), {})
    (folder / "job_2").symlink_to(elsewhere)

    housekeeper.tick()

    assert precious.exists()
    assert link.is_symlink()


def test_what_a_frozen_writer_makes_of_a_deleted_job_is_removed(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    housekeeper.tick()
    spoken(folder, "job_1")

    Sweep(store, folder, 60).step()

    assert not (folder / "job_1").exists()


LATE_WRITER = """
import os, signal, sys
from pathlib import Path
from voicemill.outputs import audio_path, drafted, joined_path
folder = Path(sys.argv[1])
what = sys.argv[2]
if what == "joined":
    path = joined_path(folder, "job_1", 1, "wav")
else:
    path = audio_path(folder, "job_1", 0, "row-000001", 1, "ab12", "wav")
os.kill(os.getpid(), signal.SIGSTOP)
with drafted(path) as file:
    file.write(b"RIFF")
    if what == "half":
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Wakes up after the end of its job, writes, and dies before it can hear that it came too late."""


class LateWriter:
    """A process that is frozen from the start."""

    def __init__(self, folder: Path, what: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", LATE_WRITER, str(folder), what])
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        assert self._process.wait(10) == -signal.SIGKILL

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != MARKER]


def delete_job(store: Store) -> None:
    store.cancel("job_1")
    store.delete("job_1")


def expire_job(store: Store) -> None:
    store.cancel("job_1")
    client: Any = store._redis
    client.zadd("voicemill:expiries", {"job_1": 0})


def expire_and_delete_job(store: Store) -> None:
    expire_job(store)
    assert store.expired_outputs() == ["job_1"]
    store.delete("job_1")


@pytest.mark.parametrize("what", ["item", "half", "joined"])
@pytest.mark.parametrize("end", [delete_job, expire_job, expire_and_delete_job])
@pytest.mark.parametrize(
    "purged", [True, False], ids=["removed, late write", "late write, removed"]
)
def test_no_file_of_a_late_writer_stays_whatever_the_order(
    store: Store,
    housekeeper: Housekeeper,
    folder: Path,
    what: str,
    end: Callable[[Store], None],
    purged: bool,
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    store.create_job("job_2", "default", inputs("a"), {})
    spoken(folder, "job_1")
    theirs = spoken(folder, "job_2")
    writer = LateWriter(folder, what)
    try:
        end(store)
        if purged:
            housekeeper.tick()
            assert files_in(folder) == [theirs]
        writer.wake()
        assert len(files_in(folder)) > 1, "it did write"
    finally:
        writer.end()

    if not purged:
        housekeeper.tick()
    Sweep(store, folder, 60).step()

    assert files_in(folder) == [theirs]


def test_a_sweep_asks_for_a_thousand_files_at_a_time_and_leaves_none(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.sweep.PAGE_FILES", 3)
    store.create_job("job_1", "default", inputs(*"abcd"), {})
    for index in range(4):
        for attempt in range(1, 3):
            old(folder / "job_1" / "0000" / f"{index:06d}-a.{attempt}-ab12ab12.wav")
    asked: list[int] = []
    real = store.attempted

    def attempted(job_id: str, indexes: Sequence[int]) -> list[Attempted]:
        asked.append(len(indexes))
        return real(job_id, indexes)

    monkeypatch.setattr(store, "attempted", attempted)
    assert Sweep(store, folder, 60).step() == 8
    assert asked == [3, 3, 2]


def test_a_sweep_goes_through_more_jobs_than_it_has_at_hand(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.sweep.MOST_JOBS", 2)
    for number in range(5):
        store.create_job(f"job_{number}", "default", inputs("a"), {})
        old(folder / f"job_{number}" / "0000" / "000000-a.1.wav")
    assert Sweep(store, folder, 60).step() == 5
    assert store.swept() is None
    sweep = Sweep(store, folder, 60)
    for number in range(5):
        old(folder / f"job_{number}" / "0000" / "000000-a.1.wav")
        sweep.step(0.0)
    assert sweep.step() == 5, "a step of no time does nothing"


def test_a_sweep_is_taken_up_where_it_stopped(store: Store, folder: Path) -> None:
    files = []
    for number in range(4):
        store.create_job(f"job_{number}", "default", inputs("a"), {})
        files.append(old(folder / f"job_{number}" / "0000" / "000000-a.1.wav"))
    store.note_swept("job_1")

    assert Sweep(store, folder, 60).step() == 2

    assert [file.exists() for file in files] == [True, True, False, False]
    assert store.swept() is None
    again = Sweep(store, folder, 60)
    assert (again.step(), again.step()) == (2, 0)
    old(files[0])
    assert again.step() == 0, "it rests after a whole round"


def test_nothing_is_removed_from_a_folder_that_is_not_ours(
    store: Store, housekeeper: Housekeeper, folder: Path, tmp_path: Path
) -> None:
    housekeeper.tick()
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    folder.rename(tmp_path / "unmounted")
    theirs = old(folder / "job_1" / "0000" / "000000-a.1.wav")

    housekeeper.tick()

    assert theirs.exists()
    assert store.removals() == ["job_1"], "its own files may come back"


@pytest.mark.full
def test_a_clerk_stops_jobs_at_their_deadline_and_removes_what_was_deleted(
    store: Store, redis_url: str, folder: Path
) -> None:
    store.publish_engine(TONE)
    store.create_job("job_1", "default", inputs("a"), {}, rules=JobRules(deadline_seconds=0.01))
    store.create_job("job_2", "default", inputs("a"), {})
    store.delete("job_2", cancel=True)
    spoken(folder, "job_2")
    clerk = subprocess.Popen(
        [sys.executable, "-m", "worker.clerk"],
        cwd=Path(__file__).resolve().parents[2],
        env={
            **os.environ,
            "VOICEMILL_REDIS_URL": redis_url,
            "VOICEMILL_OUTPUT_DIR": str(folder),
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: store.job("job_1").status is JobStatus.EXPIRED, what="the deadline")
        wait_until(lambda: not (folder / "job_2").exists(), what="the end of the files")
        wait_until(lambda: store.was_removed("job_2"), what="the end of the record")
    finally:
        clerk.terminate()
        assert clerk.wait(10) == 0

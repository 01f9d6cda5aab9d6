"""A clerk joins the audio of a job, whatever happens meanwhile."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.small_disk import run_on_small_disk
from tests.support import Valkey, wait_until
from tests.worker.spoken import RATE, samples_of, speak, submit
from tests.worker.test_housekeeping import old
from voicemill.jobs import ItemError, Job, JobAudio, JobStatus
from voicemill.settings import Settings
from voicemill.storage import MARKER
from voicemill.store import Join, Store
from worker import joining
from worker.finalizing import Finalizer
from worker.housekeeping import Housekeeper

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


@pytest.fixture
def settings(redis_url: str, folder: Path) -> Settings:
    return Settings(
        redis_url=redis_url,
        output_dir=folder,
        free_space_floor_mb=0,
        sweep_seconds=60,
        retry_seconds=None,
    )


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def finalizer(store: Store, settings: Settings, stopping: threading.Event) -> Finalizer:
    return Finalizer(store, settings, stopping)


def audio_of(job: Job) -> JobAudio:
    """The one file of a job, which is as its record says."""
    assert job.status is JobStatus.COMPLETED
    assert job.concatenation is not None
    audio = job.concatenation.audio
    assert audio is not None, job.concatenation.error
    path = Path(audio.audio_path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == audio.sha256
    assert path.stat().st_size == audio.size_bytes
    assert soundfile.info(path).frames == round(audio.duration_seconds * audio.sample_rate)
    return audio


def error_of(job: Job) -> ItemError:
    assert job.status is JobStatus.COMPLETED
    assert job.concatenation is not None
    assert job.concatenation.audio is None
    assert job.concatenation.error is not None
    return job.concatenation.error


def files_of(folder: Path, job_id: str) -> list[str]:
    """Names of what lies in a job's folder, beside its items' audio."""
    return sorted(path.name for path in (folder / job_id).iterdir() if path.is_file())


def test_what_succeeded_is_joined_in_order_and_the_rest_is_counted(
    store: Store, finalizer: Finalizer, folder: Path
) -> None:
    submit(store, "job_1", 12, silence_ms=100)
    speak(store, folder, failing={0, 5, 11})

    assert finalizer.tick()

    audio = audio_of(store.job("job_1"))
    assert audio.audio_path == str(folder / "job_1" / "audio.1.wav")
    assert (audio.items_left_out, audio.sample_rate, audio.response_format) == (3, RATE, "wav")
    gap = np.zeros(RATE // 10)
    wanted = [samples_of(1)]
    for index in (2, 3, 4, 6, 7, 8, 9, 10):
        wanted += [gap, samples_of(index)]
    whole, _ = soundfile.read(audio.audio_path)
    assert np.abs(whole - np.concatenate(wanted)).max() <= 1 / 32768
    assert files_of(folder, "job_1") == ["audio.1.wav"]
    assert not finalizer.tick()


def test_items_of_many_pages_are_all_joined(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.finalizing.PAGE_ITEMS", 2)
    submit(store, "job_1", 5)
    speak(store, folder)
    finalizer.tick()
    audio = audio_of(store.job("job_1"))
    assert audio.duration_seconds * RATE == sum(samples_of(index).size for index in range(5))


def test_a_retry_takes_the_place_of_the_audio_and_the_old_file_is_swept(
    store: Store, finalizer: Finalizer, settings: Settings, folder: Path
) -> None:
    submit(store, "job_1", 4)
    speak(store, folder, failing={2})
    finalizer.tick()
    first = audio_of(store.job("job_1"))
    store.retry("job_1")
    speak(store, folder)
    assert Path(first.audio_path).exists(), "until there is another"

    finalizer.tick()

    last = audio_of(store.job("job_1"))
    assert (last.audio_path, last.items_left_out) == (str(folder / "job_1" / "audio.2.wav"), 0)
    for name in ("audio.1.wav", "audio.2.wav", "audio.9.wav", ".audio.1.wav.x1.tmp", "notes.txt"):
        old(folder / "job_1" / name)
    Housekeeper(store, settings).tick()
    assert files_of(folder, "job_1") == ["audio.2.wav", "notes.txt"]
    assert audio_of(store.job("job_1")) == last
    assert len(list((folder / "job_1" / "0000").iterdir())) == 4


def test_a_file_that_may_yet_be_published_is_not_swept(
    store: Store, settings: Settings, folder: Path
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    for _ in range(2):
        wait_until(lambda: store.take_finalizing(0.0) is not None)
    for number in (1, 2):
        old(folder / "job_1" / f"audio.{number}.wav")
    Housekeeper(store, settings).tick()
    assert files_of(folder, "job_1") == ["audio.2.wav"]


def test_a_deleted_job_loses_its_audio_too(
    store: Store, finalizer: Finalizer, settings: Settings, folder: Path
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    finalizer.tick()
    store.delete("job_1")
    Housekeeper(store, settings).tick()
    assert not (folder / "job_1").exists()


def test_items_of_different_rates_are_an_error_by_name_and_the_job_ends(
    store: Store, finalizer: Finalizer, folder: Path
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder, failing={0})
    finalizer.tick()
    store.retry("job_1")
    speak(store, folder, rate=2 * RATE)
    assert finalizer.tick()
    assert error_of(store.job("job_1")).code == "mixed_sample_rates"
    assert store.job("job_1").counts.succeeded == 2


def test_an_item_s_missing_file_is_an_error_by_name_and_the_job_ends(
    store: Store, finalizer: Finalizer, folder: Path
) -> None:
    submit(store, "job_1", 3)
    speak(store, folder)
    audio = store.item("job_1", "row-000002").audio
    assert audio is not None
    Path(audio.audio_path).unlink()
    finalizer.tick()
    assert error_of(store.job("job_1")).code == "audio_gone"
    assert files_of(folder, "job_1") == []


def test_a_folder_that_is_not_mounted_is_waited_for(
    store: Store,
    finalizer: Finalizer,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.finalizing.TROUBLE_SECONDS", 0.1)
    submit(store, "job_1", 3)
    speak(store, folder)
    submit(store, "job_2", 1)
    speak(store, folder)
    finalizer.tick()
    folder.rename(tmp_path / "unmounted")
    folder.mkdir()

    finalizer.tick()

    job = store.job("job_2")
    assert (job.status, job.trouble) == (JobStatus.FINALIZING, "output_missing")
    assert list(folder.iterdir()) == []
    folder.rmdir()
    (tmp_path / "unmounted").rename(folder)

    def ended() -> bool:
        finalizer.tick()
        return store.job("job_2").status is JobStatus.COMPLETED

    wait_until(ended, what="the end of the job")
    audio_of(store.job("job_2"))


def due_in(store: Store, job_id: str) -> float:
    """Seconds until a job of the default tenant is looked at again."""
    redis: Any = store._redis
    return float(redis.zscore("voicemill:finalizing:default", job_id)) - store.snapshot().at


def make_due(store: Store, job_id: str) -> None:
    redis: Any = store._redis
    redis.zadd("voicemill:finalizing:default", {job_id: 0}, xx=True)
    redis.zadd("voicemill:finalizing", {"default": 0}, xx=True)


def test_a_job_that_waits_for_room_is_looked_at_less_and_less_often(
    store: Store, settings: Settings, folder: Path, stopping: threading.Event
) -> None:
    submit(store, "job_1", 1)
    speak(store, folder)
    full = dataclasses.replace(settings, free_space_floor_mb=10**9)
    pauses = []
    for _ in range(8):
        make_due(store, "job_1")
        # Each time another clerk: none of them remembers.
        assert Finalizer(store, full, stopping).tick()
        pauses.append(due_in(store, "job_1"))
        assert store.job("job_1").trouble == "disk_full"
    assert pauses == [pytest.approx(most, abs=0.5) for most in (2, 4, 8, 16, 32, 60, 60, 60)]

    make_due(store, "job_1")
    assert Finalizer(store, settings, stopping).tick()
    audio_of(store.job("job_1"))


def test_who_finds_no_room_in_the_middle_waits_longer_each_time(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "job_1", 1)
    speak(store, folder)

    def fail(*args: Any) -> None:
        args[-1]()  # it goes on for a while
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(joining, "join_files", fail)
    pauses = []
    for _ in range(3):
        make_due(store, "job_1")
        assert finalizer.tick()
        pauses.append(due_in(store, "job_1"))
    assert pauses == [pytest.approx(most, abs=0.5) for most in (2, 4, 8)]
    assert files_of(folder, "job_1") == []


def test_a_cancel_ends_a_job_that_would_wait_for_room_for_ever(
    store: Store, settings: Settings, folder: Path, stopping: threading.Event
) -> None:
    submit(store, "job_1", 1)
    speak(store, folder)
    full = Finalizer(store, dataclasses.replace(settings, free_space_floor_mb=10**9), stopping)
    assert full.tick()

    assert error_of(store.cancel("job_1")).code == "disk_full"

    assert not full.tick()
    assert store.item("job_1", "row-000001").audio is not None


def test_a_cancel_while_a_join_runs_ends_the_job_at_once_and_the_clerk_gives_up(
    store: Store, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "job_1", 3)
    speak(store, folder)
    real = joining.blocks_of
    read: list[str] = []

    def blocks_of(part: joining.Part) -> Iterator[joining.Block]:
        read.append(part.custom_id)
        if len(read) == 2:
            assert error_of(store.cancel("job_1")).code == "concatenation_cancelled"
        yield from real(part)

    monkeypatch.setattr(joining, "blocks_of", blocks_of)
    finalizer = Finalizer(
        store, dataclasses.replace(settings, lease_seconds=0.0), threading.Event()
    )
    assert finalizer.tick()

    assert len(read) == 2, "it stopped as soon as it heard of it"
    assert error_of(store.job("job_1")).code == "concatenation_cancelled"
    assert files_of(folder, "job_1") == []
    assert len(list((folder / "job_1" / "0000").iterdir())) == 3


def test_a_cancel_that_comes_as_a_join_is_done_leaves_no_file(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    real = joining.join_files

    def join_and_cancel(*args: Any) -> joining.Joined:
        joined = real(*args)
        store.cancel("job_1")
        return joined

    monkeypatch.setattr(joining, "join_files", join_and_cancel)
    assert finalizer.tick()
    assert error_of(store.job("job_1")).code == "concatenation_cancelled"
    assert files_of(folder, "job_1") == []


def test_what_fails_again_and_again_ends_with_its_error(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []

    def fail(*_: object) -> None:
        tries.append(None)
        raise ZeroDivisionError

    monkeypatch.setattr(joining, "join_files", fail)
    submit(store, "job_1", 1)
    speak(store, folder)

    def ended() -> bool:
        finalizer.tick()
        return store.job("job_1").status is JobStatus.COMPLETED

    wait_until(ended, what="the end of the job")
    error = error_of(store.job("job_1"))
    assert error.code == "concatenation_failed"
    assert error.message == "ZeroDivisionError was raised while the audio was joined."
    assert len(tries) == 3
    assert files_of(folder, "job_1") == []


def test_a_job_that_clerks_die_of_ends_with_an_error(
    store: Store, finalizer: Finalizer, folder: Path
) -> None:
    submit(store, "job_1", 1)
    speak(store, folder)
    for _ in range(3):
        wait_until(lambda: store.take_finalizing(0.0) is not None)
    wait_until(finalizer.tick)
    error = error_of(store.job("job_1"))
    assert error.code == "concatenation_failed"
    assert error.message.startswith("3 times nothing more was heard of the clerk")


def test_who_loses_the_job_while_it_joins_leaves_nothing(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    real = joining.join_files
    others: list[Join | None] = []

    def join_late(*args: Any) -> joining.Joined:
        joined = real(*args)
        redis: Any = store._redis
        redis.zadd("voicemill:finalizing:default", {"job_1": 0})
        redis.zadd("voicemill:finalizing", {"default": 0})
        others.append(store.take_finalizing(0.0))
        return joined

    monkeypatch.setattr(joining, "join_files", join_late)
    finalizer.tick()
    assert store.job("job_1").status is JobStatus.FINALIZING
    assert files_of(folder, "job_1") == []

    monkeypatch.setattr(joining, "join_files", real)
    wait_until(finalizer.tick)
    assert Path(audio_of(store.job("job_1")).audio_path).name == "audio.3.wav"


def test_a_job_that_is_deleted_while_it_is_joined_leaves_nothing(
    store: Store, finalizer: Finalizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    real = joining.join_files

    def join_and_delete(*args: Any) -> joining.Joined:
        store.delete("job_1", cancel=True)
        return real(*args)

    monkeypatch.setattr(joining, "join_files", join_and_delete)
    finalizer.tick()
    assert files_of(folder, "job_1") == []
    assert store.removals() == ["job_1"]


def test_a_clerk_that_is_to_stop_gives_the_job_back_at_no_cost(
    store: Store, finalizer: Finalizer, folder: Path, stopping: threading.Event
) -> None:
    submit(store, "job_1", 2)
    speak(store, folder)
    stopping.set()
    finalizer.tick()
    assert files_of(folder, "job_1") == []
    again = store.take_finalizing(60.0)
    assert again == Join("job_1", 2, 0)


@pytest.mark.full
def test_a_redis_that_goes_away_while_it_is_joined_costs_nothing(
    own_valkey: Valkey, folder: Path, stopping: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.connect(own_valkey.url)
    settings = Settings(redis_url=own_valkey.url, output_dir=folder, free_space_floor_mb=0)
    submit(store, "job_1", 2)
    speak(store, folder)
    real = joining.join_files
    starting: list[threading.Timer] = []

    def join_without_redis(*args: Any) -> joining.Joined:
        own_valkey.stop()
        joined = real(*args)
        starting.append(threading.Timer(1.5, own_valkey.start))
        starting[0].start()
        return joined

    monkeypatch.setattr(joining, "join_files", join_without_redis)
    assert Finalizer(store, settings, stopping).tick()
    starting[0].join()
    audio = audio_of(store.job("job_1"))
    assert Path(audio.audio_path).name == "audio.1.wav", "it was joined once"
    store.close()


# --- a clerk that is killed -----------------------------------------------------


@pytest.fixture
def slow_clerks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Clerks that take a while for each block that they join."""
    clerks: list[subprocess.Popen[bytes]] = []
    yield clerks
    for clerk in clerks:
        clerk.kill()
        clerk.wait()


SLOW_CLERK = """
import time
from worker import clerk, joining

real = joining.blocks_of

def slowly(part):
    for block in real(part):
        time.sleep(0.05)
        yield block

joining.blocks_of = slowly
clerk.main()
"""


def start_clerk(redis_url: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW_CLERK],
        cwd=ROOT,
        env={
            **os.environ,
            "VOICEMILL_REDIS_URL": redis_url,
            "VOICEMILL_OUTPUT_DIR": str(folder),
            "VOICEMILL_LEASE_SECONDS": "2",
            "VOICEMILL_SWEEP_SECONDS": "3",
            "VOICEMILL_FREE_SPACE_FLOOR_MB": "0",
        },
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_clerk_goes_on_where_one_was_killed_or_froze(
    store: Store,
    redis_url: str,
    folder: Path,
    slow_clerks: list[subprocess.Popen[bytes]],
    number: signal.Signals,
) -> None:
    submit(store, "job_1", 40)
    speak(store, folder)

    def drafts() -> list[Path]:
        return list((folder / "job_1").glob(".audio.*.tmp"))

    slow_clerks.append(start_clerk(redis_url, folder))
    wait_until(lambda: bool(drafts()), what="a join")
    assert not list((folder / "job_1").glob("audio.*")), "nothing half-written has the name"
    slow_clerks[0].send_signal(number)
    assert store.job("job_1").status is JobStatus.FINALIZING
    began = time.monotonic()
    slow_clerks.append(start_clerk(redis_url, folder))
    wait_until(lambda: store.job("job_1").status is JobStatus.COMPLETED, what="the end of the job")
    assert time.monotonic() - began > 1, "not before the lease of the first was over"

    audio = audio_of(store.job("job_1"))
    assert audio.duration_seconds * RATE == sum(samples_of(index).size for index in range(40))
    slow_clerks[0].send_signal(signal.SIGCONT)
    wait_until(
        lambda: files_of(folder, "job_1") == [Path(audio.audio_path).name],
        20,
        "the end of what the first left",
    )
    assert audio_of(store.job("job_1")) == audio


# --- a full disk ----------------------------------------------------------------

FULL = """
import json, sys, threading
from pathlib import Path
from tests.support import wait_until
from tests.worker.spoken import speak, submit
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
from worker.finalizing import Finalizer

folder, url, filler_kb, surprise = Path(sys.argv[1]), *sys.argv[2:]
settings = Settings(redis_url=url, output_dir=folder, free_space_floor_mb=0)
store = Store.connect(url)
finalizer = Finalizer(store, settings, threading.Event())
if surprise:
    Storage.check_room = lambda self, size: None
submit(store, "job_1", 8)
speak(store, folder)
filler = folder / "filler"
filler.write_bytes(bytes(int(filler_kb) * 1024))

def look():
    job = store.job("job_1")
    audio = job.concatenation.audio
    return {
        "status": job.status,
        "trouble": job.trouble,
        "files": sorted(path.name for path in (folder / "job_1").iterdir() if path.is_file()),
        "bytes": audio and [audio.size_bytes, Path(audio.audio_path).stat().st_size],
    }

def tick_until_ended():
    finalizer.tick()
    return store.job("job_1").status == "completed"

assert finalizer.tick()
full = look()
filler.unlink()
wait_until(tick_until_ended, what="the end of the job")
print(json.dumps([full, look()]))
"""


@pytest.mark.full
@pytest.mark.parametrize("surprise", ["", "mid-write"])
def test_a_full_disk_keeps_the_job_waiting_until_there_is_room(
    redis_url: str, tmp_path: Path, surprise: str
) -> None:
    full, last = json.loads(run_on_small_disk(tmp_path, FULL, redis_url, "28", surprise))
    assert full == {"status": "finalizing", "trouble": "disk_full", "files": [], "bytes": None}
    assert (last["status"], last["trouble"]) == ("completed", None)
    assert last["bytes"][0] == last["bytes"][1] > 2 * sum(samples_of(n).size for n in range(8))
    assert len(last["files"]) == 1
    assert MARKER not in last["files"]


@pytest.mark.full
def test_a_join_that_runs_in_another_process_ends_with_a_cancel(
    store: Store, redis_url: str, folder: Path, slow_clerks: list[subprocess.Popen[bytes]]
) -> None:
    submit(store, "job_1", 200)
    speak(store, folder)
    submit(store, "job_2", 1)
    speak(store, folder)
    slow_clerks.append(start_clerk(redis_url, folder))
    wait_until(lambda: bool(list((folder / "job_1").glob(".audio.*.tmp"))), what="a join")

    assert error_of(store.cancel("job_1")).code == "concatenation_cancelled"

    wait_until(lambda: files_of(folder, "job_1") == [], what="the end of the join")
    wait_until(lambda: store.job("job_2").status is JobStatus.COMPLETED, what="the next one")
    assert error_of(store.job("job_1")).code == "concatenation_cancelled"

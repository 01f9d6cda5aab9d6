"""What keeps audio from being written: each cause by its own name, and its end noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.small_disk import ROOT, run_on_small_disk
from tests.support import wait_until
from voicemill.errors import (
    AccessDeniedError,
    DiskFullError,
    MountMissingError,
    OutputError,
    StorageError,
)
from voicemill.health import MEBIBYTE
from voicemill.settings import Settings
from voicemill.storage import MARKER, Storage
from voicemill.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outputs"


def storage_of(store: Store, folder: Path, floor_mb: int = 0) -> Storage:
    return Storage(store, Settings(output_dir=folder, free_space_floor_mb=floor_mb))


def trouble_of(storage: Storage) -> type[StorageError] | None:
    trouble = storage.look()
    return None if trouble is None else type(trouble)


def test_the_first_look_makes_the_folder_and_its_marker(store: Store, folder: Path) -> None:
    assert storage_of(store, folder).look() is None
    marker = (folder / MARKER).read_text().strip()
    assert store.output_marker(str(folder)) == marker
    assert [path.name for path in folder.iterdir()] == [MARKER]
    second = storage_of(store, folder)
    assert second.look() is None
    second.check()
    assert (folder / MARKER).read_text().strip() == marker


def test_the_marker_is_on_the_disk_before_the_store_knows_it(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            synced.append((path, store.output_marker(str(folder)) is not None))
        real(descriptor)

    monkeypatch.setattr("voicemill.outputs.os.fsync", fsync)
    assert storage_of(store, folder).look() is None
    assert synced == [(folder.parent, False), (folder, False)]


def test_a_folder_that_was_marked_for_another_store_is_taken_over(
    store: Store, folder: Path
) -> None:
    folder.mkdir()
    (folder / MARKER).write_text("theirs\n")
    assert storage_of(store, folder).look() is None
    assert store.output_marker(str(folder)) == "theirs"


@pytest.mark.parametrize("what_is_there", ["an empty mount point", "another folder", "nothing"])
def test_a_folder_without_its_marker_is_missing_until_it_is_back(
    store: Store, folder: Path, tmp_path: Path, what_is_there: str
) -> None:
    storage = storage_of(store, folder)
    assert storage.look() is None
    shutil.move(folder, tmp_path / "unmounted")
    if what_is_there != "nothing":
        folder.mkdir()
    if what_is_there == "another folder":
        (folder / MARKER).write_text("another\n")

    for one in (storage, storage_of(store, folder)):
        assert trouble_of(one) is MountMissingError
        with pytest.raises(MountMissingError, match=r"is not the folder that audio was written"):
            one.check()
    found = list(folder.iterdir()) if folder.exists() else []
    assert [path for path in found if path.name != MARKER] == [], "nothing was written to it"

    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(tmp_path / "unmounted", folder)
    assert storage.look() is None
    storage.check()


def test_less_room_than_the_floor_is_a_full_disk(store: Store, folder: Path) -> None:
    free_mb = shutil.disk_usage(folder.parent).free // MEBIBYTE
    trouble = storage_of(store, folder, free_mb + 1000).look()
    assert isinstance(trouble, DiskFullError)
    assert trouble.message.endswith(f"{free_mb + 1000} MiB are needed.")
    assert storage_of(store, folder, 1).look() is None


def test_a_file_that_found_no_room_is_waited_for(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicemill.storage.PAUSE_SECONDS", 0.2)
    storage = storage_of(store, folder)
    storage.look()
    free = shutil.disk_usage(folder).free
    full = DiskFullError("No space left on device.")
    assert storage.refused(full, 100) is full
    assert storage.look() is full, "the refusal is believed for a while"
    wait_until(lambda: storage.look() is None, what="room enough for the file")
    storage.refused(full, free)
    wait_until(lambda: storage.look() is not full, what="the end of the belief")
    trouble = storage.look()
    assert isinstance(trouble, DiskFullError)
    assert "are needed" in trouble.message


def test_a_refusal_that_the_folder_does_not_share_is_the_file_s_own(
    store: Store, folder: Path
) -> None:
    storage = storage_of(store, folder)
    storage.look()
    found = storage.refused(AccessDeniedError("a.wav could not be written."), 100)
    assert type(found) is OutputError
    assert storage.look() is None


def test_a_folder_that_went_away_under_a_file_costs_it_no_attempt(
    store: Store, folder: Path
) -> None:
    storage = storage_of(store, folder)
    storage.look()
    folder.rename(folder.with_name("unmounted"))
    lost = OutputError("a.wav could not be written: No such file or directory.")
    assert isinstance(storage.refused(lost, 100), MountMissingError)


DENIED = """
import os, sys
from pathlib import Path
from tests.support import wait_until
from voicemill import storage
from voicemill.errors import StorageError
from voicemill.outputs import write_audio
from voicemill.settings import Settings
from voicemill.store import Store
folder, url = Path(sys.argv[1]), sys.argv[2]
path = folder / "job_1" / "0000" / "a.wav"
storage.PAUSE_SECONDS = 0.1
watched = storage.Storage(Store.connect(url), Settings(output_dir=folder, free_space_floor_mb=0))
assert watched.look() is None
if os.getuid() == 0:
    os.setuid(65534)
folder.chmod(0o500)
try:
    write_audio(path, b"RIFF")
except StorageError as error:
    print(error.code, error.message)
    print(watched.refused(error, 4).code, watched.look().code)
folder.chmod(0o700)
wait_until(lambda: watched.look() is None, what="a folder that may be written to")
print(write_audio(path, b"RIFF").size_bytes)
"""


def test_a_folder_that_may_not_be_written_to_says_so_until_it_may_be(redis_url: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "outputs"
        folder.mkdir()
        if os.getuid() == 0:
            os.chmod(top, 0o755)
            os.chown(folder, 65534, 65534)
        ended = subprocess.run(
            [sys.executable, "-c", DENIED, str(folder), redis_url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        path = folder / "job_1" / "0000" / "a.wav"
    assert ended.stdout.splitlines() == [
        f"output_denied {path} could not be written: Permission denied.",
        "output_denied output_denied",
        "4",
    ], ended.stderr


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from tests.support import wait_until
from voicemill.errors import StorageError
from voicemill.outputs import write_audio
from voicemill.settings import Settings
from voicemill.storage import Storage
from voicemill.store import Store
folder, url = Path(sys.argv[1]), sys.argv[2]
storage = Storage(Store.connect(url), Settings(output_dir=folder, free_space_floor_mb=0))
assert storage.look() is None
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
try:
    write_audio(folder / "job_1" / "a.wav", b"RIFF")
except StorageError as error:
    found = storage.refused(error, 4)
    print(error.code, found.code, storage.look().code)
subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
wait_until(lambda: storage.look() is None, what="a folder that can be written to")
print(write_audio(folder / "job_1" / "a.wav", b"RIFF").size_bytes)
"""


@pytest.mark.full
def test_a_read_only_file_system_says_so_until_it_is_writable_again(
    redis_url: str, tmp_path: Path
) -> None:
    said = run_on_small_disk(tmp_path, READ_ONLY, redis_url)
    assert said.split() == ["output_read_only"] * 3 + ["4"]

"""Audio files are there whole, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.small_disk import run_on_small_disk
from tests.support import wait_until
from voicemill.errors import OutputError
from voicemill.outputs import audio_path, remove_job, write_audio

KILLED_WRITER = """
import sys
from pathlib import Path
from voicemill.outputs import write_audio
path = Path(sys.argv[1])
while True:
    write_audio(path, b"RIFF" + bytes(32 * 2**20))
    path.unlink()
"""


def audio_files(folder: Path) -> list[Path]:
    """What a reader of the folder would take for audio."""
    return [path for path in folder.rglob("*") if path.suffix in {".wav", ".flac"}]


def test_a_file_is_what_was_written_and_its_digest_says_so(tmp_path: Path) -> None:
    path = audio_path(tmp_path, "job_1", 1234, "row-001235", 2, "ab12", "flac")
    written = write_audio(path, b"fLaC and more")
    assert written.path.read_bytes() == b"fLaC and more"
    assert written.sha256 == hashlib.sha256(b"fLaC and more").hexdigest()
    assert written.size_bytes == 13
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [written.path]


def test_a_path_names_job_item_attempt_and_lease(tmp_path: Path) -> None:
    path = audio_path(tmp_path, "job_1", 1234, "intro", 2, "0123456789", "opus")
    assert path == tmp_path / "job_1" / "0001" / "001234-intro.2-01234567.opus"


def test_no_folder_holds_more_than_a_thousand_items(tmp_path: Path) -> None:
    parents = [
        audio_path(tmp_path, "j", index, "a", 1, "ab12", "wav").parent for index in range(10_000)
    ]
    assert {parents.count(folder) for folder in set(parents)} == {1000}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that are brought to the disk, in this order."""
    found: list[Path] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            found.append(path)
        real(descriptor)

    monkeypatch.setattr("voicemill.outputs.os.fsync", fsync)
    return found


def test_the_name_of_each_new_folder_is_on_the_disk_before_its_file_counts(
    tmp_path: Path, synced: list[Path]
) -> None:
    top = tmp_path / "outputs"
    top.mkdir()
    write_audio(audio_path(top, "job_1", 0, "a", 1, "ab12", "wav"), b"RIFF")
    assert synced == [top, top / "job_1", top / "job_1" / "0000"]


def test_folders_that_are_there_are_synced_once_and_not_for_each_file(
    tmp_path: Path, synced: list[Path]
) -> None:
    group = tmp_path / "job_1" / "0000"
    group.mkdir(parents=True)
    for index in range(5):
        write_audio(audio_path(tmp_path, "job_1", index, "a", 1, "ab12", "wav"), b"RIFF")
    assert synced == [tmp_path / "job_1", *[group] * 5], "its maker may have been killed"


def test_a_folder_that_was_removed_and_made_again_is_synced_again(
    tmp_path: Path, synced: list[Path]
) -> None:
    path = audio_path(tmp_path, "job_1", 0, "a", 1, "ab12", "wav")
    for _ in range(2):
        write_audio(path, b"RIFF")
        remove_job(tmp_path, "job_1")
    of_one = [tmp_path, tmp_path / "job_1", tmp_path / "job_1" / "0000"]
    assert synced == of_one * 2


def test_a_folder_whose_name_could_not_be_brought_to_the_disk_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "job_1" / "0000"
    group.mkdir(parents=True)
    path = audio_path(tmp_path, "job_1", 0, "a", 1, "ab12", "wav")
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == group.parent:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("voicemill.outputs.os.fsync", fsync)
        for _ in range(2):
            with pytest.raises(OutputError, match="Input/output error"):
                write_audio(path, b"RIFF")
    assert list(group.iterdir()) == []
    write_audio(path, b"RIFF")


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_audio(tmp_path / "first.wav", b"RIFF")
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def noted_replace(source: str, path: Path) -> None:
        steps.append("name")
        replace(source, path)

    monkeypatch.setattr("voicemill.outputs.os.fsync", noted_fsync)
    monkeypatch.setattr("voicemill.outputs.os.replace", noted_replace)
    write_audio(tmp_path / "a.wav", b"RIFF")
    assert steps == ["file", "name", "folder"]


def test_writing_again_replaces_the_file_whole(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", b"a longer first take")
    write_audio(tmp_path / "a.wav", b"second")
    assert (tmp_path / "a.wav").read_bytes() == b"second"


def test_a_writer_killed_in_the_middle_leaves_no_file_under_the_name(tmp_path: Path) -> None:
    path = tmp_path / "job" / "0000" / "000000-row-000001.1.wav"
    writer = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(path)])
    try:
        wait_until(lambda: half_written(path.parent), what="a write in progress")
    finally:
        writer.kill()
        writer.wait()
    assert [found.stat().st_size for found in audio_files(tmp_path)] in ([], [4 + 32 * 2**20])
    hidden = [found for found in path.parent.iterdir() if found.suffix == ".tmp"]
    assert all(found.name.startswith(".") for found in hidden)


def half_written(folder: Path) -> bool:
    """True while a temporary file has some of its bytes and not all."""
    try:
        sizes = [found.stat().st_size for found in folder.glob(".*.tmp")]
    except FileNotFoundError:
        return False
    return any(0 < size < 32 * 2**20 for size in sizes)


def test_a_folder_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file where the folder should be")
    with pytest.raises(OutputError, match=r"could not be written: (Not a directory|File exists)"):
        write_audio(tmp_path / "job" / "0000" / "a.wav", b"RIFF")


def test_a_rename_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "a.wav").mkdir()
    with pytest.raises(OutputError, match=r"a\.wav could not be written: Is a directory\."):
        write_audio(tmp_path / "a.wav", b"RIFF")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.wav"]


def test_a_full_disk_has_a_name_of_its_own_and_keeps_no_half_file(tmp_path: Path) -> None:
    writer = (
        "import sys\n"
        "from pathlib import Path\n"
        "from voicemill.errors import DiskFullError\n"
        "from voicemill.outputs import write_audio\n"
        "folder = Path(sys.argv[1])\n"
        "write_audio(folder / 'a.wav', bytes(30_000))\n"
        "try:\n"
        "    write_audio(folder / 'b.wav', bytes(90_000))\n"
        "except DiskFullError as error:\n"
        "    print(error.code, error.retryable, error.message)\n"
        "print([path.name for path in folder.iterdir()])\n"
    )
    said, kept = run_on_small_disk(tmp_path, writer).splitlines()
    path = tmp_path / "b.wav"
    assert said == f"disk_full True {path} could not be written: No space left on device."
    assert kept == "['a.wav']"


def test_a_disk_that_takes_no_more_is_a_named_error_and_leaves_nothing(tmp_path: Path) -> None:
    limited = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from voicemill.errors import OutputError\n"
        "from voicemill.outputs import write_audio\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_audio(Path(sys.argv[1]), bytes(5000))\n"
        "except OutputError as error:\n"
        "    sys.exit(f'{error.code} {error.retryable} {error.message}')\n"
    )
    path = tmp_path / "a.wav"
    ended = subprocess.run(
        [sys.executable, "-c", limited, str(path)], capture_output=True, text=True, check=False
    )
    assert ended.stderr.startswith("output_failed True ")
    assert "File too large" in ended.stderr
    assert list(tmp_path.iterdir()) == []

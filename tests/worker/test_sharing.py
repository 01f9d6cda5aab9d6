"""One file under many names: read seldom, in blocks, and never taken for what it is not."""

from __future__ import annotations

import errno
import hashlib
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from voicemill.errors import OutputError
from worker import sharing
from worker.sharing import GoneError, Sharing, UnreadableError

DATA = b"RIFF" + bytes(range(256)) * 40
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file that was written a while ago."""
    path = tmp_path / "job_1" / "0000" / "source.wav"
    path.parent.mkdir(parents=True)
    path.write_bytes(DATA)
    settle(path)
    return path


def settle(path: Path, seconds: float = 60) -> None:
    at = time.time() - seconds
    os.utime(path, (at, at))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which files are read, from now on."""
    found: list[Path] = []
    real = sharing.blocks_of

    def counted(path: Path) -> Iterator[bytes]:
        found.append(path)
        return real(path)

    monkeypatch.setattr(sharing, "blocks_of", counted)
    return found


def refuse_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr("worker.sharing.os.link", link)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


def test_thousands_of_names_cost_one_reading(source: Path, reads: list[Path]) -> None:
    share = Sharing()
    for number in range(500):
        written = share.share(source, source.parent / f"{number}.wav", SHA256)
        assert (written.sha256, written.size_bytes) == (SHA256, len(DATA))
    assert len(reads) == 1
    assert source.stat().st_nlink == 501


def test_a_file_that_was_written_just_now_is_read_for_each_name(
    source: Path, reads: list[Path]
) -> None:
    share = Sharing()
    settle(source, 0)
    for number in range(3):
        share.share(source, source.parent / f"{number}.wav", SHA256)
    assert len(reads) == 3, "another write might show the same time"


def test_a_file_is_read_again_after_a_while(
    source: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "BELIEVED_SECONDS", 0.0)
    share = Sharing()
    for number in range(3):
        share.share(source, source.parent / f"{number}.wav", SHA256)
    assert len(reads) == 3


def test_no_more_files_are_believed_than_can_be_remembered(
    source: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_FILES", 2)
    share = Sharing()
    sources = [source.with_name(f"source-{number}.wav") for number in range(3)]
    for one in sources:
        one.write_bytes(DATA)
        settle(one)
        share.share(one, source.with_name("shared.wav"), SHA256)
    assert len(share._believed) == 2
    share.share(sources[2], source.with_name("shared.wav"), SHA256)
    assert len(reads) == 3
    share.share(sources[0], source.with_name("shared.wav"), SHA256)
    assert len(reads) == 4, "the first was forgotten"


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(len(DATA)))


def flip_a_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff")


def truncate(path: Path) -> None:
    os.truncate(path, 10)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(bytes(len(DATA)))
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def link_elsewhere(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_no_folder_of_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.touch()


@pytest.mark.parametrize(
    "damage",
    [
        overwrite,
        flip_a_bit,
        truncate,
        replace,
        remove,
        link_elsewhere,
        make_a_folder,
        make_a_pipe,
        make_no_folder_of_its_folder,
    ],
)
@pytest.mark.parametrize("is_believed", [False, True], ids=["at first sight", "once believed"])
@pytest.mark.parametrize("can_link", [True, False], ids=["linked", "copied"])
def test_what_is_not_as_recorded_gets_no_name(
    source: Path,
    tmp_path: Path,
    damage: Callable[[Path], None],
    is_believed: bool,
    can_link: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not can_link:
        refuse_links(monkeypatch)
    share, shared = Sharing(), tmp_path / "job_2" / "0000" / "shared.wav"
    if is_believed:
        share.share(source, shared, SHA256)
    damage(source)

    with pytest.raises(GoneError):
        share.share(source, shared, SHA256)

    assert files(tmp_path / "job_2") == []


@pytest.mark.parametrize("can_link", [True, False], ids=["linked", "copied"])
@pytest.mark.parametrize(
    "code", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EACCES, errno.ENOMEM]
)
@pytest.mark.parametrize("at", ["open", "read"])
def test_what_can_not_be_read_now_is_not_gone(
    source: Path,
    tmp_path: Path,
    at: str,
    code: int,
    can_link: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = tmp_path / "job_2" / "0000" / "shared.wav"
    if not can_link:
        refuse_links(monkeypatch)
    with monkeypatch.context() as patch:
        break_reading(patch, at, code)
        with pytest.raises(UnreadableError, match=os.strerror(code)):
            Sharing().share(source, shared, SHA256)
    assert files(tmp_path / "job_2") == []
    assert source.read_bytes() == DATA

    assert Sharing().share(source, shared, SHA256).size_bytes == len(DATA)
    assert shared.read_bytes() == DATA


def break_reading(patch: pytest.MonkeyPatch, at: str, code: int) -> None:
    """Have the system refuse to open a WAV, or to read from it."""
    real_open, real_fdopen = os.open, os.fdopen

    def refused(name: str | Path, flags: int, *args: int, **kwargs: int) -> int:
        if str(name).endswith(".wav") and not flags & os.O_CREAT:
            raise OSError(code, os.strerror(code), str(name))
        return real_open(name, flags, *args, **kwargs)

    class Broken:
        def __init__(self, descriptor: int) -> None:
            self._descriptor = descriptor

        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self._descriptor)

        def read(self, size: int) -> bytes:
            raise OSError(code, os.strerror(code))

    def fdopen(descriptor: int, mode: str, **kwargs: int) -> object:
        return Broken(descriptor) if mode == "rb" else real_fdopen(descriptor, mode, **kwargs)

    if at == "open":
        patch.setattr("worker.sharing.os.open", refused)
    else:
        patch.setattr("worker.sharing.os.fdopen", fdopen)


def test_a_real_lack_of_file_handles_is_no_lack_of_a_file(source: Path, tmp_path: Path) -> None:
    handles: list[int] = []
    try:
        with pytest.raises(UnreadableError, match="Too many open files"):
            exhaust(handles, lambda: sharing.check(source, SHA256))
    finally:
        for handle in handles:
            os.close(handle)
    sharing.check(source, SHA256)


def exhaust(handles: list[int], call: Callable[[], None]) -> None:
    """A call while this process may open nothing more."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 32, hard))
    try:
        try:
            while True:
                handles.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            call()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("can_link", [True, False], ids=["linked", "copied"])
def test_a_large_file_is_never_in_memory(
    tmp_path: Path, can_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_link:
        refuse_links(monkeypatch)
    source, size = tmp_path / "source.wav", 64 << 20
    with source.open("wb") as file:
        file.truncate(size)
    sha256 = hashlib.sha256(bytes(size)).hexdigest()
    share = Sharing()
    tracemalloc.start()
    try:
        written = share.share(source, tmp_path / "shared.wav", sha256)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written.size_bytes == size
    assert peak < 4 * sharing.BLOCK_BYTES


def test_a_name_that_can_not_be_written_is_an_error_of_writing(
    source: Path, tmp_path: Path
) -> None:
    (tmp_path / "job_2").touch()
    with pytest.raises(OutputError, match="could not be written"):
        Sharing().share(source, tmp_path / "job_2" / "0000" / "shared.wav", SHA256)

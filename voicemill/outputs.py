"""Audio files: named by job, item and attempt; never visible half-written."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from voicemill.errors import (
    AccessDeniedError,
    DiskFullError,
    MountMissingError,
    OutputError,
    ReadOnlyError,
    StorageError,
)

ITEMS_PER_FOLDER = 1000
TOKEN_DIGITS = 8
MOST_FOLDERS = 1024
"""That a process remembers to be on the disk."""
JOB_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,64}")
REFUSALS: Mapping[int, type[StorageError]] = {
    errno.ENOSPC: DiskFullError,
    errno.EDQUOT: DiskFullError,
    errno.EACCES: AccessDeniedError,
    errno.EPERM: AccessDeniedError,
    errno.EROFS: ReadOnlyError,
}
"""What the operating system says when it is not the file's fault."""
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""What it says when there is no file to read, or a folder, a link or a socket in its place.

All else that it says of reading may be another thing in a moment.
"""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is on the disk, whole."""

    path: Path
    sha256: str
    size_bytes: int


def audio_path(
    output_dir: Path,
    job_id: str,
    index: int,
    custom_id: str,
    attempt: int,
    token: str,
    response_format: str,
) -> Path:
    """Where the audio of one attempt goes; another name for each lease that it is made under.

    A Redis that fell back to an older state counts an attempt again while its first writer lives.
    """
    name = f"{index:06d}-{custom_id}.{attempt}-{token[:TOKEN_DIGITS]}.{response_format}"
    return item_folder(output_dir, job_id, index) / name


def item_folder(output_dir: Path, job_id: str, index: int) -> Path:
    """The folder of an item's audio, whatever the attempt."""
    return output_dir / job_id / f"{index // ITEMS_PER_FOLDER:04d}"


def joined_path(output_dir: Path, job_id: str, number: int, response_format: str) -> Path:
    """Where a job's joined audio goes; each join has a name of its own."""
    return output_dir / job_id / f"audio.{number}.{response_format}"


@contextmanager
def drafted(path: Path) -> Iterator[BinaryIO]:
    """A file to fill, which then is there whole or not at all, even after a power cut.

    Raises ``OutputError``, or a ``StorageError`` where the folder as such takes nothing.
    """
    with refusals(path):
        make_folder(path.parent)
        handle, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".tmp", dir=path.parent
        )
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        # Whatever stops its writer, Ctrl-C too, must leave no half file.
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Give an ``OSError`` of writing a file its name: ``OutputError`` or a ``StorageError``."""
    try:
        yield
    except OSError as error:
        kind = REFUSALS.get(error.errno or 0, OutputError)
        raise kind(f"{path} could not be written: {error.strerror}.") from error


def write_audio(path: Path, data: bytes) -> WrittenFile:
    """Write a file at once; raises as ``drafted`` does."""
    with drafted(path) as file:
        file.write(data)
    return WrittenFile(path, hashlib.sha256(data).hexdigest(), len(data))


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; all are there after a power cut.

    Whoever makes one syncs the folder that it is in. Who finds one does so too, the first time: its
    maker may not have come to it. Raises ``OSError``.
    """
    try:
        folder.mkdir()
    except FileExistsError:
        sync_entry(folder, folder.stat().st_ino)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    else:
        sync_folder(folder.parent)


@lru_cache(MOST_FOLDERS)
def sync_entry(folder: Path, inode: int) -> None:
    """Make a folder's name last; once for each folder while it is remembered."""
    # Where one may not even look, one has made nothing.
    with suppress(PermissionError):
        sync_folder(folder.parent)


def storage_error(error: OSError, folder: Path) -> StorageError:
    """What it means that the output folder can't be looked at or written to."""
    kind = REFUSALS.get(error.errno or 0, MountMissingError)
    return kind(f"{folder} can't be written to: {error.strerror}.")


def remove_job(output_dir: Path, job_id: str) -> None:
    """Remove all files of a job, and nothing outside its folder: no link is followed.

    Raises ``OSError``; what is left then may be removed by another call.
    """
    if not JOB_FOLDER.fullmatch(job_id):
        raise OSError(errno.EINVAL, "no name of a job's folder", job_id)
    folder = output_dir / job_id
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
    elif folder.exists():
        shutil.rmtree(folder)


@contextmanager
def opened(name: str | Path, within: int | None = None) -> Iterator[int]:
    """A folder, open; raises ``OSError`` for a link within another one."""
    flags = os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if within is not None else 0)
    descriptor = os.open(name, flags, dir_fd=within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make what was named, renamed or removed in this folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

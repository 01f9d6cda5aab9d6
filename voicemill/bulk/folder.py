"""The output folder of a bulk run: who may write there, and where things lie."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from voicemill.bulk.errors import FolderError, FolderLockedError
from voicemill.bulk.manifest import Manifest, SpokenAudio
from voicemill.bulk.rows import Row

MANIFEST = "manifest.jsonl"
RESULTS = "results.csv"
ERRORS = "errors.csv"
AUDIO = "audio"
LOCK = ".lock"

# Why a hard link can't be made though a copy can: other file system, none supported, not allowed.
UNLINKABLE = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP})


class OutputFolder:
    """An output folder that this process alone may write to, until it is closed."""

    def __init__(self, path: Path) -> None:
        """Make and lock the folder.

        Raises ``FolderLockedError`` while another run has it, ``FolderError`` when
        it can't be written or holds files of another's making.
        """
        self.path = path.resolve()
        try:
            (self.path / AUDIO).mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            where = error.filename or self.path
            raise FolderError(f"{where} can't be written: {error.strerror}.") from error
        try:
            self._take_lock()
            self._refuse_foreign_files()
            self._sweep()
        # Ctrl-C too must give the lock back: nobody else can close what was never made.
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others in."""
        os.close(self._lock)

    @property
    def manifest_path(self) -> Path:
        """The append-only record."""
        return self.path / MANIFEST

    @property
    def results_path(self) -> Path:
        """The rows that have audio."""
        return self.path / RESULTS

    @property
    def errors_path(self) -> Path:
        """The rows that have none."""
        return self.path / ERRORS

    @property
    def audio_path(self) -> Path:
        """Where the audio files lie."""
        return self.path / AUDIO

    def audio_file(self, row: Row) -> Path:
        """Where the audio of a row goes."""
        return self.audio_path / f"{row.id}.{row.response_format}"

    def relative(self, path: Path) -> str:
        """A path in this folder as the manifest writes it."""
        return path.relative_to(self.path).as_posix()

    def holds(self, audio: SpokenAudio) -> bool:
        """True when the file is there with the bytes that were recorded."""
        path = self.path / audio.path
        try:
            return path.stat().st_size == audio.size_bytes and sha256_of(path) == audio.sha256
        except OSError:
            return False

    def link(self, source: Path, target: Path) -> None:
        """Give ``source`` a second name ``target``, or a copy where file systems differ."""
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            try:
                part.hardlink_to(source)
            except OSError as error:
                if error.errno not in UNLINKABLE:
                    raise
                copy_durably(source, part)
            part.replace(target)
        finally:
            # Renaming one name of a file onto another name of the same file leaves both.
            part.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove what earlier runs left here, and nothing else."""
        with Manifest(self.manifest_path) as manifest:
            spoken = [end.audio.path for end in manifest.history.ends.values() if end.audio]
        for path in (*spoken, RESULTS, ERRORS, MANIFEST):
            (self.path / path).unlink(missing_ok=True)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderLockedError(
                f"Another run is at work in {self.path}; wait for it to end, or use another folder."
            ) from error

    def _refuse_foreign_files(self) -> None:
        if self.manifest_path.exists():
            return
        for path in (self.results_path, self.errors_path):
            if path.exists():
                raise FolderError(
                    f"{path} is there, but no {MANIFEST}: it is not from a run, and would be "
                    "overwritten. Use another folder."
                )

    def _sweep(self) -> None:
        """Remove the half-written files of a run that was killed."""
        for part in self.audio_path.glob(".*.part"):
            part.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_durably(source: Path, target: Path) -> None:
    """Copy a file and bring it to the disk."""
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())

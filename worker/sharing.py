"""One file under many names: as its record says, though it is not read for each of them."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from voicemill.outputs import GONE, WrittenFile, drafted, make_folder, refusals, sync_folder

BLOCK_BYTES = 1 << 20
BELIEVED_SECONDS = 60.0
"""How long a file that was read and was whole counts as whole."""
SETTLED_SECONDS = 2.0
"""Time after which another write is sure to show in a file's time of change."""
MOST_FILES = 1024
"""That one process believes in."""


class GoneError(Exception):
    """There is no such file, or what is there is no file, or is not as recorded."""


class UnreadableError(Exception):
    """There is a file, and it can't be read now; nobody knows whether it is as recorded."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file keeps under all its names, and another one, or a changed one, has not."""

    device: int
    inode: int
    size_bytes: int
    changed_ns: int
    sha256: str
    """What it was compared with."""


class Sharing:
    """Gives files further names, or copies them where they can have none. For one thread.

    A file is read, a block at a time, before its first further name counts, and again a minute
    later; in between it is believed while it is the same inode with the same size and time of
    change. So damage is found within a minute, and a write at the next name.
    """

    def __init__(self) -> None:
        self._believed: dict[Identity, float] = {}

    def share(self, source: Path, path: Path, sha256: str) -> WrittenFile:
        """Give ``source`` the name ``path``, where a file is there whole or not at all.

        Raises ``GoneError``, ``UnreadableError``, and as ``drafted`` does where ``path`` can't be
        written.
        """
        try:
            make_folder(path.parent)
            path.unlink(missing_ok=True)
            os.link(source, path, follow_symlinks=False)
        except OSError:
            return copy(source, path, sha256)
        # Looked at under the new name, which nobody else replaces.
        try:
            size = self._verify(path, sha256)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        with refusals(path):
            sync_folder(path.parent)
        return WrittenFile(path, sha256, size)

    def _verify(self, path: Path, sha256: str) -> int:
        """The size of a file that is as recorded; raises ``GoneError`` and ``UnreadableError``."""
        before = identity(path, sha256)
        if time.monotonic() < self._believed.get(before, 0.0):
            return before.size_bytes
        is_settled = time.time() - before.changed_ns / 1e9 > SETTLED_SECONDS
        check(path, sha256)
        if is_settled and identity(path, sha256) == before:
            self._believe(before)
        return before.size_bytes

    def _believe(self, file: Identity) -> None:
        self._believed.pop(file, None)
        while len(self._believed) >= MOST_FILES:
            del self._believed[next(iter(self._believed))]
        self._believed[file] = time.monotonic() + BELIEVED_SECONDS


def copy(source: Path, path: Path, sha256: str) -> WrittenFile:
    """Copy a file that is as recorded; raises as ``Sharing.share`` does."""
    found, size = hashlib.sha256(), 0
    blocks = blocks_of(source)
    first = next(blocks, b"")
    with drafted(path) as file:
        for block in chain([first], blocks):
            file.write(block)
            found.update(block)
            size += len(block)
        if found.hexdigest() != sha256:
            raise GoneError(f"{source} is not as recorded.")
    return WrittenFile(path, sha256, size)


def check(path: Path, sha256: str) -> None:
    """Raise ``GoneError`` or ``UnreadableError`` unless a file is as recorded."""
    found = hashlib.sha256()
    for block in blocks_of(path):
        found.update(block)
    if found.hexdigest() != sha256:
        raise GoneError(f"{path} is not as recorded.")


def identity(path: Path, sha256: str) -> Identity:
    """Of what is at a path, a link too; raises ``UnreadableError``."""
    try:
        seen = path.lstat()
    except OSError as error:
        raise unreadable(path, error) from error
    return Identity(seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, sha256)


def blocks_of(path: Path) -> Iterator[bytes]:
    """What is in a file; raises ``GoneError`` and ``UnreadableError``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise GoneError(f"{path} is no file.")
            while block := file.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        if error.errno in GONE:
            raise GoneError(f"{path} is no file: {error.strerror}.") from error
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """What an ``OSError`` of reading says."""
    return UnreadableError(f"{path} can't be read now: {error.strerror}.")

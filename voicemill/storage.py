"""Whether audio can be written now, and to the folder that it has always been written to.

A marker file is made in the output folder at the first start, and the store keeps what is in it. A
folder without that marker is another one, such as an empty mount point: nothing is written there.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from voicemill.errors import (
    DiskFullError,
    MountMissingError,
    OutputError,
    StorageError,
    SynthesisError,
)
from voicemill.health import MEBIBYTE
from voicemill.outputs import make_folder, storage_error, sync_folder
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger(__name__)

MARKER = ".voicemill"
PAUSE_SECONDS = 2.0
"""How long a write that failed is believed more than the folder's looks."""
SPARE = 2
"""A file that found no room is tried again when there is this many times its size."""


class Storage:
    """Watches one output folder. Threads may share it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._folder = settings.output_dir
        self._floor = settings.free_space_floor_mb * MEBIBYTE
        self._lock = threading.Lock()
        self._marker: str | None = None
        self._needed = 0
        self._believed_until = 0.0
        self._trouble: StorageError | None = None

    @property
    def trouble(self) -> StorageError | None:
        """What kept audio from being written at the last look."""
        return self._trouble

    def look(self) -> StorageError | None:
        """What keeps audio from being written now; raises what the store raises."""
        with self._lock:
            if self._trouble is None or time.monotonic() >= self._believed_until:
                self._set(self._find(thorough=self._trouble is not None))
            return self._trouble

    @contextmanager
    def writing(self, size: int) -> Iterator[None]:
        """While a file of about this size is written.

        Raises ``StorageError`` where it can't be because of the folder, ``OutputError`` where that
        is its own fault.
        """
        try:
            self.check()
            yield
        # A file that could not be written may be the first sign of a folder that went away.
        except (OutputError, StorageError) as error:
            raise self.refused(error, size) from error

    def refused(self, error: OutputError | StorageError, size: int) -> SynthesisError:
        """A file of this size could not be written; gives what that comes from."""
        with self._lock:
            if isinstance(error, DiskFullError):
                self._needed = SPARE * size
                found: StorageError | None = error
            else:
                found = self._find(thorough=True)
            if found is None:
                return OutputError(error.message)
            self._believed_until = time.monotonic() + PAUSE_SECONDS
            self._set(found)
            return found

    def check_room(self, size: int) -> None:
        """Raise ``DiskFullError`` where a file of this size would take what is to stay free."""
        free = shutil.disk_usage(self._folder).free
        if free - size < self._floor:
            raise DiskFullError(
                f"{self._folder} has {free // MEBIBYTE} MiB free; "
                f"{-(-(self._floor + size) // MEBIBYTE)} MiB are needed."
            )

    def check(self) -> None:
        """Raise ``StorageError`` where the folder is not the one that the store knows."""
        try:
            is_ours = self._marker is not None and read_marker(self._folder) == self._marker
        except OSError as error:
            raise storage_error(error, self._folder) from error
        if not is_ours:
            raise self._missing()

    def _find(self, *, thorough: bool) -> StorageError | None:
        try:
            if self._marker is None:
                self._marker = claim(self._store, self._folder)
            self.check()
            free, wanted = shutil.disk_usage(self._folder).free, max(self._floor, self._needed)
            if free < wanted:
                return DiskFullError(
                    f"{self._folder} has {free // MEBIBYTE} MiB free; "
                    f"{-(-wanted // MEBIBYTE)} MiB are needed."
                )
            if thorough:
                with probed(self._folder):
                    pass
        except StorageError as error:
            return error
        except OSError as error:
            return storage_error(error, self._folder)
        self._needed = 0
        return None

    def _set(self, trouble: StorageError | None) -> None:
        if trouble is not None and type(trouble) is not type(self._trouble):
            logger.error("no audio is written: %s: %s", trouble.code, trouble.message)
        elif trouble is None and self._trouble is not None:
            logger.warning("audio is written to %s again", self._folder)
        self._trouble = trouble

    def _missing(self) -> MountMissingError:
        return MountMissingError(
            f"{self._folder} is not the folder that audio was written to: it has no {MARKER} with "
            f"{self._marker}. Mount it again; or, if it was emptied on purpose, put that back."
        )


def claim(store: Store, folder: Path) -> str:
    """The marker that a folder must have; made where nobody has written to it before.

    Raises ``OSError``, and what the store raises.
    """
    known = store.output_marker(str(folder))
    if known is not None:
        return known
    if not folder.is_dir():
        make_folder(folder)
    return store.keep_output_marker(str(folder), read_marker(folder) or make_marker(folder))


def probed(folder: Path) -> IO[bytes]:
    """An empty file in a folder, which goes when it is closed; raises ``OSError``.

    Where it needs a name for a moment, the sweep knows that.
    """
    return tempfile.TemporaryFile(dir=folder, prefix=f"{MARKER}.", suffix=".tmp")


def read_marker(folder: Path) -> str | None:
    """What the marker in a folder says; nothing where there is none."""
    try:
        return (folder / MARKER).read_text("ascii").strip()
    except FileNotFoundError:
        return None


def make_marker(folder: Path) -> str:
    """Make the marker, whole at once; gives what it says, which another may have made first."""
    marker = uuid.uuid4().hex
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f"{MARKER}.", suffix=".tmp") as draft:
        draft.write(marker + "\n")
        draft.flush()
        os.fsync(draft.fileno())
        os.chmod(draft.name, 0o644)
        try:
            os.link(draft.name, folder / MARKER)
        except FileExistsError:
            return read_marker(folder) or marker
        sync_folder(folder)
    return marker

"""What each attempt at an item has for itself while the engine works on it, and how many there are.

A session is opened before anything is done for the attempt and destroyed whatever comes of it; what
is to end with it (a temporary folder, features of a prompt) is entered into its ``resources``.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from voicemill.errors import ItemTimeoutError, OutputTooLongError
from voicemill.jobs import ItemInput
from voicemill.limits import Limits
from voicemill.workers import SessionCounts

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Session:
    """The seeds, the limits and the resources of one attempt."""

    item: ItemInput
    limits: Limits = field(default_factory=Limits)
    draws: int = 0
    """Attempts before this one that failed as it spoke: each gives the next one other seeds."""
    resources: ExitStack = field(default_factory=ExitStack)
    """Closed with the session, the last that was entered first."""
    _folder: Path | None = None

    def seed(self, position: int) -> int | None:
        """The seed of its segment at a position, from 0; the same whatever is spoken beside it."""
        return seed_of(self.item.seed, position, self.draws)

    def folder(self) -> Path:
        """A temporary folder of its own, made when it is first asked for."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="voicemill-"))
            self.resources.callback(remove, self._folder)
        return self._folder

    def check(self, *, output_seconds: float = 0.0, device_seconds: float = 0.0) -> None:
        """Raise ``OutputTooLongError`` or ``ItemTimeoutError`` where it has taken too much."""
        longest, slowest = self.limits.max_output_seconds, self.limits.max_item_seconds
        if longest is not None and output_seconds > longest:
            raise OutputTooLongError(
                f"Its audio has {output_seconds:.1f} s so far and may have {longest:g}; "
                "split the text."
            )
        if slowest is not None and device_seconds > slowest:
            raise ItemTimeoutError(
                f"The engine took {device_seconds:.1f} s for it so far and may take {slowest:g}; "
                "split the text."
            )


class Sessions:
    """Opens and destroys the sessions of one child, and counts both. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = self._told = SessionCounts()

    @property
    def counts(self) -> SessionCounts:
        """How many were opened and destroyed since the child is ready."""
        return self._counts

    @contextmanager
    def session(
        self, item: ItemInput, limits: Limits | None = None, draws: int = 0
    ) -> Iterator[Session]:
        """A session for the time of a ``with`` block; however that ends, it is destroyed."""
        self._count(opened=1)
        try:
            with ExitStack() as resources:
                yield Session(item, limits or Limits(), draws, resources)
        finally:
            self._count(destroyed=1)

    def take_news(self) -> SessionCounts:
        """What was opened and destroyed since this was asked the last time."""
        with self._lock:
            news, self._told = self._counts - self._told, self._counts
        return news

    def return_news(self, news: SessionCounts) -> None:
        """Nobody heard of it: it is news again."""
        with self._lock:
            self._told -= news

    def _count(self, opened: int = 0, destroyed: int = 0) -> None:
        with self._lock:
            self._counts += SessionCounts(opened, destroyed)


def remove(folder: Path) -> None:
    """Take a folder away with all that is in it; one that can't be removed harms no item."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        logger.warning("the temporary folder %s stays: %s", folder, error)


def seed_of(seed: int | None, position: int, draws: int) -> int | None:
    """The seed of a segment: the item's own for its first one, others that follow from it after.

    An item that has none is free, until its speech failed: an engine that is free may draw the same
    again.
    """
    if (seed is None or position == 0) and draws == 0:
        return seed
    named = f"{seed or 0}/{position}/{draws}"
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big")

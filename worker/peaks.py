"""How much memory this process has at most while something runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

LOOK_SECONDS = 0.02
"""Between two looks; a peak that is over in less may be missed."""


class PeakWatch:
    """Looks again and again while the ``with`` block runs, and at both of its ends."""

    def __init__(self, look: Callable[[], int]) -> None:
        self._look = look
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self.bytes = 0
        """The most that was seen."""

    def __enter__(self) -> Self:
        self._see()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        self._see()

    def _watch(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            self._see()

    def _see(self) -> None:
        self.bytes = max(self.bytes, self._look())

"""Signals as flags that the loop looks at, and a way to wait that any of them cuts short."""

from __future__ import annotations

import select
import signal
import socket
from types import FrameType, TracebackType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """While entered, a stop signal sets ``stop``; it or the end of a child ends ``wait``."""

    def __init__(self) -> None:
        self.stop = False
        self._reader, self._writer = socket.socketpair()
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._fd_before = -1

    def __enter__(self) -> Self:
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._fd_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # Under nohup the end of the terminal is ignored, and stays so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_stop)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, self._on_child)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._reader.close()
        self._writer.close()

    def wait(self, seconds: float) -> None:
        """Sleep for so long, or until a signal comes."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            self._reader.recv(4096)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    def _on_child(self, number: int, frame: FrameType | None) -> None:
        """The byte in the wake-up socket is all that is wanted."""

"""A wire to Redis that can be cut, blocked and slowed down."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

BLOCK_BYTES = 65536
SLOW_SECONDS = 0.02
"""What each block of bytes takes longer."""
LOOK_SECONDS = 0.2


class Proxy:
    """Forwards every connection to its port, as long as it is open."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LOOK_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._flows = threading.Event()
        self._flows.set()
        self._delay = 0.0
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listening = threading.Thread(target=self._listen, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._listening.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._flows.set()
        self._listening.join()
        self._listener.close()
        self.cut()

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._sockets) // 2

    def cut(self) -> None:
        """Close every connection there is, in the middle of whatever it carries."""
        with self._lock:
            cut, self._sockets = self._sockets, set()
        for one in cut:
            shut(one)

    def stall(self, seconds: float) -> None:
        """Let nothing through for so long; connections stay."""
        self._flows.clear()
        self._ends.wait(seconds)
        self._flows.set()

    def slow(self, seconds: float) -> None:
        """Let everything through late for so long."""
        self._delay = SLOW_SECONDS
        self._ends.wait(seconds)
        self._delay = 0.0

    def _listen(self) -> None:
        while not self._ends.is_set():
            with suppress(TimeoutError):
                near, _ = self._listener.accept()
                self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 1)
        except OSError:
            shut(near)
            return
        far.settimeout(None)
        near.settimeout(None)
        with self._lock:
            self._sockets |= {near, far}
        for pair in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(BLOCK_BYTES):
                self._flows.wait()
                time.sleep(self._delay)
                sink.sendall(data)
        with self._lock:
            self._sockets -= {source, sink}
        shut(source)
        shut(sink)


def shut(one: socket.socket) -> None:
    """Close a socket that another thread may be reading."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()

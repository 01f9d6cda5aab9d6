"""Frames between a child and its engine's process: a head in JSON, then raw bytes.

A frame is ``MAGIC``, the length of the head (4 bytes), that of the body (8 bytes), head and body;
numbers are big-endian.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

MAGIC = b"VMF1"
LENGTHS = struct.Struct("!4sIQ")
LARGEST_HEAD = 16 * 2**20
LARGEST_BODY = 2**30
"""Bytes: more than an hour of sound at 48 kHz."""


class WireError(Exception):
    """What came, or was to be sent, is no frame."""


class Wire:
    """One end of a pair of sockets, for one thread."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, head: Mapping[str, Any], parts: Sequence[memoryview] = ()) -> None:
        """Send a frame whose body is made of ``parts``.

        Raises ``WireError`` for one that is too long, having sent nothing, and ``OSError`` when
        nobody is there.
        """
        text = json.dumps(head, default=plain).encode("ascii")
        size = sum(part.nbytes for part in parts)
        refuse_too_long(len(text), size)
        self._socket.sendall(LENGTHS.pack(MAGIC, len(text), size) + text)
        for part in parts:
            if part.nbytes:
                self._socket.sendall(part)

    def receive(self) -> tuple[dict[str, Any], bytearray]:
        """The next frame: its head and its body.

        Raises ``EOFError`` when the other end is closed, ``OSError`` when its process is gone, and
        ``WireError`` for what is no frame; nothing more can be read after that.
        """
        magic, head_size, size = LENGTHS.unpack(self._read(LENGTHS.size))
        if magic != MAGIC:
            raise WireError("it does not begin as a frame does")
        refuse_too_long(head_size, size)
        try:
            head = json.loads(self._read(head_size))
        except ValueError as error:
            raise WireError("its head is no JSON") from error
        if not isinstance(head, dict):
            raise WireError("its head is no JSON object")
        return head, self._read(size)

    def _read(self, size: int) -> bytearray:
        whole = bytearray(size)
        rest = memoryview(whole)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                raise EOFError("the other end is closed")
            rest = rest[count:]
        return whole


def refuse_too_long(head: int, body: int) -> None:
    """Raise ``WireError`` for lengths (bytes) that no frame has."""
    for name, size, most in (("head", head, LARGEST_HEAD), ("body", body, LARGEST_BODY)):
        if size > most:
            raise WireError(f"its {name} has {size} bytes, and {most} are the most")


def plain(value: Any) -> Any:
    """What JSON has no word for and a frame may hold."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} can't be sent to an engine's process")

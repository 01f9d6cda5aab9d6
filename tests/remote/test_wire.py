"""Frames between a child and its engine's process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from worker.remote.wire import LARGEST_BODY, LARGEST_HEAD, LENGTHS, MAGIC, Wire, WireError

Pair = tuple[Wire, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A wire and the bare socket at its other end."""
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(10)
        yield Wire(one), other


def frame(head: bytes, body: bytes = b"") -> bytes:
    return LENGTHS.pack(MAGIC, len(head), len(body)) + head + body


def test_what_is_sent_comes_out(pair: Pair) -> None:
    wire, other = pair
    parts = [memoryview(b"\x00\x01"), memoryview(b""), memoryview(bytes(2**20))]
    head = {"text": "\ud800 \u4f60", "path": Path("/a"), "map": MappingProxyType({"b": [1.5]})}
    thread = threading.Thread(target=wire.send, args=(head, parts))
    thread.start()
    found, body = Wire(other).receive()
    thread.join()
    assert found == {"text": "\ud800 \u4f60", "path": "/a", "map": {"b": [1.5]}}
    assert body == b"\x00\x01" + bytes(2**20)


def test_frames_come_one_by_one_however_they_are_cut(pair: Pair) -> None:
    wire, other = pair
    both = frame(b'{"n": 1}', b"abc") + frame(b'{"n": 2}')

    def drip() -> None:
        for byte in both:
            other.sendall(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    assert wire.receive() == ({"n": 1}, b"abc")
    assert wire.receive() == ({"n": 2}, b"")
    thread.join()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"A line that somebody printed\n", "does not begin as a frame"),
        (LENGTHS.pack(MAGIC, LARGEST_HEAD + 1, 0), f"head has {LARGEST_HEAD + 1} bytes"),
        (LENGTHS.pack(MAGIC, 2, LARGEST_BODY + 1), f"body has {LARGEST_BODY + 1} bytes"),
        (frame(b"{"), "no JSON"),
        (frame(b"\xff\xfe"), "no JSON"),
        (frame(b"[]"), "no JSON object"),
    ],
    ids=["text", "long head", "long body", "half JSON", "no text", "a list"],
)
def test_what_is_no_frame_is_refused(sent: bytes, said: str, pair: Pair) -> None:
    wire, other = pair
    other.sendall(sent)
    with pytest.raises(WireError, match=said):
        wire.receive()


@pytest.mark.parametrize("length", [0, 3, LENGTHS.size, LENGTHS.size + 4, LENGTHS.size + 9])
def test_a_frame_that_ends_too_early_is_the_end(length: int, pair: Pair) -> None:
    wire, other = pair
    other.sendall(frame(b'{"n": 1}', b"abc")[:length])
    other.close()
    with pytest.raises(EOFError):
        wire.receive()


def test_a_frame_that_is_too_long_is_not_begun(pair: Pair) -> None:
    wire, other = pair
    with pytest.raises(WireError, match="head has"):
        wire.send({"text": "x" * LARGEST_HEAD})
    wire.send({"n": 1})
    assert json.loads(other.recv(100)[LENGTHS.size :]) == {"n": 1}


def test_what_json_can_t_say_is_an_error(pair: Pair) -> None:
    with pytest.raises(TypeError, match="set can't be sent"):
        pair[0].send({"one": {1, 2}})

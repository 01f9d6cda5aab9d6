"""The wire that chaos breaks."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.chaos.proxy import Proxy
from tests.support import Valkey
from voicemill.errors import StoreUnavailableError
from voicemill.store import Store


def test_what_is_said_goes_through_and_a_cut_ends_each_connection(valkey: Valkey) -> None:
    with Proxy(valkey.port) as wire:
        with socket.create_connection(("127.0.0.1", wire.port), 5) as caller:
            caller.sendall(b"PING\r\n")
            assert caller.recv(16) == b"+PONG\r\n"
            assert wire.connections == 1
            wire.cut()
            assert caller.recv(16) == b""
        Store.connect(wire.url).ping()


def test_nothing_goes_through_while_it_stalls_and_all_does_afterwards(valkey: Valkey) -> None:
    with Proxy(valkey.port) as wire:
        store = Store.connect(wire.url, timeout=10)
        store.ping()
        began = time.monotonic()
        stalling = threading.Thread(target=wire.stall, args=(0.5,))
        stalling.start()
        store.ping()
        assert time.monotonic() - began >= 0.4
        stalling.join()
        store.close()


def test_a_server_that_is_away_is_a_lost_connection(valkey: Valkey) -> None:
    with Proxy(1) as wire, pytest.raises(StoreUnavailableError):
        Store.connect(wire.url).ping()

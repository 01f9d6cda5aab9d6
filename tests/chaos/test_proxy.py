"""The wire that chaos breaks."""

from __future__ import annotations

import threading
import time

import pytest

from tests.chaos.proxy import Proxy
from tests.support import Valkey, wait_until
from voicemill.errors import StoreUnavailableError
from voicemill.store import Store


def test_what_is_said_goes_through_and_a_cut_ends_each_connection(valkey: Valkey) -> None:
    with Proxy(valkey.port) as wire:
        store = Store.connect(wire.url)
        store.ping()
        assert wire.connections == 1
        wire.cut()
        with pytest.raises(StoreUnavailableError):
            store.ping()
        store.ping()
        store.close()
        wait_until(lambda: wire.connections == 0)


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

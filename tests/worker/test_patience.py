"""Waiting for a store that is away."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support import TONE, Valkey
from voicemill.errors import JobNotFoundError, StoreUnavailableError
from voicemill.store import Store
from worker.patience import patiently


def test_an_answer_is_passed_on(store: Store) -> None:
    patiently(1, store.publish_engine, TONE)
    assert patiently(1, store.engines) == {"tone": TONE}


def test_a_store_that_comes_back_is_waited_for(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    store.publish_engine(TONE)
    own_valkey.stop()
    back = threading.Timer(0.5, own_valkey.start)
    back.start()
    assert patiently(20, store.engines) == {"tone": TONE}
    back.join()
    store.close()


def test_a_store_that_stays_away_is_an_error_when_the_time_is_over() -> None:
    store = Store.connect("redis://127.0.0.1:1/0")
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        patiently(0.5, store.engines)
    assert 0.5 <= time.monotonic() - began < 3


def test_any_other_error_is_not_waited_for(store: Store) -> None:
    began = time.monotonic()
    with pytest.raises(JobNotFoundError):
        patiently(30, store.job, "job_none")
    assert time.monotonic() - began < 5

"""A second worker of a node name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from voicemill.errors import SettingsError
from voicemill.store import Store
from voicemill.workers import WorkerRecord
from worker.namesake import refuse_namesake, this_machine

NODE = "celery@here"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its end."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as made:
        yield made
        made.kill()


def beat(store: Store, pid: int, machine: str, started_at: float | None = None) -> None:
    """What a worker says each second."""
    at = time.time() if started_at is None else started_at
    store.beat_worker("one", WorkerRecord(NODE, pid, "tone", at, machine=machine), 60)


def test_nobody_of_the_name_was_heard_of(store: Store) -> None:
    refuse_namesake(store, NODE)
    assert store.worker(NODE) is None


def test_one_that_runs_on_this_machine_is_named(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    beat(store, process.pid, this_machine())
    with pytest.raises(SettingsError, match=rf"{NODE} runs already, as process {process.pid}\."):
        refuse_namesake(store, NODE)


def test_one_that_was_killed_is_replaced_at_once(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    beat(store, process.pid, this_machine())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    refuse_namesake(store, NODE)
    process.wait()
    refuse_namesake(store, NODE)


def test_a_later_process_of_its_pid_is_another(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    born = psutil.Process(process.pid).create_time()
    beat(store, process.pid, this_machine(), started_at=born - 60)
    refuse_namesake(store, NODE)


def test_its_own_pid_is_that_of_the_container_before(store: Store) -> None:
    beat(store, os.getpid(), this_machine())
    refuse_namesake(store, NODE)


def test_one_elsewhere_is_alive_when_it_is_heard_again(store: Store) -> None:
    beat(store, os.getpid(), "elsewhere")
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.wait(0.05):
            beat(store, os.getpid(), "elsewhere")

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        with pytest.raises(SettingsError, match="runs already"):
            refuse_namesake(store, NODE)
    finally:
        stopping.set()
        thread.join()


def test_one_elsewhere_that_is_silent_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.namesake.BEATS_SECONDS", 0.3)
    beat(store, os.getpid(), "elsewhere")
    refuse_namesake(store, NODE)

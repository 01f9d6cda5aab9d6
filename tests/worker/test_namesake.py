"""A second worker of a node name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import psutil
import pytest

from voicemill.errors import SettingsError
from voicemill.store import Store
from voicemill.workers import Claim
from worker.namesake import born_at, claim_name, this_machine

NODE = "celery@here"
MINE = Claim("mine", os.getpid(), this_machine(), born_at(os.getpid()) or 0.0)
NOBODY = Claim("nobody", 0, "", 0.0)
ELSEWHERE = replace(MINE, incarnation="other", machine="elsewhere")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its end."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as made:
        yield made
        made.kill()


def claim_of(pid: int) -> Claim:
    """What the worker in a process of this machine says of itself."""
    born = born_at(pid)
    assert born is not None
    return Claim(f"w{pid}", pid, this_machine(), born)


def has(store: Store, held: Claim) -> Claim:
    """Let somebody have the name."""
    assert store.claim_name(NODE, held, 60)[0] == held
    return held


def take(store: Store) -> Claim:
    """Claim the name for this process; gives who has it then."""
    claim_name(store, NODE, MINE, 60)
    return holder(store)


def holder(store: Store) -> Claim:
    """Who has the name, as somebody hears who gets it from nobody."""
    return store.claim_name(NODE, NOBODY, 60)[0]


def test_a_name_that_nobody_has_is_taken(store: Store) -> None:
    assert take(store) == MINE


def test_a_name_that_is_kept_lasts_for_another_lease(store: Store) -> None:
    claim_name(store, NODE, MINE, 5)
    assert store.claim_name(NODE, NOBODY, 5)[1] <= 5
    claim_name(store, NODE, MINE, 60)
    assert store.claim_name(NODE, NOBODY, 5)[1] > 50


def test_one_that_runs_on_this_machine_is_named(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    held = has(store, claim_of(process.pid))
    with pytest.raises(SettingsError, match=rf"{NODE} runs already, as process {process.pid}\."):
        take(store)
    assert holder(store) == held


def test_one_that_was_killed_is_replaced_at_once(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    has(store, claim_of(process.pid))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert take(store) == MINE


def test_one_that_is_gone_is_replaced_at_once(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    has(store, claim_of(process.pid))
    process.kill()
    process.wait()
    assert take(store) == MINE


def test_a_later_process_of_its_pid_is_another(
    store: Store, process: subprocess.Popen[bytes]
) -> None:
    later = claim_of(process.pid)
    has(store, replace(later, born=later.born - 1))
    assert take(store) == MINE


def test_its_own_pid_is_that_of_the_container_before(store: Store) -> None:
    has(store, replace(MINE, incarnation="before", born=MINE.born - 1))
    assert take(store) == MINE


def test_one_elsewhere_is_alive_when_it_is_heard_again(store: Store) -> None:
    held = has(store, ELSEWHERE)
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.wait(0.05):
            store.claim_name(NODE, held, 60)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        with pytest.raises(SettingsError, match="runs already"):
            take(store)
    finally:
        stopping.set()
        thread.join()
    assert holder(store) == held


def test_one_elsewhere_that_is_silent_is_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.namesake.BEATS_SECONDS", 0.3)
    has(store, ELSEWHERE)
    assert take(store) == MINE


def test_one_elsewhere_that_ends_meanwhile_leaves_the_name(store: Store) -> None:
    held = has(store, ELSEWHERE)
    ending = threading.Timer(0.15, store.forget_worker, (NODE, held))
    ending.start()
    assert take(store) == MINE
    ending.join()


def test_one_that_lost_its_name_takes_nothing_from_its_heir_when_it_ends(store: Store) -> None:
    before = has(store, replace(MINE, incarnation="before", born=0.0))
    heir = take(store)
    store.forget_worker(NODE, before)
    assert holder(store) == heir


@pytest.mark.parametrize("of_the_dead", [False, True])
def test_of_many_that_start_at_the_same_time_one_gets_the_name(
    of_the_dead: bool, store: Store
) -> None:
    command = [sys.executable, "-S", "-c", "input()"]
    with ExitStack() as running:
        many = []
        for _ in range(6):
            one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            running.enter_context(one)
            running.callback(one.kill)
            many.append(claim_of(one.pid))
        for _ in range(20):
            store.forget_worker(NODE, holder(store))
            if of_the_dead:
                has(store, replace(MINE, incarnation="dead", pid=2**22 + 1))
            start = threading.Barrier(len(many))

            def begins(mine: Claim, start: threading.Barrier = start) -> bool:
                start.wait()
                try:
                    claim_name(store, NODE, mine, 60)
                except SettingsError:
                    return False
                return True

            with ThreadPoolExecutor(len(many)) as pool:
                began = list(pool.map(begins, many))
            assert sum(began) == 1
            assert holder(store) == many[began.index(True)]

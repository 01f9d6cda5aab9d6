"""The health check of a worker's container, asked on a real store."""

from __future__ import annotations

import socket

import pytest

from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker import ready

HERE, BESIDE = f"celery@{socket.gethostname()}", f"other@{socket.gethostname()}"
AWAY = "celery@elsewhere"


@pytest.fixture(autouse=True)
def environ(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEMILL_REDIS_URL", redis_url)


def beat(store: Store, node: str, *, takes_work: bool) -> None:
    store.beat_child(
        ChildRecord(f"{node}/1", node, 1, "tone", "1", ready_at=0.0), 60, takes_work=takes_work
    )


def test_a_worker_is_ready_while_one_of_its_children_takes_work(store: Store) -> None:
    assert ready.main([]) == 1
    beat(store, HERE, takes_work=True)
    assert ready.main([]) == 0


def test_a_child_that_leaves_still_beats_and_makes_nobody_ready(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(store, HERE, takes_work=True)
    beat(store, HERE, takes_work=False)
    assert len(store.snapshot().children) == 1
    assert ready.main([]) == 1
    assert capsys.readouterr().err == f"0 children of {socket.gethostname()} take work.\n"


def test_a_child_on_another_host_makes_nobody_ready_here(store: Store) -> None:
    beat(store, AWAY, takes_work=True)
    assert ready.main([]) == 1
    assert ready.main([AWAY]) == 0


def test_one_worker_of_several_on_a_host_can_be_asked_for(store: Store) -> None:
    beat(store, HERE, takes_work=True)
    beat(store, BESIDE, takes_work=False)
    assert ready.main([HERE]) == 0
    assert ready.main([BESIDE]) == 1


def test_a_name_that_no_worker_has_gets_the_usage_and_the_names_there_are(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(store, HERE, takes_work=True)
    beat(store, AWAY, takes_work=True)
    with pytest.raises(SystemExit) as caught:
        ready.main(["hibari"])
    assert caught.value.code == 2
    usage, line = capsys.readouterr().err.splitlines()
    assert usage == "usage: python -m worker.ready [-h] [node]"
    names = ", ".join(sorted([HERE, AWAY]))
    assert line.endswith(f"error: no child of 'hibari' was heard of; there are: {names}")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("VOICEMILL_REDIS_URL", "redis://127.0.0.1:1/0", "Redis"),
        ("VOICEMILL_WORKERS", "many", "VOICEMILL_WORKERS='many' can't be used"),
    ],
)
def test_what_keeps_it_from_asking_is_one_line_and_not_ready(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert ready.main([]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1

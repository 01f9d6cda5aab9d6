"""A heartbeat that fails for a reason nobody thought of ends its worker, which is started anew."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import wait_until
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import WorkerRecord
from worker.heartbeat import Heartbeat
from worker.intake import Intake

UNHEARD = "redis://127.0.0.1:1/0"


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr("worker.heartbeat.os.kill", lambda *args: found.append(args))
    return found


def heartbeat(store: Store, settings: Settings, record: WorkerRecord | None) -> Heartbeat:
    def tell() -> WorkerRecord:
        if record is None:
            raise KeyError("a release that is not known")
        return record

    return Heartbeat(store, settings, "node", Intake("synthesis.tone"), tell)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_heartbeat_that_can_not_go_on_stops_its_worker(
    store: Store, redis_url: str, tmp_path: Path, killed: list[tuple[int, int]]
) -> None:
    settings = Settings(redis_url=redis_url, engine="tone", output_dir=tmp_path)
    beats = heartbeat(store, settings, None)
    assert beats.start()
    wait_until(lambda: killed, what="the end of the worker")
    beats.stop()
    assert killed == [(os.getpid(), signal.SIGTERM)]


def test_a_heartbeat_that_is_stopped_ends_nothing(
    store: Store, redis_url: str, tmp_path: Path, killed: list[tuple[int, int]]
) -> None:
    settings = Settings(redis_url=redis_url, engine="tone", output_dir=tmp_path)
    beats = heartbeat(store, settings, WorkerRecord("node", 1, "tone", 0.0, [], []))
    assert beats.start()
    beats.stop()
    assert killed == []


def test_a_name_is_not_known_to_be_ours_while_the_store_is_away(
    redis_url: str,
    tmp_path: Path,
    killed: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.heartbeat.STORE_PATIENCE_SECONDS", 0.0)
    settings = Settings(redis_url=redis_url, engine="tone", output_dir=tmp_path)
    beats = heartbeat(
        Store.connect(UNHEARD),
        replace(settings, redis_url=UNHEARD),
        WorkerRecord("node", 1, "tone", 0.0, [], []),
    )
    assert not beats.start()
    beats.stop()
    assert killed == []

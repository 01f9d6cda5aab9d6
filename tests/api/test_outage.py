"""Redis away, frozen or back: an answer within two seconds, and no half-made job."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from api.app import create_app
from api.context import EXTENSION
from tests.api.fleet import Fleet
from tests.support import TONE, Valkey
from voicemill.dispatch import Dispatcher
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store

LONGEST_SECONDS = 2.0
BODY = {"inputs": [{"input": "Hello."}]}
CALLS = [
    ("POST", "/v1/jobs"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/job_1"),
    ("GET", "/v1/jobs/job_1?wait=10"),
    ("POST", "/v1/jobs/job_1/cancel"),
    ("GET", "/v1/jobs/job_1/items"),
    ("GET", "/v1/jobs/job_1/items/a/audio"),
    ("GET", "/v1/models"),
    ("GET", "/v1/voices"),
    ("GET", "/metrics"),
]
VERDICTS = ("/readyz", "/health")
REDIS_FREE = ("/healthz", "/docs", "/openapi.json")


@pytest.fixture
def app(own_valkey: Valkey, tmp_path: Path) -> Flask:
    """An API whose Redis is this test's own, used once already."""
    Store.connect(own_valkey.url).publish_engine(TONE)
    settings = Settings(redis_url=own_valkey.url, engine="tone", output_dir=tmp_path)
    app = create_app(settings)
    assert call(app, *CALLS[0]).status_code == 202
    return app


def call(app: Flask, method: str, path: str) -> TestResponse:
    """One call, which must not take long."""
    started = time.monotonic()
    body = BODY if (method, path) == CALLS[0] else None
    response = app.test_client().open(path, method=method, json=body)
    assert time.monotonic() - started < LONGEST_SECONDS
    return response


def check_unavailable(app: Flask) -> None:
    """Every route that needs Redis says so, and the others go on."""
    calls = CALLS + [("GET", path) for path in (*VERDICTS, *REDIS_FREE)] + [CALLS[0]] * 9
    with ThreadPoolExecutor(len(calls)) as pool:
        responses = pool.map(lambda one: call(app, *one), calls)
    for (_, path), response in zip(calls, responses, strict=True):
        if path in REDIS_FREE:
            assert response.status_code == 200, path
            continue
        body = response.get_json(force=True)
        assert response.status_code == 503, path
        assert response.headers["Retry-After"] == "2"
        if path in VERDICTS:
            assert (body["checks"][0]["name"], body["checks"][0]["ok"]) == ("store", False)
        else:
            assert body["code"] == "store_unavailable"
            assert "127.0.0.1" not in body["detail"]


def test_a_redis_that_died_is_answered_for_and_its_return_noticed(
    app: Flask, own_valkey: Valkey
) -> None:
    own_valkey.stop()
    check_unavailable(app)

    own_valkey.start()

    assert call(app, *CALLS[0]).status_code == 202
    assert len(call(app, "GET", "/v1/jobs").get_json()["data"]) == 2


def test_a_redis_that_hangs_is_answered_for_and_its_return_noticed(
    app: Flask, own_valkey: Valkey
) -> None:
    assert own_valkey.process is not None
    own_valkey.process.send_signal(signal.SIGSTOP)
    try:
        check_unavailable(app)
    finally:
        own_valkey.process.send_signal(signal.SIGCONT)

    assert call(app, *CALLS[0]).status_code == 202


@pytest.mark.parametrize("part", ["store", "queue"])
def test_a_stored_job_is_accepted_though_admission_fails(
    store: Store,
    settings: Settings,
    fleet: Fleet,
    own_valkey: Valkey,
    caplog: pytest.LogCaptureFixture,
    part: str,
) -> None:
    store.publish_engine(TONE)
    fleet.live()
    app = create_app(settings)
    hung = replace(settings, redis_url=own_valkey.url)
    dispatcher = (
        Dispatcher(Store.connect(own_valkey.url), Queue(settings), settings)
        if part == "store"
        else Dispatcher(store, Queue(hung), settings)
    )
    app.extensions[EXTENSION] = replace(app.extensions[EXTENSION], dispatcher=dispatcher)
    assert own_valkey.process is not None
    own_valkey.process.send_signal(signal.SIGSTOP)

    response = call(app, *CALLS[0])

    assert response.status_code == 202
    assert store.job(response.get_json()["id"]).counts.queued == 1
    assert [one.levelname for one in caplog.records] == ["WARNING"]


class LastAct(Dispatcher):
    """Redis dies as soon as a job is stored."""

    def __init__(self, server: Valkey, settings: Settings) -> None:
        super().__init__(Store.connect(server.url), Queue(settings), settings)
        self.server = server

    def admit(self, engines: Iterable[str] | None = None) -> int:
        self.server.stop()
        return super().admit(engines)


def test_a_job_that_was_stored_is_accepted_though_redis_died_at_once(
    app: Flask, own_valkey: Valkey
) -> None:
    here = app.extensions[EXTENSION]
    last_act = LastAct(own_valkey, here.settings)
    app.extensions[EXTENSION] = replace(here, dispatcher=last_act)

    response = call(app, *CALLS[0])

    body = response.get_json()
    assert response.status_code == 202
    assert response.headers["Location"] == f"/v1/jobs/{body['id']}"
    assert (body["status"], body["status_reason"]) == ("queued", None)
    assert body["request_counts"]["queued"] == body["request_counts"]["total"] == 1
    own_valkey.start()
    assert here.store.job(body["id"]).counts.queued == 1


def test_a_redis_that_takes_no_writes_refuses_jobs_and_still_shows_them(
    app: Flask, own_valkey: Valkey
) -> None:
    with socket.create_connection(("127.0.0.1", own_valkey.port), 5) as connection:
        connection.sendall(b"CONFIG SET maxmemory 1\r\n")
        assert connection.recv(16).startswith(b"+OK")

    refused = call(app, *CALLS[0])

    assert refused.status_code == 503
    assert refused.get_json(force=True)["code"] == "store_refused"
    assert refused.headers["Retry-After"] == "2"
    assert len(call(app, "GET", "/v1/jobs").get_json()["data"]) == 1

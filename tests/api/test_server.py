"""The API as it is served: gunicorn, sockets, signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.requests import MAX_BODY_BYTES
from tests.support import TONE, Valkey, free_port, wait_until
from voicemill.settings import Settings
from voicemill.store import Store

ROOT = Path(__file__).parents[2]


def serve(port: int, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """The server as it is started everywhere."""
    command = [
        *(sys.executable, "-m", "gunicorn", "--worker-class", "gthread", "--threads", "4"),
        *("--bind", f"127.0.0.1:{port}", "--no-control-socket", "api.wsgi:app"),
    ]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | environ, stderr=subprocess.PIPE)


def answers(client: httpx.Client) -> bool:
    """True once the API is loaded; the server listens, and holds who calls, long before."""
    try:
        return client.get("/healthz", timeout=60).status_code == 200
    except httpx.ConnectError:
        return False


@pytest.fixture(scope="module")
def served(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a served API; it stops without a word about failure."""
    port = free_port()
    settings = Settings(
        redis_url=valkey.url, engine="tone", output_dir=tmp_path_factory.mktemp("outputs")
    )
    process = serve(port, settings.to_env())
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            wait_until(lambda: answers(client), 60, "the server")
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert process.returncode == 0, log
    assert b"Traceback" not in log


@pytest.fixture
def server(served: httpx.Client, store: Store) -> httpx.Client:
    """The same, its database empty but for one engine."""
    store.publish_engine(TONE)
    return served


def test_a_job_can_be_sent_and_looked_at(server: httpx.Client) -> None:
    created = server.post("/v1/jobs", json={"inputs": [{"input": "Hello."}]})
    shown = server.get(created.headers["Location"])

    assert created.status_code == 202
    assert shown.json()["id"] == created.json()["id"]
    assert server.get("/docs").status_code == 200


def test_a_body_over_the_limit_is_refused_whichever_way_it_comes(server: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    content = b"[" + b" " * MAX_BODY_BYTES + b"]"
    pieces = (content[start : start + 65536] for start in range(0, len(content), 65536))

    whole = server.post("/v1/jobs", content=content, headers=headers)
    chunked = server.post("/v1/jobs", content=pieces, headers=headers)

    for response in (whole, chunked):
        assert response.status_code == 413
        assert response.json()["code"] == "payload_too_large"


def raw_status(server: httpx.Client, framing: bytes, body: bytes) -> tuple[int, bytes]:
    """Status and body of what is answered to a body that then ends."""
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", server.base_url.port or 0), 10) as connection:
        connection.sendall(head + framing + b"\r\nConnection: close\r\n\r\n" + body)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: 100", b'{"inputs":[{"input":"Hi."}]}'),
        (b"Transfer-Encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"1\r\n{}\r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b'1c\r\n{"inputs":[{"input":"Hi."}]}\r\n'),
    ],
    ids=["short", "no number", "wrong number", "no end"],
)
def test_a_body_that_is_not_whole_is_a_bad_request(
    server: httpx.Client, store: Store, framing: bytes, body: bytes
) -> None:
    status, problem = raw_status(server, framing, body)

    assert status == 400
    assert json.loads(problem)["code"] == "bad_request"
    assert store.jobs("default").jobs == []


def test_a_cancel_without_a_body_is_taken(server: httpx.Client) -> None:
    job = server.post("/v1/jobs", json={"inputs": [{"input": "Hello."}]}).json()

    assert server.post(job["urls"]["cancel"]).json()["status"] == "cancelled"


def test_a_setting_that_cannot_be_used_stops_the_start_and_is_named() -> None:
    process = serve(free_port(), {"VOICEMILL_LOG_LEVEL": "LOUD"})
    _, log = process.communicate(timeout=20)

    assert process.returncode != 0
    assert b"VOICEMILL_LOG_LEVEL='LOUD' can't be used" in log

"""What many clients send at once is never mixed up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile

from tests.e2e.solo import SoloWorker
from tests.e2e.stack import Stack
from worker.engines.tone import pitch, seconds
from worker.exits import EXIT_MISCONFIGURED

pytestmark = pytest.mark.full

CLIENTS = 40
VOICES = ("low", "high")
SHORT, LONGER = "Hi", "Hi, here is a somewhat longer line"
FAILS = "{tone:fail} Never heard"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("cross") / "home"
    stack = Stack(
        home, "--engine", "tone", "--workers", "2", env={"VOICEMILL_RETRY_SECONDS": "off"}
    )
    stack.start()
    yield stack
    assert stack.stop() == 0


def heard(audio: bytes) -> tuple[float, float]:
    """Frequency (Hz) and duration (s) of a tone."""
    samples, rate = soundfile.read(BytesIO(audio))
    # Long enough for a step of a hundredth of a hertz.
    spectrum = np.abs(np.fft.rfft(samples, 100 * rate))
    return float(np.argmax(spectrum)) / 100, len(samples) / rate


def lines(client: int) -> list[str]:
    """A short text and a longer one, no two clients the same."""
    return [f"{SHORT} {client}", f"{LONGER}, {client}", FAILS]


def test_each_file_has_the_text_and_the_voice_of_its_own_item(stack: Stack) -> None:
    def submit(client: int) -> str:
        job_id = stack.submit(lines(client), voice=VOICES[client % 2])
        # Every eighth client thinks better of it.
        if client % 8 == 7:
            stack.request("POST", f"/v1/jobs/{job_id}/cancel")
        return job_id

    with ThreadPoolExecutor(CLIENTS) as clients:
        jobs = list(clients.map(submit, range(CLIENTS)))
    endings: set[str] = set()
    for client, job_id in enumerate(jobs):
        stack.wait_for(job_id)
        for text, item in zip(lines(client), stack.items(job_id), strict=True):
            endings.add(item["status"])
            if item["status"] == "succeeded":
                frequency, duration = heard(Path(item["audio_path"]).read_bytes())
                assert frequency == pytest.approx(pitch(text, VOICES[client % 2]), abs=0.3)
                assert duration == pytest.approx(seconds(text), abs=0.001)
            else:
                assert text == FAILS or item["status"] == "cancelled"
    assert endings >= {"succeeded", "failed"}


def test_a_slow_reader_gets_its_file_whole_while_others_are_written(stack: Stack) -> None:
    job_id = stack.submit([LONGER])
    stack.wait_for(job_id)
    (item,) = stack.items(job_id)
    other = stack.submit([f"Meanwhile, {number}" for number in range(200)])
    body = read_slowly(stack.url + item["audio_url"])
    assert len(body) == item["size_bytes"]
    assert heard(body)[0] == pytest.approx(pitch(LONGER, "low"), abs=0.3)
    assert stack.wait_for(other)["request_counts"]["completed"] == 200


def read_slowly(url: str) -> bytes:
    """The body of an answer, taken a kilobyte at a time through a small buffer."""
    parts = urlsplit(url)
    received = b""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((parts.hostname, parts.port))
        request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        while part := connection.recv(1024):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return body


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_worker_of_another_pool_does_not_start(pool: str, tmp_path: Path, redis_url: str) -> None:
    worker = SoloWorker(redis_url, tmp_path, "-P", pool)
    worker.launch()
    try:
        worker.wait_until("its end", lambda: worker.exit_status is not None)
    finally:
        worker.__exit__()
    assert worker.exit_status == EXIT_MISCONFIGURED
    assert "leave out -P (--pool)" in worker.log

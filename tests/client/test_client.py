"""The HTTP client against the wire."""

from __future__ import annotations

import hashlib
import time
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

from tests.bulk.wire_double import Answer, WireDouble, problem, speech
from tests.support import free_port
from voicemill.client import (
    AudioMismatchError,
    Client,
    ClientError,
    ServerProblemError,
    ServerUnreachableError,
)
from voicemill.errors import Fault, VoicemillError
from voicemill.transport import retry_after_seconds

BUSY = problem(503, "store_unavailable", "The queue can't be reached.")


def test_a_job_is_created_followed_listed_and_fetched(wire: WireDouble, tmp_path: Path) -> None:
    with Client(wire.url) as client:
        job = client.create_job(
            [{"custom_id": f"n{number}", "input": f"Line {number}."} for number in range(1050)],
            metadata={"book": "x"},
        )
        ended = client.job(job["id"], wait_seconds=1)
        items = list(client.items(job["id"]))
        size = client.download(job["id"], "n7", tmp_path / "n7.wav", sha256=items[7]["sha256"])

    assert ended["status"] == "completed"
    assert [item["custom_id"] for item in items] == [f"n{number}" for number in range(1050)]
    assert [item.name for item in tmp_path.glob("*.wav")] == ["n7.wav"]
    assert (tmp_path / "n7.wav").read_bytes() == speech("Line 7.")
    assert size == items[7]["size_bytes"]


def test_models_and_voices_are_listed_and_a_job_is_cancelled(wire: WireDouble) -> None:
    with Client(f"{wire.url}/") as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])

        assert [model["id"] for model in client.models()] == ["tone"]
        assert [voice["id"] for voice in client.voices()] == ["heart", "low"]
        assert client.cancel(job["id"])["status"] == "cancelled"


def test_what_failed_runs_again_and_a_job_is_deleted(wire: WireDouble) -> None:
    with Client(wire.url) as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])
        with pytest.raises(ServerProblemError, match="It has not ended"):
            client.delete(job["id"])
        client.job(job["id"])

        assert client.retry(job["id"])["id"] == job["id"]
        assert wire.retried == [job["id"]]
        client.delete(job["id"])
        assert wire.jobs == {}

        other = client.create_job([{"custom_id": "b", "input": "Hello."}])
        client.delete(other["id"], cancel=True)

    assert wire.jobs == {}
    assert wire.requests[-1] == f"DELETE /v1/jobs/{other['id']}?cancel=true"


def test_a_job_is_deleted_though_the_answer_is_lost(wire: WireDouble) -> None:
    with Client(wire.url) as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])
        wire.lost_answers = 1
        client.delete(job["id"], cancel=True)
        assert wire.jobs == {}
        with pytest.raises(ServerProblemError) as caught:
            client.delete(job["id"])

    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("api_key", "header"), [("vm_a", "Bearer vm_a"), (None, None)], ids=["a key", "none"]
)
def test_a_key_goes_with_every_request(
    wire: WireDouble, tmp_path: Path, api_key: str | None, header: str | None
) -> None:
    with Client(wire.url, api_key=api_key) as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])
        client.job(job["id"])
        client.download(job["id"], "a", tmp_path / "a.wav")

    assert wire.authorizations == {header}


def test_a_problem_keeps_its_code_status_and_the_places_it_points_at(wire: WireDouble) -> None:
    with Client(wire.url) as client, pytest.raises(ServerProblemError) as caught:
        client.create_job([{"custom_id": "a", "input": "Hello.", "voice": "nobody"}])

    error = caught.value
    assert isinstance(error, VoicemillError)
    assert (error.status, error.code, error.retryable) == (422, "invalid_input", False)
    assert error.faults == (Fault("voice_not_found", "No voice 'nobody'.", "/inputs/0/voice"),)


def test_a_busy_server_is_asked_again_after_the_time_it_names(wire: WireDouble) -> None:
    wire.instead.append(Answer(503, BUSY, {"Retry-After": "1"}))
    began = time.monotonic()

    with Client(wire.url) as client:
        models = client.models()

    assert [model["id"] for model in models] == ["tone"]
    assert 1.0 <= time.monotonic() - began < 3.0
    assert len(wire.requests) == 2


def test_a_wait_longer_than_the_patience_is_not_begun(wire: WireDouble) -> None:
    wire.instead.append(Answer(429, problem(429, "busy", "Too much."), {"Retry-After": "100"}))
    began = time.monotonic()

    with Client(wire.url, patience_seconds=5) as client, pytest.raises(ServerProblemError) as error:
        client.models()

    assert (error.value.status, error.value.retryable) == (429, True)
    assert time.monotonic() - began < 1.0


def test_a_lost_connection_is_tried_again_under_the_same_idempotency_key(wire: WireDouble) -> None:
    wire.drops = 1
    wire.instead.append(Answer(503, BUSY, {"Retry-After": "0"}))

    with Client(wire.url) as client:
        client.create_job([{"custom_id": "a", "input": "Hello."}])
        client.create_job([{"custom_id": "b", "input": "Hello."}])

    assert wire.requests == ["POST /v1/jobs"] * 4
    assert wire.created == [["a"], ["b"]]
    assert len(set(wire.keys)) == 2


def test_a_server_that_is_not_there_is_named_within_the_patience() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()

    with (
        Client(url, patience_seconds=0.5) as client,
        pytest.raises(ServerUnreachableError, match=url),
    ):
        client.models()

    assert time.monotonic() - began < 3.0


@pytest.mark.parametrize(
    "url", ["ftp://example", "nowhere", "localhost:8080", "http://[::1", "http://", ""]
)
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ClientError, match="no address"):
        Client(url)


def test_a_proxy_of_the_environment_that_cannot_be_used_is_named(
    wire: WireDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "ftp://127.0.0.1:1")

    with pytest.raises(ClientError, match=r"proxy in the environment can't be used: .*ftp"):
        Client("http://voicemill.example")
    with Client(wire.url) as client:
        assert [model["id"] for model in client.models()] == ["tone"]


def test_a_client_that_gave_up_does_not_try_again(wire: WireDouble) -> None:
    wire.drops = 2
    with Client(wire.url) as client:
        client.give_up()
        with pytest.raises(ServerUnreachableError):
            client.models()

    assert len(wire.requests) == 1


def test_an_answer_of_another_service_is_told_apart(wire: WireDouble) -> None:
    wire.instead.append(Answer(404, {"error": "who are you?"}))

    with Client(wire.url) as client, pytest.raises(ServerProblemError) as caught:
        client.models()

    assert caught.value.code == "unexpected_answer"
    assert "is the URL right?" in caught.value.message


def test_damaged_audio_never_gets_its_name(wire: WireDouble, tmp_path: Path) -> None:
    wire.damaged.add("a")
    with Client(wire.url) as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])
        client.job(job["id"])
        sha256 = hashlib.sha256(speech("Hello.")).hexdigest()

        with pytest.raises(AudioMismatchError, match=sha256):
            client.download(job["id"], "a", tmp_path / "a.wav", sha256=sha256)

    assert [path.name for path in tmp_path.iterdir()] == ["server"]


def test_a_download_that_is_cut_off_starts_over(wire: WireDouble, tmp_path: Path) -> None:
    with Client(wire.url) as client:
        job = client.create_job([{"custom_id": "a", "input": "Hello."}])
        client.job(job["id"])
        wire.drops = 2

        client.download(job["id"], "a", tmp_path / "a.wav")

    assert (tmp_path / "a.wav").read_bytes() == speech("Hello.")


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("0", 0.0), ("", None), ("soon", None), ("-1", None)]
)
def test_retry_after_is_seconds_or_nothing(text: str, seconds: float | None) -> None:
    response = httpx.Response(503, headers={"Retry-After": text} if text else {})

    assert retry_after_seconds(response) == seconds


def test_retry_after_may_be_a_date() -> None:
    later = formatdate(time.time() + 10, usegmt=True)
    earlier = formatdate(time.time() - 10, usegmt=True)

    assert 8 < (retry_after_seconds(httpx.Response(503, headers={"Retry-After": later})) or 0) <= 10
    assert retry_after_seconds(httpx.Response(503, headers={"Retry-After": earlier})) == 0

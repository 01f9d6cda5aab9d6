"""One file of all the audio of a job, over HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from api.submission import Submission
from tests.api.fleet import Fleet
from tests.support import TONE
from voicemill.errors import InvalidInputError
from voicemill.jobs import ItemError, JobAudio
from voicemill.settings import Settings
from voicemill.store import Join, Store
from voicemill.voices import Capabilities, Voice

Post = Callable[..., dict[str, Any]]

OTHER = Capabilities(
    engine="other", model_revision="1", sample_rate=8000, voices=(Voice("only", ("en",)),)
)
WHOLE = bytes(range(256)) * 4
SILENT = ItemError("silent_audio", "It is silent.", True)
BROKEN = ItemError("mixed_sample_rates", "They differ.", False)


def read(**body: Any) -> Any:
    return Submission({"tone": TONE, "other": OTHER}, Settings(engine="tone")).read(body)


def faults_of(**body: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        read(**body)
    return [(fault.pointer, fault.code) for fault in caught.value.faults]


def take(store: Store) -> Join:
    join = store.take_finalizing(60)
    assert join is not None
    return join


@pytest.fixture
def waiting(post: Post, fleet: Fleet) -> dict[str, Any]:
    """A job that waits for a clerk, with an item that failed."""
    job = post("One.", "Two.", concatenate=True, concatenate_silence_ms=300)
    fleet.end({0: b"audio", 1: SILENT})
    return job


def joined(store: Store, folder: Path) -> JobAudio:
    """The one file of the job that waits for it."""
    path = folder / "whole.wav"
    path.write_bytes(WHOLE)
    sha256 = hashlib.sha256(WHOLE).hexdigest()
    audio = JobAudio(str(path), sha256, len(WHOLE), 1.25, 24000, "wav", 1)
    assert store.end_finalizing(take(store), audio)
    return audio


# --- at the door ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"concatenate": False}, None),
        ({"concatenate": True}, 0),
        ({"concatenate": True, "concatenate_silence_ms": 10_000}, 10_000),
    ],
)
def test_a_job_says_whether_it_wants_one_file(fields: dict[str, Any], expected: int | None) -> None:
    _, head = read(inputs=[{"input": "Hello."}], **fields)
    assert head.rules.concatenate_silence_ms == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("concatenate", value) for value in ("yes", 1, None, [])),
        *(("concatenate_silence_ms", value) for value in (-1, 10_001, 1.5, "1", True, None)),
        ("concatenate_silence_ms", 100),  # of nothing
    ],
)
def test_values_that_can_not_be_used_are_pointed_at(field: str, value: Any) -> None:
    assert faults_of(inputs=[{"input": "Hello."}], **{field: value}) == [
        (f"/{field}", "invalid_value")
    ]


@pytest.mark.parametrize(
    ("inputs", "pointer"),
    [
        ([{}, {}, {"response_format": "mp3"}, {"response_format": "flac"}], "2/response_format"),
        ([{"response_format": "mp3"}, {}], "1"),
        ([{}, {"model": "other"}], "1/model"),
        ([{"model": "other"}, {"model": "tone"}, {}], "1/model"),
    ],
)
def test_the_first_input_that_differs_is_pointed_at(
    inputs: list[dict[str, str]], pointer: str
) -> None:
    texts = [{"input": "Hello.", **fields} for fields in inputs]
    assert faults_of(inputs=texts, concatenate=True) == [(f"/inputs/{pointer}", "invalid_value")]
    read(inputs=texts)


def test_other_faults_are_told_with_it() -> None:
    texts = [{"input": "..."}, {"input": "Hello.", "response_format": "mp3"}, {"input": 5}]
    assert sorted(faults_of(inputs=texts, concatenate=True, concatenate_silence_ms=-1)) == [
        ("/concatenate_silence_ms", "invalid_value"),
        ("/inputs/0/input", "no_speakable_text"),
        ("/inputs/1/response_format", "invalid_value"),
        ("/inputs/2/input", "invalid_value"),
    ]


# --- what a job says ------------------------------------------------------------


def test_a_job_that_does_not_ask_has_none(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    job = post("One.")
    fleet.end({0: b"audio"})
    body = client.get(job["urls"]["get"]).get_json()
    assert (body["status"], body["concatenation"]) == ("completed", None)
    assert body["urls"]["audio"] is None
    answer = client.get(f"{job['urls']['get']}/audio")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no_audio")


def test_a_job_waits_in_finalizing_and_then_says_all_of_its_audio(
    client: FlaskClient, waiting: dict[str, Any], store: Store, fleet: Fleet
) -> None:
    url = waiting["urls"]["get"]
    body = client.get(url).get_json()
    nothing = dict.fromkeys(
        ("audio_path", "audio_url", "sha256", "size_bytes", "duration_seconds", "sample_rate"), None
    )
    empty = {
        "silence_ms": 300,
        **nothing,
        "response_format": None,
        "items_left_out": None,
        "error": None,
    }
    assert (body["status"], body["concatenation"]) == ("finalizing", empty)
    assert body["urls"]["audio"] == waiting["urls"]["audio"] == f"{url}/audio"
    assert client.get(body["urls"]["audio"]).get_json()["code"] == "not_ready"

    audio = joined(store, fleet.folder)

    body = client.get(url).get_json()
    assert body["status"] == "completed"
    assert body["concatenation"] == {
        "silence_ms": 300,
        "audio_path": audio.audio_path,
        "audio_url": f"{url}/audio",
        "sha256": audio.sha256,
        "size_bytes": len(WHOLE),
        "duration_seconds": 1.25,
        "sample_rate": 24000,
        "response_format": "wav",
        "items_left_out": 1,
        "error": None,
    }


def test_a_job_that_can_not_be_joined_says_why(
    client: FlaskClient, waiting: dict[str, Any], store: Store
) -> None:
    store.end_finalizing(take(store), BROKEN)
    url = waiting["urls"]["get"]
    body = client.get(url).get_json()
    assert body["status"] == "completed"
    assert body["concatenation"]["audio_url"] is None
    assert body["concatenation"]["error"] == {
        "code": "mixed_sample_rates",
        "message": "They differ.",
        "retryable": False,
    }
    answer = client.get(f"{url}/audio")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no_audio")
    assert "mixed_sample_rates" in answer.get_json()["detail"]


def test_what_keeps_a_job_from_its_end_is_its_reason(
    client: FlaskClient, waiting: dict[str, Any], store: Store
) -> None:
    url = waiting["urls"]["get"]
    answer = client.get(url)
    assert answer.get_json()["status_reason"] == "no_clerk"
    assert answer.headers["Retry-After"] == "30"
    store.beat_clerk("clerk", 60)
    assert client.get(url).get_json()["status_reason"] is None

    store.return_finalizing(take(store), 60, trouble="disk_full")

    assert client.get(url).get_json()["status_reason"] == "disk_full"


@pytest.mark.parametrize(
    ("trouble", "code"), [("", "concatenation_cancelled"), ("disk_full", "disk_full")]
)
def test_a_cancel_ends_the_wait_and_says_why_there_is_no_audio(
    client: FlaskClient, waiting: dict[str, Any], store: Store, trouble: str, code: str
) -> None:
    store.return_finalizing(take(store), 60, trouble=trouble)
    urls = waiting["urls"]

    body = client.post(urls["cancel"]).get_json()

    assert (body["status"], body["status_reason"]) == ("completed", None)
    assert body["concatenation"]["error"] == {
        "code": code,
        "message": "The job was cancelled before the audio of its items was joined.",
        "retryable": bool(trouble),
    }
    assert body["request_counts"]["completed"] == 1
    assert client.get(f"{urls['items']}/row-000001/audio", buffered=True).data == b"audio"
    answer = client.get(f"{urls['get']}/audio")
    assert (answer.status_code, answer.get_json()["code"]) == (409, "no_audio")
    assert code in answer.get_json()["detail"]
    assert client.post(urls["cancel"]).get_json()["status"] == "completed"


def test_a_delete_has_to_be_asked_for(client: FlaskClient, waiting: dict[str, Any]) -> None:
    urls = waiting["urls"]
    assert client.post(urls["retry"]).status_code == 409
    assert client.delete(urls["get"]).status_code == 409
    assert client.delete(f"{urls['get']}?cancel=true").status_code == 204
    assert client.get(urls["get"]).status_code == 404


# --- its audio ------------------------------------------------------------------


def test_the_audio_comes_as_that_of_an_item_does(
    client: FlaskClient, waiting: dict[str, Any], store: Store, fleet: Fleet
) -> None:
    audio = joined(store, fleet.folder)
    url = f"{waiting['urls']['get']}/audio"

    whole = client.get(url, buffered=True)
    part = client.get(url, buffered=True, headers={"Range": "bytes=100-199"})
    same = client.get(url, buffered=True, headers={"If-None-Match": f'"{audio.sha256}"'})

    assert (whole.status_code, whole.data) == (200, WHOLE)
    assert whole.headers["ETag"] == f'"{audio.sha256}"'
    assert whole.headers["Content-Type"] == "audio/wav"
    assert whole.headers["Content-Disposition"] == f"inline; filename={waiting['id']}.wav"
    assert (part.status_code, part.data) == (206, WHOLE[100:200])
    assert (same.status_code, same.data) == (304, b"")


def test_audio_that_is_not_there_any_more_is_gone(
    client: FlaskClient, waiting: dict[str, Any], store: Store, fleet: Fleet
) -> None:
    Path(joined(store, fleet.folder).audio_path).unlink()
    answer = client.get(f"{waiting['urls']['get']}/audio")
    assert (answer.status_code, answer.get_json()["code"]) == (410, "audio_gone")


def test_the_audio_of_another_tenant_s_job_is_not_found(client: FlaskClient) -> None:
    assert client.get("/v1/jobs/job_x/audio").status_code == 404

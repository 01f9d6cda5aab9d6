"""Voices over HTTP: enrolled, looked at, changed, deleted, named by items; each tenant its own."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api.app import create_app
from api.context import EXTENSION
from tests.api.test_tenants import tenant
from tests.clips import TEXT, clip
from tests.support import TONE
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.tenants import Tenant
from worker.enrolling import Enroller

CLONING = replace(TONE, cloning=True)
DEAF = replace(TONE, engine="deaf")
Enrol = Callable[..., TestResponse]


@pytest.fixture
def app(settings: Settings, store: Store) -> Flask:
    """Two engines have been offered; one clones."""
    store.publish_engine(CLONING)
    store.publish_engine(DEAF)
    return create_app(settings)


@pytest.fixture
def clerk(store: Store, settings: Settings) -> Iterator[None]:
    """The part of a clerk that judges prompts."""
    stopping = threading.Event()
    thread = threading.Thread(target=Enroller(store, settings, stopping).run)
    thread.start()
    yield
    stopping.set()
    thread.join()


@pytest.fixture
def enrol(client: FlaskClient) -> Enrol:
    """Send a form; ``None`` leaves a field out."""

    def send(
        upload: bytes | None = None, headers: dict[str, str] | None = None, **changes: Any
    ) -> TestResponse:
        upload = clip() if upload is None else upload
        fields = {"name": "ann", "prompt_text": TEXT, "language": "en", "consent": "Ann, by mail."}
        fields |= changes
        form: dict[str, Any] = {name: one for name, one in fields.items() if one is not None}
        form.setdefault("prompt_audio", (io.BytesIO(upload), "clip.wav"))
        return client.post(
            "/v1/voices", data=form, headers=headers, content_type="multipart/form-data"
        )

    return send


def faults(response: TestResponse) -> list[tuple[str, str]]:
    assert response.status_code == 422, response.text
    return [(fault["pointer"], fault["code"]) for fault in response.get_json()["errors"]]


@pytest.mark.usefixtures("clerk")
def test_a_voice_is_enrolled_and_can_be_seen_heard_changed_and_deleted(
    client: FlaskClient, enrol: Enrol
) -> None:
    made = enrol(description="Calm.")
    assert (made.status_code, made.headers["Location"]) == (201, "/v1/voices/ann"), made.text
    voice = made.get_json()
    enrolled = voice["enrolled"]
    assert (voice["id"], voice["model"], voice["languages"]) == ("ann", None, ["en"])
    assert (enrolled["status"], enrolled["prompt_text"], enrolled["duration_seconds"]) == (
        "ready",
        TEXT,
        3.0,
    )
    assert enrolled["advice"].startswith("The prompt lasts 3.0 s; 5 to 10 s")
    assert client.get("/v1/voices/ann").get_json() == voice
    assert client.get("/v1/voices").get_json()["data"][-1] == voice

    with client.get("/v1/voices/ann/sample") as sample:
        assert (sample.status_code, sample.mimetype) == (200, "audio/wav")
        assert sample.headers["ETag"] == f'"{enrolled["sha256"]}"'
        assert sample.data[:4] == b"RIFF"

    changed = client.patch("/v1/voices/ann", json={"description": "Very calm."}).get_json()
    assert changed == {**voice, "description": "Very calm."}
    assert client.delete("/v1/voices/ann").status_code == 204
    for path in ("/v1/voices/ann", "/v1/voices/ann/sample"):
        gone = client.get(path)
        assert (gone.status_code, gone.get_json()["code"]) == (404, "no_such_voice")
    assert client.delete("/v1/voices/ann").status_code == 404
    assert client.patch("/v1/voices/ann", json={}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"name": None}, [("/name", "missing_field")]),
        ({"name": "../up"}, [("/name", "invalid_voice_name")]),
        ({"name": "a:b"}, [("/name", "invalid_voice_name")]),
        ({"name": f"voice_{'0' * 32}"}, [("/name", "invalid_voice_name")]),
        ({"prompt_text": None}, [("/prompt_text", "missing_field")]),
        ({"prompt_text": "..."}, [("/prompt_text", "no_speakable_text")]),
        ({"prompt_text": "a" * 1001}, [("/prompt_text", "invalid_value")]),
        ({"language": None}, [("/language", "missing_field")]),
        ({"language": "english!"}, [("/language", "invalid_value")]),
        ({"consent": None}, [("/consent", "missing_field")]),
        ({"consent": "  "}, [("/consent", "missing_field")]),
        ({"unlisted": "true"}, [("/name", "invalid_value")]),
        ({"unlisted": "perhaps"}, [("/unlisted", "invalid_value")]),
        ({"speed": "2"}, [("/speed", "unknown_field")]),
        ({"prompt_audio": "clip.wav"}, [("/prompt_audio", "invalid_value")]),
        ({"consent": ["Yes.", "No."]}, [("/consent", "invalid_value")]),
        (
            {"name": "../up", "consent": ""},
            [("/name", "invalid_voice_name"), ("/consent", "missing_field")],
        ),
    ],
)
def test_a_form_that_can_not_be_used_is_refused_at_once(
    client: FlaskClient, enrol: Enrol, changes: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    assert faults(enrol(**changes)) == found
    assert [voice["id"] for voice in client.get("/v1/voices?model=tone").get_json()["data"]] == [
        "low",
        "high",
    ]


@pytest.mark.usefixtures("clerk")
def test_a_prompt_that_can_not_be_used_is_pointed_at_and_leaves_nothing(
    client: FlaskClient, enrol: Enrol, store: Store
) -> None:
    assert faults(enrol(b"no audio")) == [("/prompt_audio", "prompt_undecodable")]
    assert faults(enrol(clip(rate=8000))) == [("/prompt_audio", "prompt_sample_rate")]
    assert store.voices("default") == []
    assert enrol().status_code == 201


def test_other_bodies_than_forms_and_too_large_ones_are_refused(client: FlaskClient) -> None:
    answer = client.post("/v1/voices", json={})
    assert (answer.status_code, answer.get_json()["code"]) == (415, "unsupported_media_type")
    large = {"data": b"0" * (8 * 2**20 + 1), "content_type": "multipart/form-data; boundary=0"}
    answer = client.post("/v1/voices", **large)
    assert (answer.status_code, answer.get_json()["code"]) == (413, "payload_too_large")
    assert client.patch("/v1/voices/ann", json={"prompt_text": "Other."}).status_code == 422


def test_before_its_verdict_a_voice_waits_and_items_are_told_so(
    app: Flask, client: FlaskClient, enrol: Enrol
) -> None:
    waiters = app.extensions[EXTENSION].waiters
    while waiters.acquire(blocking=False):
        """Nobody else may wait now, so the answer comes at once."""
    made = enrol()
    assert (made.status_code, made.headers["Retry-After"]) == (202, "1")
    assert made.get_json()["enrolled"]["status"] == "validating"
    answer = client.post("/v1/jobs", json={"inputs": [{"input": "Hi.", "voice": "ann"}]})
    assert faults(answer) == [("/inputs/0/voice", "voice_not_found")]
    assert "still being checked" in answer.get_json()["detail"]
    sample = client.get("/v1/voices/ann/sample")
    assert (sample.status_code, sample.get_json()["code"]) == (409, "not_ready")


@pytest.mark.usefixtures("clerk")
def test_a_name_is_given_once(enrol: Enrol) -> None:
    assert enrol().status_code == 201
    assert enrol().status_code == 201
    other = enrol(clip(hz=180))
    assert (other.status_code, other.get_json()["code"]) == (409, "voice_exists")
    engines_own = enrol(name="low")
    assert (engines_own.status_code, engines_own.get_json()["code"]) == (409, "voice_exists")


def test_a_voice_of_an_engine_has_no_sample(client: FlaskClient) -> None:
    answer = client.get("/v1/voices/low/sample")
    assert (answer.status_code, answer.get_json()["code"]) == (404, "no_sample")
    assert client.get("/v1/voices/low").get_json()["model"] == "deaf"
    assert client.get("/v1/voices/low?model=tone").get_json()["model"] == "tone"
    assert client.get("/v1/voices/low?model=none").status_code == 404


@pytest.mark.usefixtures("clerk")
def test_items_are_pinned_to_the_voice_as_it_is(
    client: FlaskClient, enrol: Enrol, store: Store
) -> None:
    revision = enrol(language="en-GB").get_json()["enrolled"]["revision"]
    body = {"voice": "ann", "inputs": [{"input": "Hi."}, {"input": "Ho.", "voice": "low"}]}
    job = client.post("/v1/jobs", json=body).get_json()
    first, second = store.inputs(job["id"], [0, 1])
    assert (first.voice, first.voice_revision, first.language) == ("ann", revision, "en")
    assert (second.voice, second.voice_revision, second.language) == ("low", None, None)


@pytest.mark.usefixtures("clerk")
def test_an_engine_that_can_not_clone_refuses_an_enrolled_voice(
    client: FlaskClient, enrol: Enrol
) -> None:
    enrol()
    enrol(name="chen", language="zh")
    answer = client.post(
        "/v1/jobs",
        json={
            "inputs": [
                {"input": "Hi.", "voice": "ann", "model": "deaf"},
                {"input": "Hi.", "voice": "ann", "language": "de"},
                {"input": "Hi.", "voice": "chen"},
                {"input": "Hi.", "voice": "chen", "language": "en"},
                {"input": "Hi.", "voice": "nobody"},
            ]
        },
    )
    assert faults(answer) == [
        ("/inputs/0/voice", "unsupported_feature"),
        ("/inputs/1/language", "unsupported_feature"),
        ("/language", "unsupported_feature"),
        ("/inputs/4/voice", "voice_not_found"),
    ]
    listed = client.get("/v1/voices?model=deaf").get_json()["data"]
    assert [voice["id"] for voice in listed] == ["low", "high"]


@pytest.mark.usefixtures("clerk")
def test_an_unlisted_voice_is_in_no_list_and_the_same_prompt_is_the_same_one(
    client: FlaskClient, enrol: Enrol, store: Store
) -> None:
    unlisted = {"name": None, "consent": None, "unlisted": "true"}
    first, again = (enrol(**unlisted).get_json() for _ in range(2))
    other = enrol(clip(hz=180), **unlisted).get_json()
    assert first == again
    assert first["id"] != other["id"]
    assert first["enrolled"]["unlisted"]
    assert [one["id"] for one in client.get("/v1/voices?model=tone").get_json()["data"]] == [
        "low",
        "high",
    ]
    body = {"inputs": [{"input": "Hi.", "voice": first["id"]}]}
    job = client.post("/v1/jobs", json=body).get_json()
    assert store._redis.smembers(f"voicemill:voice_jobs:default:{first['id']}") == {
        job["id"].encode()
    }


def test_a_tenant_may_use_so_many_unlisted_voices_at_a_time(
    enrol: Enrol, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicemill.store.voices.MOST_UNLISTED", 2)
    monkeypatch.setattr("api.voices.VERDICT_SECONDS", 0)
    unlisted = {"name": None, "consent": None, "unlisted": "true"}
    names = [enrol(clip(hz=hz), **unlisted).get_json()["id"] for hz in (140, 150)]
    refused = enrol(clip(hz=160), **unlisted)
    assert (refused.status_code, refused.get_json()["code"]) == (409, "too_many_voices")
    assert "clips" in refused.get_json()["detail"]
    assert enrol(clip(hz=140), **unlisted).get_json()["id"] == names[0], "it is there already"
    assert store.delete_voice("default", names[0])
    assert enrol(clip(hz=160), **unlisted).status_code == 202
    assert store._redis.zcard("voicemill:unlisted_voices") == 2


@pytest.mark.usefixtures("clerk")
def test_voices_come_in_pages(client: FlaskClient, enrol: Enrol) -> None:
    for name, hz in (("ann", 140), ("bob", 160)):
        assert enrol(clip(hz=hz), name=name).status_code == 201
    found, after = [], None
    for _ in range(3):
        query = {"limit": 2} | ({"after": after} if after else {})
        page = client.get("/v1/voices", query_string=query).get_json()
        found.append([(voice["model"], voice["id"]) for voice in page["data"]])
        after = page["last_id"]
        assert page["has_more"] == (len(found) < 3)
    assert found == [
        [("deaf", "low"), ("deaf", "high")],
        [("tone", "low"), ("tone", "high")],
        [(None, "ann"), (None, "bob")],
    ]
    gone = client.get("/v1/voices?after=tone/none")
    assert (gone.status_code, gone.get_json()["code"]) == (404, "no_such_voice")


@pytest.mark.usefixtures("clerk")
def test_tenants_see_their_own_voices_and_shared_ones(store: Store, settings: Settings) -> None:
    client = create_app(replace(settings, require_api_key=True)).test_client()
    store.publish_engine(CLONING)
    ann, bob, shared = (tenant(store, Tenant(name)) for name in ("ann", "bob", "shared"))

    def enrol(headers: dict[str, str], name: str, hz: float) -> None:
        form = {"name": name, "prompt_text": TEXT, "language": "en", "consent": f"{name} said so."}
        upload = {"prompt_audio": (io.BytesIO(clip(hz=hz)), "clip.wav")}
        answer = client.post("/v1/voices", data={**form, **upload}, headers=headers)
        assert answer.status_code == 201, answer.text

    def listed(headers: dict[str, str]) -> list[str]:
        return [
            voice["id"]
            for voice in client.get("/v1/voices", headers=headers).get_json()["data"]
            if voice["enrolled"]
        ]

    enrol(ann, "mine", 140)
    enrol(shared, "ours", 160)
    assert (listed(ann), listed(bob), listed(shared)) == (["mine", "ours"], ["ours"], ["ours"])
    for method, path in (("GET", ""), ("GET", "/sample"), ("PATCH", ""), ("DELETE", "")):
        answer = client.open(f"/v1/voices/mine{path}", method=method, json={}, headers=bob)
        assert (answer.status_code, answer.get_json()["code"]) == (404, "no_such_voice")
    speak = {"inputs": [{"input": "Hi.", "voice": "mine"}]}
    assert faults(client.post("/v1/jobs", json=speak, headers=bob)) == [
        ("/inputs/0/voice", "voice_not_found")
    ]
    assert client.post("/v1/jobs", json=speak, headers=ann).status_code == 202

    seen = client.get("/v1/voices/ours", headers=bob).get_json()
    assert (seen["enrolled"]["shared"], seen["enrolled"]["consent"]) == (True, None)
    with client.get("/v1/voices/ours/sample", headers=bob) as sample:
        assert sample.status_code == 200
    assert client.delete("/v1/voices/ours", headers=bob).status_code == 404
    speak = {"inputs": [{"input": "Hi.", "voice": "ours"}]}
    assert client.post("/v1/jobs", json=speak, headers=bob).status_code == 202
    assert client.delete("/v1/voices/ours", headers=shared).status_code == 204
    assert listed(bob) == []


@pytest.mark.usefixtures("clerk")
def test_the_document_has_the_form_and_what_a_voice_is(client: FlaskClient, enrol: Enrol) -> None:
    document = json.loads(client.get("/openapi.json").data)
    content = document["paths"]["/v1/voices"]["post"]["requestBody"]["content"]
    assert list(content) == ["multipart/form-data"]
    form = document["components"]["schemas"]["VoiceForm"]["properties"]
    assert form["prompt_audio"]["format"] == "binary"
    body = enrol().get_json()
    schema = document["components"]["schemas"]["EnrolmentBody"]
    assert set(schema["properties"]) == set(body["enrolled"])

"""Jobs over HTTP: submit, follow, list, cancel."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.context import EXTENSION, MAX_WAITERS
from api.submission import Submission
from tests.api.fleet import Fleet
from tests.support import TONE, wait_until
from voicemill.jobs import ItemError
from voicemill.limits import Limits
from voicemill.settings import Settings
from voicemill.store import Store

Post = Callable[..., dict[str, Any]]


def test_a_job_is_accepted_and_says_where_and_when_to_look(client: FlaskClient) -> None:
    response = client.post("/v1/jobs", json={"inputs": [{"input": "Hello."}, {"input": "Bye."}]})

    body = response.get_json()
    assert response.status_code == 202
    assert response.headers["Location"] == f"/v1/jobs/{body['id']}"
    assert 1 <= int(response.headers["Retry-After"]) <= 120
    assert body["object"] == "speech.job"
    assert body["status"] == "queued"
    assert body["request_counts"] == {
        **dict.fromkeys(("in_progress", "completed", "failed", "cancelled", "expired"), 0),
        "total": 2,
        "queued": 2,
        "cached": 0,
    }
    assert body["progress"] == {"percentage": 0.0, "basis": "characters"}
    assert body["usage"]["input_characters"] == len("Hello.") + len("Bye.")
    assert body["urls"]["items"] == f"/v1/jobs/{body['id']}/items"


def test_fields_of_the_job_are_defaults_and_fields_of_an_input_win(
    client: FlaskClient, store: Store
) -> None:
    body = {
        "voice": "high",
        "speed": 2,
        "language": "en",
        "seed": 7,
        "response_format": "flac",
        "metadata": {"book": "x"},
        "inputs": [
            {"input": "One."},
            {"input": "Two.", "custom_id": "b", "voice": "low", "speed": 0.5, "seed": None},
            {"input": "Three.", "response_format": "mp3", "metadata": {"page": "3"}},
        ],
    }
    job = client.post("/v1/jobs", json=body).get_json()

    first, second, third = (item.input for item in store.items(job["id"]))
    assert job["metadata"] == {"book": "x"}
    assert (first.custom_id, first.model, first.voice) == ("row-000001", "tone", "high")
    assert (first.speed, first.language, first.seed) == (2.0, "en", 7)
    assert (second.custom_id, second.voice, second.speed, second.seed) == ("b", "low", 0.5, 7)
    assert (third.custom_id, third.response_format) == ("row-000003", "mp3")
    assert third.metadata == {"page": "3"}


@pytest.mark.parametrize(
    ("fields", "texts", "expected"),
    [
        ({}, ["Hello."], ("interactive", 0, None)),
        ({}, ["x" * 1000], ("interactive", 0, None)),
        ({}, ["Hello.", "Bye."], ("bulk", 0, None)),
        ({"class": None, "fairness_key": None}, ["Hello."], ("interactive", 0, None)),
        ({"class": "bulk", "priority": -2}, ["Hello."], ("bulk", -2, None)),
        ({"class": "interactive", "priority": 2}, ["Hello.", "Bye."], ("interactive", 2, None)),
        ({"fairness_key": "user-7"}, ["Hello.", "Bye."], ("bulk", 0, "user-7")),
    ],
)
def test_a_job_stands_where_it_says_or_where_its_size_puts_it(
    client: FlaskClient,
    post: Post,
    fields: dict[str, Any],
    texts: list[str],
    expected: tuple[str, int, str | None],
) -> None:
    job = client.get(f"/v1/jobs/{post(*texts, **fields)['id']}").get_json()
    assert (job["class"], job["priority"], job["fairness_key"]) == expected


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, "book-3"), ({"fairness_key": "user-7"}, "user-7")]
)
def test_the_fairness_key_may_come_as_a_header_and_the_field_wins(
    client: FlaskClient, fields: dict[str, Any], expected: str
) -> None:
    body = {"inputs": [{"input": "Hello."}], **fields}
    answer = client.post("/v1/jobs", json=body, headers={"X-Fairness-Key": "book-3"})
    assert answer.get_json()["fairness_key"] == expected


def test_a_header_that_can_not_be_a_fairness_key_is_refused(client: FlaskClient) -> None:
    body = {"inputs": [{"input": "Hello."}]}
    answer = client.post("/v1/jobs", json=body, headers={"X-Fairness-Key": "a:b"})
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.get_json()["errors"]] == [""]
    assert "X-Fairness-Key" in answer.get_json()["detail"]


def test_model_and_voice_default_to_the_engine_of_the_stack_and_its_first_voice(
    post: Post, store: Store
) -> None:
    item = store.items(post("Hello.")["id"])[0]

    assert (item.input.model, item.input.voice) == ("tone", "low")


def test_a_job_without_a_live_child_says_so_until_one_comes(
    client: FlaskClient, post: Post, fleet: Fleet
) -> None:
    job = post("Hello.")
    assert job["status_reason"] == "no_workers"
    response = client.get(job["urls"]["get"])
    assert response.get_json()["status_reason"] == "no_workers"
    assert response.headers["Retry-After"] == "30"

    fleet.live()

    assert client.get(job["urls"]["get"]).get_json()["status_reason"] is None


def test_submitting_lets_work_in_at_once(post: Post, fleet: Fleet) -> None:
    fleet.live()

    post("Hello.")

    assert len(fleet.admitted()) == 1


def test_a_finished_job_has_counts_usage_and_no_retry_after(
    client: FlaskClient, post: Post, fleet: Fleet
) -> None:
    job = post("Hello.", "Bye.")
    fleet.end({0: b"audio", 1: ItemError("silent_audio", "It is silent.", True)})

    response = client.get(job["urls"]["get"])
    body = response.get_json()
    assert "Retry-After" not in response.headers
    assert body["status"] == "completed"
    assert body["status_reason"] is None
    assert body["request_counts"]["completed"] == 1
    assert body["request_counts"]["failed"] == 1
    assert body["progress"]["percentage"] == 100.0
    assert body["usage"]["audio_seconds"] == 1.25
    assert body["created_at"] <= body["in_progress_at"] <= body["completed_at"]


def test_waiting_returns_as_soon_as_the_job_ends(app: Flask, post: Post, fleet: Fleet) -> None:
    job = post("Hello.")
    seen: list[str] = []

    def wait() -> None:
        response = app.test_client().get(f"{job['urls']['get']}?wait=20")
        seen.append(response.get_json()["status"])

    started = time.monotonic()
    waiting = threading.Thread(target=wait)
    waiting.start()
    fleet.end({0: b"audio"})
    waiting.join(10)

    assert seen == ["completed"]
    assert time.monotonic() - started < 10


def test_waiting_ends_with_the_time_given(client: FlaskClient, post: Post) -> None:
    job = post("Hello.")
    started = time.monotonic()

    body = client.get(f"{job['urls']['get']}?wait=0.2").get_json()

    assert body["status"] == "queued"
    assert 0.2 <= time.monotonic() - started < 2


def test_over_the_cap_of_waiters_the_answer_comes_at_once(
    app: Flask, client: FlaskClient, post: Post
) -> None:
    job = post("Hello.")
    waiters = app.extensions[EXTENSION].waiters
    for _ in range(MAX_WAITERS):
        assert waiters.acquire(blocking=False)
    started = time.monotonic()

    assert client.get(f"{job['urls']['get']}?wait=30").status_code == 200
    assert time.monotonic() - started < 5


def test_jobs_are_listed_newest_first_in_pages(client: FlaskClient, post: Post) -> None:
    ids = [post(f"Text {number}.")["id"] for number in range(3)][::-1]

    first = client.get("/v1/jobs?limit=2").get_json()
    rest = client.get(f"/v1/jobs?limit=2&after={first['last_id']}").get_json()

    assert [job["id"] for job in first["data"]] == ids[:2]
    assert (first["object"], first["has_more"], first["first_id"]) == ("list", True, ids[0])
    assert [job["id"] for job in rest["data"]] == ids[2:]
    assert (rest["has_more"], rest["last_id"]) == (False, ids[2])


def test_jobs_in_one_state_are_listed_in_pages_though_they_move_on_meanwhile(
    client: FlaskClient, post: Post
) -> None:
    oldest, cancelled, middle, newest = (post(f"Text {number}.") for number in range(4))
    client.post(cancelled["urls"]["cancel"])

    first = client.get("/v1/jobs?status=queued&limit=2").get_json()
    client.post(middle["urls"]["cancel"])
    rest = client.get(f"/v1/jobs?status=queued&limit=2&after={first['last_id']}").get_json()

    assert [job["id"] for job in first["data"]] == [newest["id"], middle["id"]]
    assert [job["id"] for job in rest["data"]] == [oldest["id"]]
    assert (first["has_more"], rest["has_more"]) == (True, False)
    ended = client.get("/v1/jobs?status=cancelled").get_json()
    assert [job["id"] for job in ended["data"]] == [middle["id"], cancelled["id"]]


def test_a_state_that_there_is_not_is_refused(client: FlaskClient) -> None:
    response = client.get("/v1/jobs?status=done")
    assert response.status_code == 422
    assert "'completed'" in response.get_json()["errors"][0]["detail"]


def test_no_jobs_is_an_empty_list(client: FlaskClient) -> None:
    assert client.get("/v1/jobs").get_json() == {
        "object": "list",
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


def test_a_job_may_have_a_deadline(client: FlaskClient, post: Post, store: Store) -> None:
    job = post("Hello.", deadline_seconds=1)
    assert job["expires_at"] - job["created_at"] in {1, 2}

    wait_until(lambda: store.expire_jobs() == 1, what="the deadline")

    job = client.get(job["urls"]["get"]).get_json()
    assert (job["status"], job["request_counts"]["expired"]) == ("expired", 1)
    item = client.get(f"{job['urls']['items']}/row-000001").get_json()
    assert item["status"] == "expired"


@pytest.mark.parametrize(
    ("rules", "most"),
    [
        ({}, None),
        ({"on_item_error": "continue"}, None),
        ({"on_item_error": "stop"}, 0),
        ({"on_item_error": "stop", "max_failures": 3}, 0),
        ({"max_failures": 3}, 3),
        ({"max_failures": "50%"}, 2),
        ({"max_failures": "49%"}, 1),
        ({"max_failures": "0%"}, 0),
        ({"max_failures": "100%"}, 4),
    ],
)
def test_how_many_items_may_fail_is_a_number_or_a_share(
    rules: dict[str, Any], most: int | None, settings: Settings
) -> None:
    body = {"inputs": [{"input": text} for text in ("One.", "Two.", "Three.", "Four.")], **rules}

    assert Submission({"tone": TONE}, settings).read(body)[1].rules.max_failures == most


def test_what_an_input_may_take_is_kept_with_the_job(settings: Settings) -> None:
    limits = {"max_output_seconds": 60, "max_item_seconds": 7.5, "max_memory_mb": 900}
    body = {"inputs": [{"input": "One."}], **limits}

    head = Submission({"tone": TONE}, settings).read(body)[1]

    assert head.rules.limits == Limits(60.0, 7.5, 900)


@pytest.mark.parametrize("limits", [{}, {"max_output_seconds": 60.0, "max_memory_mb": 900}])
def test_a_job_shows_what_its_inputs_may_take(post: Post, limits: dict[str, Any]) -> None:
    job = post("Hello.", **limits)

    names = ("max_output_seconds", "max_item_seconds", "max_memory_mb")
    assert {name: job[name] for name in names} == dict.fromkeys(names) | limits


@pytest.mark.parametrize(("given", "reuse"), [({}, True), ({"reuse": False}, False)])
def test_a_job_may_have_each_text_spoken(
    store: Store, post: Post, given: dict[str, Any], reuse: bool
) -> None:
    job = post("Hello.", "Hello.", **given)
    marks = [item.input.same_as for item in store.items(job["id"])]
    assert marks == ([None, 0] if reuse else [None, None])


@pytest.mark.parametrize(
    "rules",
    [
        {"reuse": "maybe"},
        {"deadline_seconds": 0},
        {"deadline_seconds": "soon"},
        {"on_item_error": "maybe"},
        {"max_failures": -1},
        {"max_failures": "101%"},
        {"max_failures": "5"},
        {"max_output_seconds": 0},
        {"max_item_seconds": "long"},
        {"max_memory_mb": 0},
        {"max_memory_mb": 1.5},
    ],
)
def test_a_rule_that_is_none_is_pointed_at(client: FlaskClient, rules: dict[str, Any]) -> None:
    response = client.post("/v1/jobs", json={"inputs": [{"input": "Hello."}], **rules})

    (name,) = rules
    assert response.status_code == 422
    assert {fault["pointer"] for fault in response.get_json()["errors"]} == {f"/{name}"}


def test_cancelling_twice_gives_the_same_job(client: FlaskClient, post: Post) -> None:
    job = post("Hello.", "Bye.")

    first = client.post(job["urls"]["cancel"])
    again = client.post(job["urls"]["cancel"])

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.get_json()["status"] == "cancelled"
    assert first.get_json()["request_counts"]["cancelled"] == 2
    assert again.get_json() == first.get_json()


def test_a_finished_job_can_be_cancelled_without_effect(
    client: FlaskClient, post: Post, fleet: Fleet
) -> None:
    job = post("Hello.")
    fleet.end({0: b"audio"})

    assert client.post(job["urls"]["cancel"]).get_json()["status"] == "completed"


@pytest.mark.parametrize(
    "job_id", ["job_0", "not-a-uuid", "..", "a:b", "job_1:items", "%00", "%ff", "x" * 200]
)
def test_an_unknown_job_is_not_found(client: FlaskClient, job_id: str) -> None:
    for response in (
        client.get(f"/v1/jobs/{job_id}"),
        client.post(f"/v1/jobs/{job_id}/cancel"),
        client.get(f"/v1/jobs/{job_id}/items"),
        client.get(f"/v1/jobs/{job_id}/items/a"),
        client.get(f"/v1/jobs/{job_id}/items/a/audio"),
    ):
        assert response.status_code == 404
        assert response.get_json()["code"] in {"job_not_found", "not_found"}


def test_a_job_that_never_was_one_that_waits_and_one_that_is_gone_are_told_apart(
    client: FlaskClient, post: Post, fleet: Fleet, store: Store
) -> None:
    expired, deleted = post("Hello."), post("Hello.")
    fleet.end({0: b"audio"})
    store._redis.zadd("voicemill:expiries", {expired["id"]: 0})
    assert store.expired_outputs() == [expired["id"]]
    assert client.delete(deleted["urls"]["get"]).status_code == 204
    waiting = post("Hello.")

    def told(job_id: str) -> tuple[int, Any]:
        answer = client.get(f"/v1/jobs/{job_id}")
        body = answer.get_json()
        return answer.status_code, body.get("code", (body.get("status"), body.get("data_removed")))

    assert told(str(uuid.uuid4())) == (404, "job_not_found")
    assert told(deleted["id"]) == (404, "job_not_found")
    assert told(waiting["id"]) == (200, ("queued", False))
    assert told(expired["id"]) == (200, ("completed", True))


def test_a_page_of_ten_thousand_inputs_is_one_job(client: FlaskClient, store: Store) -> None:
    inputs = [{"input": f"Line {number}."} for number in range(10_000)]

    job = client.post("/v1/jobs", json={"inputs": inputs}).get_json()

    assert job["request_counts"]["total"] == 10_000
    assert store.item(job["id"], "row-010000").input.text == "Line 9999."


def test_what_failed_runs_again_on_request(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    job = post("Hello.", "Bye.")
    assert client.post(job["urls"]["retry"]).get_json()["code"] == "job_active"
    fleet.end({0: b"audio", 1: ItemError("silent_audio", "It is silent.", True)})
    (dead,) = client.get("/v1/dead-letters").get_json()["data"]
    assert (dead["job_id"], dead["custom_id"]) == (job["id"], "row-000002")
    assert dead["error"]["code"] == "silent_audio"

    response = client.post(job["urls"]["retry"])

    again = response.get_json()
    assert (response.status_code, again["status"], again["run"]) == (202, "queued", 2)
    assert (again["request_counts"]["queued"], again["request_counts"]["completed"]) == (1, 1)
    assert len(fleet.admitted()) == 1
    assert client.get("/v1/dead-letters").get_json()["data"] == []
    fleet.end({1: b"audio"})
    assert client.get(job["urls"]["get"]).get_json()["request_counts"]["completed"] == 2


def test_dead_letters_come_in_pages(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    post("One.", "Two.", "Three.")
    fleet.end(dict.fromkeys(range(3), ItemError("silent_audio", "It is silent.", True)))

    first = client.get("/v1/dead-letters?limit=2").get_json()
    rest = client.get(f"/v1/dead-letters?limit=2&after={first['last_id']}").get_json()

    assert (len(first["data"]), first["has_more"]) == (2, True)
    both = [*first["data"], *rest["data"]]
    assert sorted(item["index"] for item in both) == [0, 1, 2]
    assert rest["has_more"] is False
    assert client.get("/v1/dead-letters?after=job_9.0").status_code == 404


def test_a_job_is_deleted_once_it_has_ended(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    job = post("Hello.")
    url = job["urls"]["get"]
    refused = client.delete(url)
    assert (refused.status_code, refused.get_json()["code"]) == (409, "job_active")
    fleet.end({0: b"audio"})

    assert client.delete(url).status_code == 204

    assert client.get(url).status_code == client.delete(url).status_code == 404
    assert client.get(f"{job['urls']['items']}/row-000001/audio").status_code == 404
    assert client.get("/v1/jobs").get_json()["data"] == []


def test_a_job_that_goes_on_is_cancelled_and_deleted_if_both_are_asked_for(
    client: FlaskClient, post: Post, store: Store
) -> None:
    job = post("Hello.")

    assert client.delete(f"{job['urls']['get']}?cancel=true").status_code == 204

    assert client.get(job["urls"]["get"]).status_code == 404
    assert store.removals() == [job["id"]]


def test_outputs_are_kept_for_as_long_as_the_job_or_the_setting_says(
    client: FlaskClient, post: Post, fleet: Fleet, settings: Settings
) -> None:
    own = post("Hello.", output_expires_after={"anchor": "completed_at", "seconds": 3600})
    default = post("Hello.")
    assert (own["output_expires_at"], own["data_removed"]) == (None, False)
    fleet.end({0: b"audio"})

    for job, seconds in ((own, 3600), (default, settings.retention_seconds)):
        body = client.get(job["urls"]["get"]).get_json()
        assert body["output_expires_at"] - body["completed_at"] in {seconds, seconds + 1}


@pytest.mark.parametrize("text", ["off", "0"])
def test_outputs_are_kept_for_ever_where_the_setting_is_off(text: str, store: Store) -> None:
    kept = Settings.from_env({"VOICEMILL_RETENTION_SECONDS": text}, engine="tone")
    reader = Submission({"tone": TONE}, kept)
    own = {"output_expires_after": {"seconds": 3600}}
    for job_id, fields in (
        ("job_1", {}),
        ("job_2", {"output_expires_after": None}),
        ("job_3", own),
    ):
        items, head = reader.read({"inputs": [{"input": "Hello."}], **fields})
        store.create_job(job_id, "default", items, {}, rules=head.rules)
        store.cancel(job_id)

    assert [store.job(f"job_{n}").output_expires_at is None for n in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "value",
    [
        "off",
        "never",
        0,
        3600,
        {"seconds": 0},
        {"seconds": 59},
        {"seconds": None},
        {"seconds": "off"},
    ],
)
def test_a_job_can_not_ask_for_ever_and_is_told_what_it_may(
    client: FlaskClient, value: Any
) -> None:
    body = {"inputs": [{"input": "Hello."}], "output_expires_after": value}
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 422
    (fault,) = answer.get_json()["errors"]
    assert fault["pointer"].startswith("/output_expires_after")
    assert fault["code"] == "invalid_value"


def test_expired_outputs_are_gone_and_their_job_is_not(
    client: FlaskClient, post: Post, fleet: Fleet, store: Store
) -> None:
    job = post("Hello.", "Bye.")
    paths = fleet.end({0: b"audio", 1: ItemError("silent_audio", "It is silent.", True)})
    store._redis.zadd("voicemill:expiries", {job["id"]: 0})
    assert store.expired_outputs() == [job["id"]]
    for path in paths:
        if path is not None:
            path.unlink()

    assert client.get(job["urls"]["get"]).get_json()["data_removed"] is True
    gone = client.get(f"{job['urls']['items']}/row-000001/audio")
    assert (gone.status_code, gone.get_json()["code"]) == (410, "audio_gone")
    again = client.post(job["urls"]["retry"])
    assert (again.status_code, again.get_json()["code"]) == (410, "data_removed")

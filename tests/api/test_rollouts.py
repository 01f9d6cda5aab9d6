"""Rollouts and pinned revisions over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient

from tests.api.conftest import Post
from voicemill.store import Store
from voicemill.workers import ChildRecord

NEW = {"model": "tone", "revision": "fp16", "options": {"fp16": True}}


@pytest.fixture
def begun(client: FlaskClient) -> dict[str, Any]:
    """A rollout that has begun."""
    response = client.post("/v1/rollouts", json=NEW)
    assert response.status_code == 201, response.get_json()
    body: dict[str, Any] = response.get_json()
    assert response.headers["Location"] == f"/v1/rollouts/{body['id']}"
    return body


def test_a_rollout_shows_what_was_asked_and_what_both_revisions_do(
    client: FlaskClient, store: Store, begun: dict[str, Any]
) -> None:
    assert begun["status"] == "canary"
    assert begun["canary"] == {"children": 1, "percent": None, "tenants": []}
    assert (begun["model"], begun["revision"], begun["options"]) == ("tone", "fp16", {"fp16": True})
    assert (begun["rule"], begun["reason"], begun["promoted_at"]) == (None, None, None)
    gpu = {"devices": [{"uuid": "GPU-1", "own_bytes": 700}]}
    child = ChildRecord("c1", "n", 1, "tone", "1+fp16", 0.0, revision="fp16", rss_bytes=9, gpu=gpu)
    store.beat_child(child, 60, takes_work=True)
    shown = client.get(f"/v1/rollouts/{begun['id']}").get_json()
    nothing = {
        "attempts": 0,
        "failures": {},
        "failure_share": 0.0,
        "real_time_factor": None,
        "audio_seconds": 0.0,
    }
    assert shown["old"] == {"revision": "base", "children": 0, "memory_bytes": 0, **nothing}
    assert shown["new"] == {"revision": "fp16", "children": 1, "memory_bytes": 700, **nothing}
    listed = client.get("/v1/rollouts").get_json()
    assert [one["id"] for one in listed["data"]] == [begun["id"]]


def test_a_rollout_may_have_a_rule_and_a_canary(client: FlaskClient, store: Store) -> None:
    for name in ("c1", "c2"):
        store.beat_child(ChildRecord(name, "n", 1, "tone", "1", 0.0), 60, takes_work=True)
    canary = {"percent": 12.5, "tenants": ["ann", "bob"]}
    body = {**NEW, "canary": canary, "rule": {"max_slowdown": 2}}
    made = client.post("/v1/rollouts", json=body).get_json()
    assert made["canary"] == {"children": None, **canary}
    assert made["rule"] == {
        "min_attempts": 100,
        "max_failure_increase": 0.01,
        "max_slowdown": 2.0,
        "max_memory": 1.2,
    }


@pytest.mark.parametrize(
    ("path", "status"), [("promote", "promoting"), ("rollback", "rolling_back")]
)
def test_it_is_promoted_or_rolled_back_by_hand_and_once(
    client: FlaskClient, begun: dict[str, Any], path: str, status: str
) -> None:
    moved = client.post(f"/v1/rollouts/{begun['id']}/{path}")
    assert moved.status_code == 200
    assert (moved.get_json()["status"], moved.get_json()["reason"]) == (status, "By hand.")
    again = client.post(f"/v1/rollouts/{begun['id']}/{path}")
    assert (again.status_code, again.get_json()["code"]) == (409, "rollout_conflict")
    assert status.replace("_", " ") in again.get_json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({**NEW, "revision": "other"}, 409, "rollout_conflict"),
        ({**NEW, "revision": "a b"}, 422, "invalid_input"),
        ({**NEW, "revision": "base"}, 422, "invalid_input"),
        ({**NEW, "canary": {"children": 1, "percent": 5}}, 422, "invalid_input"),
        ({**NEW, "canary": {"percent": 0}}, 422, "invalid_input"),
        ({**NEW, "rule": {"max_slowdown": 0.5}}, 422, "invalid_input"),
        ({**NEW, "colour": 1}, 422, "invalid_input"),
        ({"model": "tone"}, 422, "invalid_input"),
        ([], 422, "invalid_input"),
    ],
)
def test_one_that_can_not_begin_says_why(
    client: FlaskClient, begun: dict[str, Any], body: object, status: int, code: str
) -> None:
    response = client.post("/v1/rollouts", json=body)
    assert (response.status_code, response.get_json()["code"]) == (status, code)


@pytest.mark.parametrize("path", ["", "/promote", "/rollback"])
def test_one_that_is_not_there_is_not_found(client: FlaskClient, path: str) -> None:
    method = client.post if path else client.get
    response = method(f"/v1/rollouts/rollout_0{path}")
    assert (response.status_code, response.get_json()["code"]) == (404, "rollout_not_found")


# --- pinned jobs ------------------------------------------------------------------


def test_a_job_shows_the_revision_it_asked_for_and_that_nobody_has_it_yet(
    client: FlaskClient, store: Store, post: Post, begun: dict[str, Any]
) -> None:
    child = ChildRecord("c1", "n", 1, "tone", "1", 0.0, revision="base")
    store.beat_child(child, 60, takes_work=True)
    store.beat_clerk("k1", 60)
    job = post("Hello.", revision="fp16")
    assert (job["revision"], job["status_reason"]) == ("fp16", "no_workers")
    other = post("Hello.", revision="base")
    store.beat_child(child, 60, takes_work=True)
    assert client.get(f"/v1/jobs/{other['id']}").get_json()["status_reason"] is None
    assert post("Hello.")["revision"] is None


def test_a_revision_that_never_was_is_pointed_at(
    client: FlaskClient, begun: dict[str, Any]
) -> None:
    body = {"inputs": [{"input": "Hello."}], "revision": "fp8"}
    response = client.post("/v1/jobs", json=body)
    assert response.status_code == 422
    (fault,) = response.get_json()["errors"]
    assert (fault["code"], fault["pointer"]) == ("revision_not_found", "/revision")

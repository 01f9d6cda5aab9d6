"""Several models in one stack: which are live, which speaks, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from api.app import create_app
from tests.api.fleet import Fleet
from tests.support import TONE
from voicemill.pools import Pool
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import ChildRecord

HIBARI = replace(TONE, engine="hibari", model_revision="2", deterministic=False)
BODY = {"inputs": [{"input": "Hello."}]}


@pytest.fixture
def several(settings: Settings) -> Settings:
    return replace(settings, engine="tone", engines=(Pool("tone"), Pool("hibari")))


@pytest.fixture
def client(several: Settings, store: Store) -> Iterator[FlaskClient]:
    store.publish_engine(HIBARI)
    store.publish_engine(TONE)
    with create_app(several).test_client() as client:
        yield client


def test_models_tell_how_many_children_each_has_and_keep_those_that_have_none(
    client: FlaskClient, fleet: Fleet
) -> None:
    fleet.live("one")
    fleet.live("two")
    found = client.get("/v1/models").get_json()["data"]
    assert [(one["id"], one["revision"], one["live"], one["slots"]) for one in found] == [
        ("hibari", "2", False, 0),
        ("tone", "1", True, 2),
    ]


def test_models_tell_which_revisions_their_children_have(client: FlaskClient, store: Store) -> None:
    for name, revision in (("a", "base"), ("b", "fp16"), ("c", "fp16"), ("d", None)):
        child = ChildRecord(name, "n", 1, "tone", "1", 0.0, revision=revision)
        store.beat_child(child, 60, takes_work=True)
    found = client.get("/v1/models").get_json()["data"]
    assert [one["revisions"] for one in found] == [{}, {"base": 1, "fp16": 2}]


def test_the_first_engine_speaks_where_no_model_is_named_whatever_is_live(
    client: FlaskClient, fleet: Fleet
) -> None:
    body = {"inputs": [{"input": "Hello."}, {"input": "Hello.", "model": "hibari"}]}
    job = client.post("/v1/jobs", json=body).get_json()
    items = client.get(job["urls"]["items"]).get_json()["data"]
    assert [item["model"] for item in items] == ["tone", "hibari"]


def test_a_job_whose_engine_has_no_child_waits_and_says_why_while_the_other_has_some(
    client: FlaskClient, fleet: Fleet
) -> None:
    fleet.live()
    for model, reason in (("hibari", "no_workers"), ("tone", None)):
        answer = client.post("/v1/jobs", json={**BODY, "model": model})
        assert (answer.status_code, answer.get_json()["status_reason"]) == (202, reason)


def test_where_they_are_refused_a_job_for_nobody_is_answered_503_and_not_stored(
    several: Settings, store: Store, client: FlaskClient, fleet: Fleet
) -> None:
    fleet.live()
    with create_app(replace(several, without_workers="refuse")).test_client() as strict:
        mixed = {"inputs": [{"input": "One."}, {"input": "Two.", "model": "hibari"}]}
        answer = strict.post("/v1/jobs", json=mixed)
        assert (answer.status_code, answer.get_json()["code"]) == (503, "no_workers")
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.get_json()["detail"] == (
            "No child of hibari takes work now, and a job does not wait for one here; try again "
            "later, or name a model that /v1/models shows as live."
        )
        assert strict.get("/v1/jobs").get_json()["data"] == []
        assert strict.post("/v1/jobs", json=BODY).status_code == 202
        # What is wrong with a job is told before that nobody is there.
        wrong = {"inputs": [{"input": "One.", "voice": "nobody"}], "model": "hibari"}
        assert strict.post("/v1/jobs", json=wrong).status_code == 422


def test_one_engine_down_is_a_warning_of_health(client: FlaskClient, fleet: Fleet) -> None:
    assert client.get("/readyz").status_code == 503
    fleet.live()
    fleet.store.beat_clerk("clerk", 60)
    assert client.get("/readyz").status_code == 200
    health = client.get("/health").get_json()
    assert health["status"] == "degraded"
    assert health["warnings"] == ["No child of hibari is ready; see the worker's log."]

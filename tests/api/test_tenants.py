"""Api keys over HTTP: who gets in, whose jobs are seen, and how much may wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import create_app
from tests.api.fleet import Fleet
from tests.support import TONE
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.tenants import Tenant, new_api_key

BODY = {"inputs": [{"input": "Hello."}]}
Headers = dict[str, str]


@pytest.fixture
def app(settings: Settings, store: Store) -> Flask:
    store.publish_engine(TONE)
    return create_app(replace(settings, require_api_key=True))


@pytest.fixture
def ann(store: Store) -> Headers:
    return tenant(store, Tenant("ann"))


@pytest.fixture
def bob(store: Store) -> Headers:
    return tenant(store, Tenant("bob"))


def tenant(store: Store, one: Tenant) -> Headers:
    """The headers of a new tenant's requests."""
    api_key = new_api_key()
    assert store.create_tenant(one, api_key)
    return {"Authorization": f"Bearer {api_key}"}


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer vm_wrong"}, {"Authorization": "Basic dTpw"}],
    ids=["none", "unknown", "another kind"],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/job_1", "/v1/models", "/v1/nothing"])
def test_without_a_valid_key_nothing_below_v1_is_told(
    client: FlaskClient, path: str, headers: Headers
) -> None:
    answer = client.get(path, headers=headers)
    assert (answer.status_code, answer.get_json()["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/openapi.json", "/problems/not_ready"])
def test_health_metrics_and_docs_need_no_key(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_the_jobs_of_another_tenant_do_not_exist(
    client: FlaskClient, fleet: Fleet, ann: Headers, bob: Headers
) -> None:
    job = client.post("/v1/jobs", json=BODY, headers=ann).get_json()
    fleet.end({0: b"audio"})
    path = f"/v1/jobs/{job['id']}"
    item = f"{path}/items/row-000001"
    for url in (path, f"{path}/items", item, f"{item}/audio"):
        with client.get(url, headers=ann) as answer:
            assert answer.status_code == 200, url
        other = client.get(url, headers=bob)
        assert (other.status_code, other.get_json()["code"]) == (404, "job_not_found"), url
    assert client.post(f"{path}/cancel", headers=bob).status_code == 404
    assert [one["id"] for one in client.get("/v1/jobs", headers=ann).get_json()["data"]] == [
        job["id"]
    ]
    assert client.get("/v1/jobs", headers=bob).get_json()["data"] == []
    after = client.get(f"/v1/jobs?after={job['id']}", headers=bob)
    assert after.status_code == 404


def test_a_revoked_key_is_refused_and_its_jobs_go_on(
    client: FlaskClient, store: Store, ann: Headers
) -> None:
    job = client.post("/v1/jobs", json=BODY, headers=ann).get_json()
    store.revoke_tenant("ann")
    assert client.get(f"/v1/jobs/{job['id']}", headers=ann).status_code == 401
    assert store.job(job["id"]).status == "queued"


def test_a_tenant_with_too_much_waiting_is_told_to_come_back(
    client: FlaskClient, store: Store
) -> None:
    headers = tenant(store, Tenant("ann", max_queued_items=1))
    assert client.post("/v1/jobs", json=BODY, headers=headers).status_code == 202
    refused = client.post("/v1/jobs", json=BODY, headers=headers)
    assert (refused.status_code, refused.get_json()["code"]) == (429, "quota_exceeded")
    assert int(refused.headers["Retry-After"]) >= 1
    assert "may have 1 items waiting" in refused.get_json()["detail"]


@pytest.fixture
def open_client(settings: Settings, store: Store) -> Iterator[FlaskClient]:
    """A client of an API without keys, and with room for almost nothing."""
    store.publish_engine(TONE)
    with create_app(replace(settings, max_queued_mb=1)).test_client() as client:
        yield client


def test_while_no_key_is_required_a_header_is_ignored(
    open_client: FlaskClient, store: Store
) -> None:
    headers = {"Authorization": "Bearer vm_wrong"}
    job = open_client.post("/v1/jobs", json=BODY, headers=headers).get_json()
    assert store.job(job["id"]).tenant == "default"


def test_a_queue_without_room_is_unavailable_for_all(
    open_client: FlaskClient, store: Store
) -> None:
    head = ("job_x", "ann", "{}", '["tone"]', "bulk", 0, "", "", "", "", "")
    store.run("create_job", *head, 1, 1, 1024 * 1024, "inf")
    refused = open_client.post("/v1/jobs", json=BODY)
    assert (refused.status_code, refused.get_json()["code"]) == (503, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    assert open_client.get("/v1/jobs").get_json()["data"] == []

"""Liveness, readiness, health, models and voices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from api.app import create_app
from tests.api.fleet import Fleet
from voicemill.settings import Settings
from voicemill.store import Store

NO_GPU = {"devices": [], "reason": "no NVIDIA driver: Driver Not Loaded"}


def test_a_process_is_alive_without_any_redis() -> None:
    app = create_app(Settings(redis_url="redis://127.0.0.1:1/0"))

    response = app.test_client().get("/healthz")

    assert (response.status_code, response.get_json()) == (200, {"status": "ok"})


def test_a_stack_without_workers_is_not_ready_and_says_why(client: FlaskClient) -> None:
    response = client.get("/readyz")

    body = response.get_json()
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "2"
    assert body["status"] == "not_ready"
    assert {check["name"] for check in body["checks"] if not check["ok"]} == {"children", "clerk"}


def test_a_stack_with_a_child_and_a_clerk_is_ready(
    client: FlaskClient, fleet: Fleet, store: Store
) -> None:
    fleet.live(rss_bytes=1000, gpu=NO_GPU)
    store.beat_clerk("clerk", 60)

    ready = client.get("/readyz")
    health = client.get("/health")

    assert (ready.status_code, ready.get_json()["status"]) == (200, "ready")
    assert health.status_code == 200
    assert health.get_json()["children"][0]["rss_bytes"] == 1000
    assert health.get_json()["gpu"] == {"node": NO_GPU}
    assert health.get_json()["queue"]["tone"]["slots"] == 1


def test_a_folder_that_cannot_be_looked_at_is_a_check_that_fails(settings: Settings) -> None:
    unseen = replace(settings, output_dir=settings.home / ("x" * 300))
    client = create_app(unseen).test_client()

    for path in ("/readyz", "/health"):
        response = client.get(path)
        (disk,) = [one for one in response.get_json()["checks"] if one["name"] == "disk"]
        assert (response.status_code, disk["ok"]) == (503, False)
        assert disk["detail"].endswith("can't be looked at: File name too long.")
    assert client.get("/health").get_json()["disk_free_bytes"] is None


def test_models_say_what_they_can_do_and_whether_they_live(
    client: FlaskClient, fleet: Fleet
) -> None:
    (model,) = client.get("/v1/models").get_json()["data"]
    assert (model["id"], model["object"], model["live"]) == ("tone", "model", False)
    assert (model["revision"], model["sample_rate"]) == ("1", 24000)
    assert model["voices"] == ["low", "high"]
    assert (model["min_speed"], model["max_speed"], model["seed"]) == (0.25, 4.0, True)

    fleet.live()

    assert client.get("/v1/models").get_json()["data"][0]["live"] is True


@pytest.mark.parametrize(("query", "names"), [("", ["low", "high"]), ("?model=nope", [])])
def test_voices_are_listed_by_model(client: FlaskClient, query: str, names: list[str]) -> None:
    body = client.get(f"/v1/voices{query}").get_json()

    assert [voice["id"] for voice in body["data"]] == names
    assert all(voice["model"] == "tone" for voice in body["data"])

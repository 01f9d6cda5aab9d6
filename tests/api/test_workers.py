"""Workers over HTTP: how they are, and what an operator may ask of them."""

from __future__ import annotations

import pytest
from flask.testing import FlaskClient

from tests.api.fleet import Fleet
from voicemill.errors import WorkerLostError
from voicemill.store import Store
from voicemill.workers import (
    ChildRecord,
    ChildState,
    ProcessRecord,
    RecycleRecord,
    SessionCounts,
    WorkerRecord,
)

NODE = "speech@host"
CHILD = f"{NODE}:7:42"
WORKER = WorkerRecord(
    NODE,
    7,
    "tone",
    started_at=1000.0,
    processes=[ProcessRecord(43, 0, "loading"), ProcessRecord(42, 0, "busy")],
    recycles=[RecycleRecord(1100.0, 41, 42, "tasks", 3.5), RecycleRecord(1200.0, 40, None, "age")],
    failure="Successor 44 ended with status 3, not ready.",
    alerts=["process 41 ended and still holds memory of GPU-a0"],
)

OF_THE_DEVICE = {"uuid": "GPU-a0", "name": "A card", "total_bytes": 900, "used_bytes": 500}
OF_THE_CHILD = {"own_bytes": 300, "measured_by": "process", "reason": None}
DEVICE = {**OF_THE_DEVICE, **OF_THE_CHILD}


@pytest.fixture
def worker(store: Store) -> WorkerRecord:
    """A worker with a child that works and a successor that loads."""
    store.beat_worker("incarnation", WORKER, 60)
    child = ChildRecord(
        CHILD,
        NODE,
        42,
        "tone",
        "1",
        ready_at=1100.0,
        tasks=5,
        items=9,
        next_reason="tasks",
        nearness=0.5,
        rss_bytes=200,
        rss_baseline_bytes=100,
        gpu={"devices": [DEVICE], "reason": None},
        sessions=SessionCounts(12, 9),
    )
    store.beat_child(child, 60, takes_work=True)
    return WORKER


@pytest.mark.usefixtures("worker")
def test_a_worker_tells_of_its_children_and_its_last_recycles(client: FlaskClient) -> None:
    listed = client.get("/v1/workers").get_json()
    shown = client.get(f"/v1/workers/{NODE}").get_json()

    assert (listed["first_id"], listed["has_more"]) == (NODE, False)
    assert (shown["id"], shown["state"], shown["pid"]) == (NODE, "ready", 7)
    assert [one["reason"] for one in shown["recycles"]] == ["age", "tasks"]
    assert shown["recycles"][1]["handover_seconds"] == 3.5
    assert (shown["failure"], shown["alerts"]) == (WORKER.failure, WORKER.alerts)
    uses = [{"pid": 42, **OF_THE_CHILD}]
    assert shown["gpu"] == {"devices": [{**OF_THE_DEVICE, "children": uses}], "reason": None}
    working, loading = shown["children"]
    assert (working["id"], working["state"], working["slot"]) == (CHILD, "busy", 0)
    assert (working["tasks"], working["items"], working["age_seconds"] > 0) == (5, 9, True)
    assert (working["rss_bytes"], working["rss_baseline_bytes"]) == (200, 100)
    assert (working["next_reason"], working["nearness"]) == ("tasks", 0.5)
    assert working["sessions"] == {"open": 3, "opened": 12, "destroyed": 9}
    assert loading["sessions"] == {"open": 0, "opened": 0, "destroyed": 0}
    assert (loading["pid"], loading["state"], loading["age_seconds"]) == (43, "loading", None)


def test_a_worker_never_heard_of_is_not_found(client: FlaskClient) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", "/recycle"),
        ("POST", "/drain"),
        ("POST", "/resume"),
    ):
        response = client.open(f"/v1/workers/nobody@host{path}", method=method)
        assert (response.status_code, response.get_json()["code"]) == (404, "worker_not_found")


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("who", [NODE, CHILD])
def test_orders_are_heard_with_the_next_heartbeat(
    who: str, client: FlaskClient, store: Store
) -> None:
    child = store.fleet().children[CHILD]

    for order in ("recycle", "drain"):
        response = client.post(f"/v1/workers/{who}/{order}")
        assert response.status_code == 202
        assert response.get_json() == {"object": "order", "id": who, "order": order}
    orders = store.beat_child(child, 60, takes_work=True)
    assert (orders.recycles, orders.drain) == (1, True)
    assert store.snapshot().slots["tone"] == 0, "a child that drains is no slot"

    client.post(f"/v1/workers/{who}/resume")
    orders = store.beat_child(child, 60, takes_work=True)
    assert (orders.recycles, orders.drain) == (1, False)
    assert store.snapshot().slots["tone"] == 1


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("order", ["recycle", "drain", "resume"])
def test_a_child_that_still_loads_hears_no_order_and_that_is_said(
    order: str, client: FlaskClient
) -> None:
    response = client.post(f"/v1/workers/{NODE}:7:43/{order}")
    problem = response.get_json()
    assert (response.status_code, problem["code"]) == (409, "child_loading")
    assert "still loads" in problem["detail"]
    assert "try again" in problem["detail"]


@pytest.mark.usefixtures("worker")
def test_a_drained_worker_says_so(client: FlaskClient) -> None:
    client.post(f"/v1/workers/{NODE}/drain")

    assert client.get(f"/v1/workers/{NODE}").get_json()["state"] == "draining"


def test_orders_to_a_child_end_with_it(store: Store, worker: WorkerRecord) -> None:
    assert store.order(CHILD, "drain")
    store.release_child(CHILD, worker.engine, max_attempts=3, error=WorkerLostError("It left."))
    assert store.fleet().draining == frozenset()
    assert not store.order(CHILD, "drain")


def test_a_paused_queue_admits_nothing_and_health_warns(
    client: FlaskClient, fleet: Fleet, store: Store
) -> None:
    fleet.live()
    store.beat_clerk("clerk", 60)
    assert client.post("/v1/queue/pause").get_json() == {"object": "queue", "paused": True}
    created = client.post("/v1/jobs", json={"model": "tone", "inputs": [{"input": "Hello."}]})

    assert created.status_code == 202
    assert created.get_json()["status_reason"] == "queue_paused"
    assert fleet.admitted() == []
    health = client.get("/health")
    assert (health.status_code, health.get_json()["status"]) == (200, "degraded")
    assert health.get_json()["warnings"] == [
        "The queue is paused: nothing is admitted until it is resumed."
    ]

    assert client.post("/v1/queue/resume").get_json() == {"object": "queue", "paused": False}
    assert len(fleet.admitted()) == 1
    assert client.get("/health").get_json()["status"] == "ready"


@pytest.mark.usefixtures("worker")
def test_what_a_worker_complains_of_degrades_health(client: FlaskClient, store: Store) -> None:
    store.beat_clerk("clerk", 60)
    body = client.get("/health").get_json()

    assert body["warnings"] == [
        f"{NODE}: Successor 44 ended with status 3, not ready.",
        f"{NODE}: process 41 ended and still holds memory of GPU-a0",
    ]


@pytest.mark.parametrize(
    ("children", "state"),
    [
        (["draining", "busy"], "ready"),
        (["draining", "loading"], "draining"),
        (["draining"], "draining"),
        (["loading"], "loading"),
        ([], "loading"),
    ],
)
def test_a_worker_is_what_its_children_are(
    client: FlaskClient, store: Store, children: list[ChildState], state: str
) -> None:
    processes = [ProcessRecord(50 + slot, slot, one) for slot, one in enumerate(children)]
    store.beat_worker("i", WorkerRecord(NODE, 7, "tone", 1000.0, processes=processes), 60)
    assert client.get(f"/v1/workers/{NODE}").get_json()["state"] == state

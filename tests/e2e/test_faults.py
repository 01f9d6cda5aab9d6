"""Parts are killed while items run: each item ends once, and nothing half-written is seen."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.support import wait_until

HELD_AT_MOST = 4 + 4
"""Items of one call to the `tone` engine, and those whose files were being written."""
OPTIONS = json.dumps({"seconds_per_segment": 0.1})


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(
        tmp_path_factory.mktemp("faults") / "home",
        *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
        env={"VOICEMILL_LEASE_SECONDS": "5"},
    )
    stack.start()
    yield stack
    assert stack.stop() == 0


def texts(count: int) -> list[str]:
    return [f"Line number {number}." for number in range(count)]


def wait_for_some(stack: Stack, job_id: str, least: int) -> None:
    wait_until(
        lambda: stack.job(job_id)["request_counts"]["completed"] >= least,
        60,
        f"{least} items of {job_id}",
    )


def test_a_child_killed_in_mid_item_costs_one_attempt_of_what_it_held(stack: Stack) -> None:
    job_id = stack.submit(texts(60))
    wait_for_some(stack, job_id, 5)
    assert stack.kill_pid(stack.children()[0])
    items = audit(stack, job_id, 60)
    assert {item["status"] for item in items} == {"succeeded"}
    retried = [item for item in items if item["attempts"] > 1]
    assert 1 <= len(retried) <= HELD_AT_MOST
    assert {item["attempts"] for item in retried} == {2}


def test_a_poison_item_fails_alone_after_its_attempts(stack: Stack) -> None:
    job_id = stack.submit([*texts(10), "Poison {tone:crash} here.", *texts(10)])
    items = audit(stack, job_id, 21)
    failed = [item for item in items if item["status"] == "failed"]
    assert [(item["index"], item["attempts"]) for item in failed] == [(10, 3)]
    assert failed[0]["error"]["code"] == "worker_lost"


def test_bad_audio_fails_its_item_by_name_and_spares_the_batch(stack: Stack) -> None:
    bad = {
        2: ("nan", "invalid_audio"),
        5: ("silence", "silent_audio"),
        7: ("empty", "invalid_audio"),
    }
    lines = texts(10)
    for index, (directive, _) in bad.items():
        lines[index] += f" {{tone:{directive}}}"
    job_id = stack.submit(lines)
    items = audit(stack, job_id, 10)
    failed = {item["index"]: item["error"]["code"] for item in items if item["error"]}
    assert failed == {index: code for index, (_, code) in bad.items()}
    assert {item["attempts"] for item in items if item["index"] not in bad} == {1}


@pytest.mark.full
def test_a_hundred_thousand_characters_become_one_file(stack: Stack) -> None:
    job_id = stack.submit(["All work and no play. " * 4500])
    (item,) = audit(stack, job_id, 1)
    assert item["status"] == "succeeded"
    assert item["duration_seconds"] > 1000


def test_the_whole_worker_killed_loses_nothing(stack: Stack) -> None:
    job_id = stack.submit(texts(80))
    wait_for_some(stack, job_id, 5)
    assert stack.kill_part("worker")
    items = audit(stack, job_id, 80)
    assert {item["status"] for item in items} == {"succeeded"}
    stack.wait_ready()


def test_redis_killed_and_back_on_its_file_loses_nothing(stack: Stack) -> None:
    job_id = stack.submit(texts(80))
    wait_for_some(stack, job_id, 5)
    assert stack.kill_part("redis")
    items = audit(stack, job_id, 80)
    assert {item["status"] for item in items} == {"succeeded"}


def test_a_child_and_then_redis_killed_loses_nothing(stack: Stack) -> None:
    job_id = stack.submit(texts(60))
    wait_for_some(stack, job_id, 5)
    assert stack.kill_pid(stack.children()[0])
    assert stack.kill_part("redis")
    items = audit(stack, job_id, 60)
    assert {item["status"] for item in items} == {"succeeded"}


def test_the_api_killed_is_back_and_items_went_on(stack: Stack) -> None:
    job_id = stack.submit(texts(60))
    wait_for_some(stack, job_id, 5)
    assert stack.kill_part("api")
    items = audit(stack, job_id, 60)
    assert {item["status"] for item in items} == {"succeeded"}


def test_the_clerk_killed_is_back(stack: Stack) -> None:
    job_id = stack.submit(texts(40))
    assert stack.kill_part("clerk")
    audit(stack, job_id, 40)
    stack.wait_ready()


def test_a_cancelled_job_ends_and_its_slots_work_on(stack: Stack) -> None:
    job_id = stack.submit(texts(200))
    wait_for_some(stack, job_id, 3)
    stack.request("POST", f"/v1/jobs/{job_id}/cancel")
    job = stack.wait_for(job_id, 15)
    assert job["status"] == "cancelled"
    counts = job["request_counts"]
    assert counts["completed"] + counts["cancelled"] == 200
    assert counts["completed"] >= 3
    audit(stack, stack.submit(texts(5)), 5)

"""Parts are killed while items run: each item ends once, and nothing half-written is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.e2e.watch import Watcher
from tests.support import wait_until

HELD_AT_MOST = 4 + 4
"""Items of one call to the `tone` engine, and those whose files were being written."""
OPTIONS = json.dumps({"seconds_per_segment": 0.02})
LOAD = 200
"""Items that run while something is killed."""


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


def hurt(
    stack: Stack, lines: list[str], ready: Callable[[str], object], kill: Callable[[], object]
) -> list[dict[str, Any]]:
    """Kill something once a job is ``ready`` for it, and watch; gives the items as they ended."""
    endings = stack.counter("voicemill_items_total")
    job_id = stack.submit(lines)
    with Watcher(stack.redis_url, job_id) as watcher:
        ready(job_id)
        looks = len(watcher.looks)
        kill()
        items = audit(stack, job_id, len(lines))
    assert stack.counter("voicemill_items_total") - endings == len(lines)
    assert 0 < looks < len(watcher.looks)
    assert watcher.looks[looks - 1] < len(lines)
    return items


def test_a_child_killed_in_mid_item_costs_one_attempt_of_what_it_held(stack: Stack) -> None:
    long = 100

    def is_at_the_long_one(job_id: str) -> None:
        item = f"/v1/jobs/{job_id}/items/row-{long + 1:06d}"
        wait_until(
            lambda: stack.request("GET", item).json()["status"] == "in_progress",
            60,
            "an item that takes long",
        )

    lines = texts(LOAD)
    lines[long] += " {tone:seconds=1}"
    # Whichever child has it: both are killed.
    items = hurt(
        stack,
        lines,
        is_at_the_long_one,
        lambda: [stack.kill_pid(pid) for pid in stack.children()],
    )
    assert {item["status"] for item in items} == {"succeeded"}
    retried = [item for item in items if item["attempts"] > 1]
    assert long in {item["index"] for item in retried}
    assert len(retried) <= 2 * HELD_AT_MOST
    assert {item["attempts"] for item in retried} == {2}


@pytest.mark.parametrize("parts", ["worker", "redis", "child redis", "api", "clerk"])
def test_a_part_killed_under_load_loses_nothing(stack: Stack, parts: str) -> None:
    def kill() -> None:
        for part in parts.split():
            assert stack.kill_pid(stack.children()[0] if part == "child" else stack.pid(part))

    items = hurt(stack, texts(LOAD), lambda job_id: wait_for_some(stack, job_id, 50), kill)
    assert {item["status"] for item in items} == {"succeeded"}
    stack.wait_ready()


def test_an_item_that_crashes_its_child_fails_alone_after_its_attempts(stack: Stack) -> None:
    job_id = stack.submit([*texts(20), "Poison {tone:crash} here.", *texts(20)])
    items = audit(stack, job_id, 41)
    crashed = items.pop(20)
    assert (crashed["status"], crashed["attempts"]) == ("failed", 3)
    assert crashed["error"]["code"] == "worker_lost"
    assert {item["status"] for item in items} == {"succeeded"}
    retried = [item for item in items if item["attempts"] > 1]
    assert len(retried) < HELD_AT_MOST
    assert {item["attempts"] for item in retried} <= {2}


@pytest.mark.full
def test_a_poisoned_engine_takes_its_child_and_no_other_item(stack: Stack) -> None:
    before = stack.children()
    recycled = stack.counter("voicemill_recycles_total", reason="errors")
    job_id = stack.submit([*texts(20), "Broken {tone:poison} now.", *texts(20)])
    items = audit(stack, job_id, 41)
    poisoned = items.pop(20)
    assert (poisoned["status"], poisoned["attempts"]) == ("failed", 3)
    assert poisoned["error"]["code"] == "engine_poisoned"
    assert {item["status"] for item in items} == {"succeeded"}
    retried = [item for item in items if item["attempts"] > 1]
    assert len(retried) < 4, "only those of the same call to the engine"
    assert {item["attempts"] for item in retried} <= {2}
    wait_until(
        lambda: stack.counter("voicemill_recycles_total", reason="errors") == recycled + 3,
        20,
        "three children that leave",
    )
    wait_until(lambda: len(set(stack.children()) - set(before)) >= 1, 20, "their successors")
    stack.wait_ready()


def test_one_item_that_fails_spares_its_batch(stack: Stack) -> None:
    lines = texts(40)
    lines[4] += " {tone:fail}"
    items = audit(stack, stack.submit(lines), 40)
    assert items[3]["task_id"] == items[5]["task_id"], "the item was not in the middle of a batch"
    failed = items.pop(4)
    assert (failed["status"], failed["attempts"]) == ("failed", 3)
    assert failed["error"]["code"] == "synthesis_failed"
    assert {(item["status"], item["attempts"]) for item in items} == {("succeeded", 1)}


def test_bad_audio_fails_its_item_by_name_and_spares_the_batch(stack: Stack) -> None:
    bad = {
        2: ("nan", "invalid_audio"),
        5: ("silence", "silent_audio"),
        7: ("empty", "invalid_audio"),
    }
    lines = texts(10)
    for index, (directive, _) in bad.items():
        lines[index] += f" {{tone:{directive}}}"
    items = audit(stack, stack.submit(lines), 10)
    failed = {item["index"]: item["error"]["code"] for item in items if item["error"]}
    assert failed == {index: code for index, (_, code) in bad.items()}
    assert {item["attempts"] for item in items if item["index"] not in bad} == {1}


@pytest.mark.full
def test_a_hundred_thousand_characters_become_one_file(stack: Stack) -> None:
    job_id = stack.submit(["All work and no play. " * 4500])
    (item,) = audit(stack, job_id, 1)
    assert item["status"] == "succeeded"
    assert item["duration_seconds"] > 1000


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

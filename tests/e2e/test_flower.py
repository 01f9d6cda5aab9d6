"""Flower shows the workers, their pool and the tasks, to its owner only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.stack import Stack
from tests.support import wait_until


@pytest.fixture
def flower(hibari_stack: Stack) -> Iterator[httpx.Client]:
    """Its owner's way in."""
    messages = (hibari_stack.home.parent / "up.stderr").read_text()
    url = re.search(r"Flower\s+(http://127\.0\.0\.1:\d+)", messages)
    assert url is not None
    user, _, password = (hibari_stack.home / "flower.password").read_text().strip().partition(":")
    with httpx.Client(base_url=url[1], auth=(user, password), timeout=20) as client:
        yield client


def test_it_shows_the_pool_and_its_max_tasks(flower: httpx.Client) -> None:
    workers: dict[str, Any] = flower.get("/api/workers", params={"refresh": True}).json()
    (worker,) = workers.values()
    pool = worker["stats"]["pool"]
    assert pool["implementation"] == "worker.pool:TaskPool"
    assert pool["max-tasks-per-child"] == 1000
    assert worker["conf"]["worker_max_tasks_per_child"] == 1000


def test_it_shows_a_task_with_ids_and_no_text(hibari_stack: Stack, flower: httpx.Client) -> None:
    job_id = hibari_stack.submit(["The password is swordfish."])
    hibari_stack.wait_for(job_id)
    task = f"/api/task/info/{hibari_stack.items(job_id)[0]['task_id']}"

    def is_shown() -> bool:
        answer = flower.get(task)
        return answer.status_code == 200 and answer.json()["state"] == "SUCCESS"

    wait_until(is_shown, 20, "the task in Flower")
    shown = flower.get(task).text
    assert "voicemill.synthesize" in shown
    assert "swordfish" not in shown


@pytest.mark.parametrize("path", ["/", "/workers", "/api/workers"])
def test_nobody_else_gets_in(flower: httpx.Client, path: str) -> None:
    assert httpx.get(flower.base_url.join(path)).status_code == 401

"""A rollout over two nodes with one child each: one is the canary, and no batch is stuck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import Stack, Worker
from tests.support import wait_until
from voicemill.store import Store
from voicemill.workers import ChildRecord

ENGINE_OPTIONS = json.dumps({"seconds_per_segment": 0.01})
BATCH_SECONDS = "0.05"
TEXTS = [f"Line {n}." for n in range(60)]
pytestmark = pytest.mark.full


class Nodes:
    """A stack with one child, and a worker of another node with one child."""

    def __init__(self, stack: Stack, other: Worker) -> None:
        self.stack = stack
        self.other = other
        self._store = Store.connect(stack.redis_url)

    def start(self, revision: str, canary: dict[str, Any]) -> str:
        """Begin a rollout and wait until one of the two children has it; gives its id."""
        body = {"model": "tone", "revision": revision, "options": {}, "canary": canary}
        response = self.stack.request("POST", "/v1/rollouts", json=body)
        assert response.status_code == 201, response.text
        self.wait_for([revision, "base"])
        rollout: str = response.json()["id"]
        return rollout

    def wait_for(self, revisions: list[str]) -> None:
        """Wait until the children have these revisions, and no others load."""
        wait_until(lambda: self.revisions() == sorted(revisions), 30, f"{revisions}")

    def revisions(self) -> list[str | None]:
        """Of the children that take work."""
        return sorted(child.revision or "" for child in self.children())

    def children(self) -> list[ChildRecord]:
        """Those that take work."""
        return [one for one in self._store.fleet().children.values() if one.takes_work]

    def order(self, order: str, revision: str) -> str:
        """Ask something of the node whose child has a revision; gives that node."""
        (node,) = {child.node for child in self.children() if child.revision == revision}
        response = self.stack.request("POST", f"/v1/workers/{node}/{order}")
        assert response.status_code == 202, response.text
        return node

    def speak(self) -> set[str]:
        """Have texts spoken; gives the model revisions that spoke them."""
        job = self.stack.submit(TEXTS, reuse=False)
        return {item["model_revision"] for item in audit(self.stack, job, len(TEXTS))}

    def lost_batches(self) -> int:
        """Batches that were stuck somewhere until the clerk took them back."""
        return (self.stack.home / "logs" / "clerk.log").read_text().count("was lost on its way")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    home, folder = tmp_path / "home", tmp_path / "other"
    folder.mkdir()
    flags = ("--engine", "tone", "--workers", "1", "--engine-options", ENGINE_OPTIONS)
    stack = Stack(home, *flags, env={"VOICEMILL_BATCH_SECONDS": BATCH_SECONDS})
    stack.start()
    try:
        env = {
            "VOICEMILL_ENGINE_OPTIONS": ENGINE_OPTIONS,
            "VOICEMILL_BATCH_SECONDS": BATCH_SECONDS,
            "VOICEMILL_OUTPUT_DIR": str(home / "outputs"),
        }
        with Worker(stack.redis_url, folder, **env) as other:
            yield Nodes(stack, other)
    finally:
        status = stack.stop()
    assert status == 0


def test_one_of_two_nodes_is_the_canary_and_both_speak(nodes: Nodes) -> None:
    nodes.start("r1", {"percent": 50})
    assert nodes.speak() == {"1", "1+r1"}
    assert nodes.lost_batches() == 0


def test_a_node_that_speaks_for_some_tenants_alone_holds_nothing_of_others(nodes: Nodes) -> None:
    nodes.start("r1", {"tenants": ["somebody"]})
    for _ in range(3):
        assert nodes.speak() == {"1"}
    assert nodes.lost_batches() == 0


def test_canaries_for_some_tenants_speak_for_all_while_nobody_else_does(nodes: Nodes) -> None:
    nodes.start("r1", {"tenants": ["somebody"]})
    nodes.order("drain", "base")
    nodes.wait_for(["r1"])
    assert nodes.speak() == {"1+r1"}
    assert nodes.lost_batches() == 0


def test_tenants_whose_canary_takes_no_work_are_spoken_for_by_others(nodes: Nodes) -> None:
    nodes.start("r1", {"tenants": ["default"]})
    assert nodes.speak() == {"1+r1"}
    node = nodes.order("drain", "r1")
    nodes.wait_for(["base"])
    assert nodes.speak() == {"1"}
    nodes.stack.request("POST", f"/v1/workers/{node}/resume")
    nodes.wait_for(["base", "r1"])
    assert nodes.speak() == {"1+r1"}
    assert nodes.lost_batches() == 0

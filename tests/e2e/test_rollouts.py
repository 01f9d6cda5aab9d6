"""Another revision comes into use, or does not, under load: nothing is lost and nobody waits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.auditor import judge_all
from tests.e2e.audit import audit
from tests.e2e.stack import ROOT, Stack
from tests.support import wait_until

CHILDREN = 3
JOB_ITEMS, LEAST_ITEMS = 50, 2000
pytestmark = pytest.mark.full


class Load:
    """Sends jobs one behind the other, so that there is always some work."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.jobs: list[tuple[str, list[str]]] = []

    def __enter__(self) -> Load:
        self._thread.start()
        wait_until(lambda: bool(self.jobs))
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._done.is_set() or len(self.jobs) * JOB_ITEMS < LEAST_ITEMS:
            number = len(self.jobs)
            texts = [f"Line {n} of job {number}." for n in range(JOB_ITEMS)]
            job = self._stack.submit(texts)
            self.jobs.append((job, texts))
            wait_until(lambda job=job: self._left(job) < JOB_ITEMS // 2)  # type: ignore[misc]

    def _left(self, job: str) -> int:
        counts = self._stack.job(job)["request_counts"]
        return int(counts["queued"])


@contextmanager
def stack_of(home: Path, **env: str) -> Iterator[Stack]:
    """Children that speak quickly and load slowly."""
    options = json.dumps({"seconds_per_segment": 0.002, "load_seconds": 0.5})
    flags = ("--engine", "tone", "--workers", str(CHILDREN), "--engine-options", options)
    stack = Stack(home, *flags, env={"VOICEMILL_BATCH_SECONDS": "0.05", **env})
    stack.start()
    try:
        wait_until(lambda: len(children(stack)) == CHILDREN, 60, "all children")
        yield stack
    finally:
        status = stack.stop()
    assert status == 0


def children(stack: Stack) -> list[dict[str, Any]]:
    """The children that are loaded."""
    (worker,) = stack.request("GET", "/v1/workers").json()["data"]
    found = [one for one in worker["children"] if one["state"] in {"ready", "busy"}]
    return [one for one in found if one["model_revision"]]


def revisions(stack: Stack) -> list[str]:
    """The model revisions of the children that are loaded, in order."""
    return sorted(child["model_revision"] for child in children(stack))


def wait_for_children(stack: Stack, expected: list[str]) -> None:
    """What the parent says of its children lags behind by a second or so."""
    wait_until(lambda: revisions(stack) == expected, 60, f"{expected}, not {revisions(stack)}")


def start(stack: Stack, revision: str, options: dict[str, Any], **said: Any) -> str:
    body = {"model": "tone", "revision": revision, "options": options, **said}
    response = stack.request("POST", "/v1/rollouts", json=body)
    assert response.status_code == 201, response.text
    rollout_id: str = response.json()["id"]
    return rollout_id


def rollout(stack: Stack, rollout_id: str) -> dict[str, Any]:
    body: dict[str, Any] = stack.request("GET", f"/v1/rollouts/{rollout_id}").json()
    return body


def wait_for(stack: Stack, rollout_id: str, status: str) -> dict[str, Any]:
    wait_until(
        lambda: rollout(stack, rollout_id)["status"] == status,
        60,
        f"{status}, not {rollout(stack, rollout_id)}",
    )
    return rollout(stack, rollout_id)


def move(stack: Stack, rollout_id: str, action: str) -> None:
    assert stack.request("POST", f"/v1/rollouts/{rollout_id}/{action}").status_code == 200


def test_two_rollouts_one_rollback_and_one_that_can_not_load_under_load(tmp_path: Path) -> None:
    with stack_of(tmp_path / "home") as stack:
        with Load(stack) as load:
            first = start(stack, "r1", {})
            wait_for_children(stack, ["1", "1", "1+r1"])
            move(stack, first, "promote")
            wait_for(stack, first, "completed")
            wait_for_children(stack, ["1+r1"] * CHILDREN)

            bad = start(stack, "no-such-option", {"no_such_option": 1})
            failed = wait_for(stack, bad, "failed")
            assert "no_such_option" in failed["reason"]
            assert failed["new"]["attempts"] == 0

            slow = start(
                stack,
                "slow",
                {"seconds_per_segment": 0.02},
                canary={"percent": 50},
                rule={"min_attempts": 20},
            )
            taken_back = wait_for(stack, slow, "rolled_back")
            assert "times as slow and may be 1.2" in taken_back["reason"]
            wait_for_children(stack, ["1+r1"] * CHILDREN)

            second = start(
                stack, "r2", {}, rule={"min_attempts": 50, "max_slowdown": 5, "max_memory": 5}
            )
            done = wait_for(stack, second, "completed")
            assert done["reason"].startswith("by rule: 0.0% (before: 0.0%)")
            assert min(done["old"]["attempts"], done["new"]["attempts"]) >= 50

            back = start(stack, "base", {})
            wait_until(lambda: "1" in revisions(stack), 60, "a canary that is as before")
            move(stack, back, "rollback")
            wait_for(stack, back, "rolled_back")
        assert audited(stack, load) <= {"1", "1+r1", "1+slow", "1+r2"}
        (worker,) = stack.request("GET", "/v1/workers").json()["data"]
        reasons = {one["reason"] for one in worker["recycles"]}
        assert reasons == {"model"}
        assert all(one["successor"] for one in worker["recycles"]), "none left before another came"


def audited(stack: Stack, load: Load) -> set[str]:
    """Every item was spoken once, each batch by one revision; gives the revisions there were."""
    by_task = defaultdict[str, set[str]](set)
    for job, texts in load.jobs:
        items = audit(stack, job, len(texts))
        assert {(item["status"], item["attempts"]) for item in items} == {("succeeded", 1)}
        judge_all(texts, items)
        for item in items:
            by_task[item["task_id"]].add(item["model_revision"])
    assert sum(len(texts) for _, texts in load.jobs) >= LEAST_ITEMS
    assert {len(found) for found in by_task.values()} == {1}
    return set().union(*by_task.values())


def test_a_revision_whose_children_die_as_they_load_is_taken_back(tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    with stack_of(tmp_path / "home") as stack:
        for revision in ("raises", "warm-up"):
            name = "fail_load_while" if revision == "raises" else "fail_warm_up_while"
            failed = start(stack, revision, {name: str(obstacle)}, canary={"percent": 100})
            assert wait_for(stack, failed, "failed")["reason"]
            wait_for_children(stack, ["1"] * CHILDREN)
        job = stack.submit(["Still here."])
        assert [item["model_revision"] for item in audit(stack, job, 1)] == ["1"]


def test_a_revision_that_hangs_as_it_loads_is_taken_back(tmp_path: Path) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    with stack_of(tmp_path / "home", VOICEMILL_LOAD_TIMEOUT_SECONDS="5") as stack:
        hung = start(stack, "hangs", {"hang_load_while": str(obstacle)})
        assert "before it was ready" in wait_for(stack, hung, "failed")["reason"]
        wait_for_children(stack, ["1"] * CHILDREN)


def test_a_job_is_spoken_by_the_revision_it_asks_for_and_others_by_any(tmp_path: Path) -> None:
    with stack_of(tmp_path / "home") as stack:
        texts = [f"Line {n}." for n in range(60)]
        trial = start(stack, "r1", {})
        wait_for_children(stack, ["1", "1", "1+r1"])
        jobs = {
            pinned: stack.submit(texts, reuse=False, **({"revision": pinned} if pinned else {}))
            for pinned in ("r1", "base", "")
        }
        found = {
            pinned: {item["model_revision"] for item in audit(stack, job, len(texts))}
            for pinned, job in jobs.items()
        }
        assert found["r1"] == {"1+r1"}
        assert found["base"] == {"1"}
        assert found[""] == {"1", "1+r1"}

        move(stack, trial, "rollback")
        wait_for(stack, trial, "rolled_back")
        waiting = stack.submit(["Nobody can say this now."], revision="r1")
        wait_until(lambda: stack.job(waiting)["status_reason"] == "no_workers")
        assert stack.wait_for(stack.submit(["But this."]))["status"] == "completed"
        again = start(stack, "r1", {})
        assert [item["model_revision"] for item in audit(stack, waiting, 1)] == ["1+r1"]
        move(stack, again, "rollback")


def test_canaries_for_a_tenant_speak_for_it_alone_and_it_waits_for_nobody_after(
    tmp_path: Path,
) -> None:
    with stack_of(tmp_path / "home") as stack:
        texts = [f"Line {n}." for n in range(40)]
        trial = start(stack, "r1", {}, canary={"children": 1, "tenants": ["default"]})
        wait_for_children(stack, ["1", "1", "1+r1"])
        job = stack.submit(texts)
        assert {one["model_revision"] for one in audit(stack, job, len(texts))} == {"1+r1"}
        assert rollout(stack, trial)["old"]["attempts"] == 0
        long = stack.submit([f"{{tone:seconds=0.05}} Line {n}." for n in range(200)])
        wait_until(lambda: stack.job(long)["request_counts"]["completed"] > 0)
        move(stack, trial, "rollback")
        found = {one["model_revision"] for one in audit(stack, long, 200)}
        assert found == {"1", "1+r1"}


def test_a_worker_that_starts_later_has_the_promoted_revision(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with stack_of(home) as stack:
        run = [sys.executable, str(ROOT / "scripts" / "rollout.py"), "--url", stack.url]
        begun = [*run, "start", "tone", "r1", "--options", '{"seconds_per_segment": 0.001}']
        rule = ["--promote-if-good", "--min-attempts", "1", "--watch"]
        watching = subprocess.Popen([*begun, *rule], stdout=subprocess.PIPE, text=True)
        with Load(stack) as load:
            output, _ = watching.communicate(timeout=90)
        assert watching.returncode == 0, output
        assert "tone: completed" in output.splitlines()[-1]
        audited(stack, load)
    with stack_of(home) as stack:
        wait_for_children(stack, ["1+r1"] * CHILDREN)
        job = stack.submit(["After a restart of everything."])
        assert [one["model_revision"] for one in audit(stack, job, 1)] == ["1+r1"]

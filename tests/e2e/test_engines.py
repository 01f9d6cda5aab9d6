"""One stack with two engines: each works, and falls, by itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.stack import Stack
from tests.support import wait_until

TEXTS = ["One line of speech.", "And another one."]


@pytest.mark.full
def test_when_one_engine_s_worker_falls_the_other_works_on_and_what_waits_ends_after(
    tmp_path: Path,
) -> None:
    options = '{"tone": {"seconds_per_segment": 0.05}}'
    engines = ("--engine", "hibari:1", "--engine", "tone:2", "--engine-options", options)
    stack = Stack(tmp_path / "home", *engines, env={"VOICEMILL_LEASE_SECONDS": "4"})
    stack.start()
    try:
        check_parts(stack)
        jobs = [stack.submit(TEXTS), stack.submit(TEXTS, model="tone")]
        assert [spoken_by(stack, job) for job in jobs] == [{"hibari"}, {"tone"}]

        fallen = stack.pid("worker-tone")
        with StoppedSupervisor(stack):
            children = [one.pid for one in psutil.Process(fallen).children()]
            assert stack.kill_part("worker-tone")
            wait_until(lambda: not any(psutil.pid_exists(one) for one in children))
            wait_until(lambda: slots(stack) == {"hibari": 1, "tone": 0}, 90, "the loss")

            waiting = stack.submit(TEXTS, model="tone")
            assert spoken_by(stack, stack.submit(TEXTS)) == {"hibari"}
            job = stack.job(waiting)
            assert (job["status"], job["status_reason"]) == ("queued", "no_workers")
            assert stack.is_ready()
            health = httpx.get(f"{stack.url}/health").json()
            assert health["status"] == "degraded"
            assert "No child of tone is ready; see the worker's log." in health["warnings"]

        assert spoken_by(stack, waiting) == {"tone"}
        assert {item["attempts"] for item in stack.items(waiting)} == {1}
        assert stack.pid("worker-tone") != fallen
        wait_until(lambda: slots(stack) == {"hibari": 1, "tone": 2}, 30, "both tones")
    finally:
        status = stack.stop()
    assert status == 0


def check_parts(stack: Stack) -> None:
    """Each engine has a worker, children, a log and a node name of its own."""
    wait_until(lambda: slots(stack) == {"hibari": 1, "tone": 2}, 30, "all children")
    workers = stack.request("GET", "/v1/workers").json()["data"]
    found = {one["engine"]: (len(one["children"]), one["id"], one["pid"]) for one in workers}
    assert {engine: one[0] for engine, one in found.items()} == {"hibari": 1, "tone": 2}
    for engine, (_, node, pid) in found.items():
        assert node.split("@")[0].endswith(f"-{engine}")
        assert pid == stack.pid(f"worker-{engine}")
        assert (stack.home / "logs" / f"worker-{engine}.log").stat().st_size > 0
    models = stack.request("GET", "/v1/models").json()["data"]
    assert [(one["id"], one["live"]) for one in models] == [("hibari", True), ("tone", True)]


def slots(stack: Stack) -> dict[str, int]:
    """Children that take work, by model."""
    models = stack.request("GET", "/v1/models").json()["data"]
    return {one["id"]: one["slots"] for one in models}


def spoken_by(stack: Stack, job_id: str) -> set[str]:
    """The engines that spoke a job's items, once it has completed."""
    assert stack.wait_for(job_id)["status"] == "completed"
    return {item["engine"] for item in stack.items(job_id)}


class StoppedSupervisor:
    """Keeps ``up.py`` from starting what falls again."""

    def __init__(self, stack: Stack) -> None:
        self._pid = int((stack.home / "lock").read_text())

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)

"""A worker whose engine has a Python of its own: what befalls its process befalls the child."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.e2e.stack import Worker, alive
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from tests.support import wait_until
from voicemill.health import observe
from voicemill.jobs import ItemStatus
from voicemill.settings import Settings

OWN_PYTHON = {"VOICEMILL_ENGINE_PYTHON": sys.executable, "VOICEMILL_RETRY_SECONDS": "off"}
LINES = [f"Line {n}." for n in range(12)]


def engine_of(child: int) -> list[psutil.Process]:
    """The keeper of a child's engine, and its process."""
    (keeper,) = psutil.Process(child).children()
    (engine,) = keeper.children()
    return [keeper, engine]


def assert_ended(processes: Iterable[psutil.Process], seconds: float = 1.0) -> None:
    family = list(processes)
    wait_until(lambda: not any(map(alive, family)), seconds, f"the end of {family}")


@pytest.mark.full
def test_children_are_handed_over_with_their_engines_and_none_waits(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**OWN_PYTHON, "VOICEMILL_MAX_TASKS_PER_CHILD": "2", **tone(seconds_per_segment=0.1)}
    with SoloWorker(redis_url, tmp_path, "-l", "INFO", **env) as worker:
        family = engine_of(worker.the_child()["pid"])
        items = worker.wait_for(worker.submit(*LINES))
        while len(recycles := worker.record.recycles) < 3:
            items += worker.wait_for(worker.submit("One more.", "And another."))
        assert_ended(family)
        assert worker.stop() == 0
    assert_each_spoken_once(items)
    assert {one.reason for one in recycles} == {"tasks"}
    for earlier, later in pairwise(recycles):
        assert later.pid == earlier.successor
    ready = worker.log.index(f"child {recycles[0].successor} ready")
    assert ready < worker.log.index(f"child {recycles[0].pid} recycles: tasks")


@pytest.mark.full
def test_a_leak_in_the_engine_s_process_is_its_child_s(tmp_path: Path, redis_url: str) -> None:
    env = {**OWN_PYTHON, "VOICEMILL_HOST_MEMORY_LIMIT": "1.3x", **tone(leak_host_mb=20)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        child = worker.the_child()
        _, engine = engine_of(child["pid"])
        own = psutil.Process(child["pid"]).memory_info().rss
        assert child["rss_bytes"] >= own + 0.9 * engine.memory_info().rss
        items = worker.wait_for(worker.submit(*LINES))
        worker.wait_until("a recycle", lambda: worker.recycles())
        assert worker.recycles().keys() == {"host_memory"}
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
def test_device_memory_of_the_engine_s_process_is_its_child_s(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    settings = Settings.from_env({"VOICEMILL_REDIS_URL": redis_url, "VOICEMILL_ENGINE": "tone"})
    stub_driver.add_gpu("GPU-a0", total_mib=200)
    stub_driver.add_gpu("GPU-b1", total_mib=10000)
    env = {
        **stub_driver.env,
        **OWN_PYTHON,
        **tone(leak_device_mb=10),
        "VOICEMILL_GPU_MEMORY_LIMIT": "50%",
    }
    with SoloWorker(redis_url, tmp_path, **env) as worker, stub_driver.probe() as other:
        items = worker.wait_for(worker.submit(*LINES[:6]))
        worker.wait_until("a recycle", worker.recycles)
        child = worker.the_child()
        (node,) = observe(worker.store, settings).to_wire()["gpu"].values()
        first = node["devices"][0]["children"][-1]
        assert (first["pid"], first["measured_by"]) == (child["pid"], "process")
        assert first["own_bytes"] >= (CONTEXT_MIB + 2 * 10) * MIB
        assert worker.stop() == 0
        assert [one["used_bytes"] for one in other.look()["devices"]] == [0, 0]
        assert worker.recycles().keys() == {"gpu_memory"}
    assert_each_spoken_once(items)


@pytest.mark.full
def test_device_memory_that_an_engine_s_process_leaves_is_an_alert(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    device = stub_driver.add_gpu("GPU-a0")
    env = {**stub_driver.env, **OWN_PYTHON, **tone(leak_device_mb=10)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        child = worker.the_child()["pid"]
        _, engine = engine_of(child)
        device.keep_what_is_held()
        os.kill(child, signal.SIGKILL)
        told = f"process {engine.pid} ended and still holds memory of GPU-a0"
        worker.wait_until("the alert", lambda: told in worker.record.alerts)


@pytest.mark.full
def test_an_engine_s_process_that_is_killed_in_a_batch_costs_an_attempt_and_its_child(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **OWN_PYTHON) as worker:
        child = worker.the_child()
        family = engine_of(child["pid"])
        begun = tmp_path / "begun"
        job_id = worker.submit(f"It hangs. {{tone:hang-once={begun}}}", *LINES)
        worker.wait_until("the hang", begun.exists)
        family[1].kill()
        first, *others = worker.wait_for(job_id)
        assert worker.the_child()["pid"] != child["pid"]
        assert_ended(family)
        assert worker.recycles().keys() == {"errors"}
        assert worker.stop() == 0
    assert "ended by signal 9" in worker.log
    assert (first.status, first.attempts) == (ItemStatus.SUCCEEDED, 2)
    assert {item.status for item in others} == {ItemStatus.SUCCEEDED}
    assert sum(item.attempts > 1 for item in others) < 4, "those of the same call at most"


@pytest.mark.full
def test_a_text_that_crashes_the_engine_s_process_fails_alone_by_name(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **OWN_PYTHON) as worker:
        items = worker.wait_for(worker.submit(*LINES[:4], "Poison {tone:crash}.", *LINES[4:]), 90)
        assert worker.stop() == 0
    crashed = items.pop(4)
    assert crashed.error is not None
    assert (crashed.status, crashed.attempts) == (ItemStatus.FAILED, 3)
    assert (crashed.error.code, crashed.error.message) == (
        "engine_lost",
        "The engine's process ended by signal 9.",
    )
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}


@pytest.mark.full
def test_a_child_whose_engine_dies_while_it_is_idle_is_replaced_and_no_item_pays(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **OWN_PYTHON) as worker:
        child = worker.the_child()
        engine_of(child["pid"])[1].kill()
        worker.wait_until("its successor", lambda: worker.the_child()["pid"] != child["pid"])
        items = worker.wait_for(worker.submit(*LINES[:2]))
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
@pytest.mark.parametrize("victim", ["child", "worker"])
def test_no_engine_outlives_its_child(victim: str, tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path, **OWN_PYTHON) as worker:
        child = worker.the_child()["pid"]
        family = engine_of(child)
        job_id = worker.submit("It hangs {tone:hang}.")
        worker.wait_until(
            "a hang", lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
        )
        os.kill(child if victim == "child" else worker.pid, signal.SIGKILL)
        assert_ended(family)


@pytest.mark.full
def test_a_stop_waits_for_the_batch_in_hand_and_leaves_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **OWN_PYTHON) as worker:
        family = engine_of(worker.the_child()["pid"])
        job_id = worker.submit("It lasts. {tone:seconds=2}")
        worker.wait_until(
            "the batch", lambda: worker.store.items(job_id)[0].status is ItemStatus.IN_PROGRESS
        )
        assert worker.stop() == 0
        (item,) = worker.store.items(job_id)
        assert (item.status, item.attempts) == (ItemStatus.SUCCEEDED, 1)
        assert_ended(family)


@pytest.mark.full
def test_a_python_that_can_t_run_the_engine_ends_the_worker_and_says_what_to_do(
    tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_ENGINE_PYTHON": "/no/such/bin/python"}
    with Worker(redis_url, tmp_path, **env) as worker:
        wait_until(lambda: worker.exit_status is not None, 30, "the end of the worker")
        assert worker.exit_status == 4
        assert "VOICEMILL_ENGINE_PYTHON='/no/such/bin/python' is not there" in worker.log
        assert "-m venv" in worker.log

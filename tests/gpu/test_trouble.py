"""A driver or a device that fails under a real worker."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.solo import SoloWorker
from tests.gpu.stub import StubDriver
from voicemill.health import observe
from voicemill.jobs import ItemStatus
from voicemill.settings import Settings

LEAK = {"VOICEMILL_ENGINE_OPTIONS": json.dumps({"leak_device_mb": 1, "seconds_per_segment": 0.1})}
SETTINGS = Settings.from_env({"VOICEMILL_ENGINE": "tone"})


def gpu_of(worker: SoloWorker) -> dict[str, Any]:
    """What health says of the worker's GPUs."""
    gpu = observe(worker.store, SETTINGS).to_wire()["gpu"]
    found: dict[str, Any] = gpu.get(worker.node, {"devices": [], "reason": None})
    return found


def uuids_of(worker: SoloWorker) -> list[str]:
    """The devices that health shows."""
    return sorted(one["uuid"] for one in gpu_of(worker)["devices"])


def warnings_of(worker: SoloWorker) -> tuple[str, ...]:
    """What health warns of."""
    return observe(worker.store, SETTINGS).warnings


@pytest.mark.full
def test_a_worker_goes_on_while_the_driver_is_away_and_sees_it_again(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0")
    with SoloWorker(redis_url, tmp_path, **stub_driver.env) as worker:
        (child,) = worker.processes("ready")
        assert uuids_of(worker) == ["GPU-a0"]
        stub_driver.stop()
        worker.wait_until("the reason", lambda: not gpu_of(worker)["devices"])
        assert gpu_of(worker)["reason"].endswith("Driver Not Loaded")
        items = worker.wait_for(worker.submit("One.", "Two.", "Three."))
        assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}
        stub_driver.start()
        worker.wait_until("the device", lambda: uuids_of(worker) == ["GPU-a0"])
        assert gpu_of(worker)["reason"] is None
        assert [one.pid for one in worker.record.processes] == [child.pid]
        assert worker.stop() == 0


@pytest.mark.full
def test_work_that_a_driver_left_undone_is_done_when_it_is_back(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0")
    with SoloWorker(redis_url, tmp_path, **stub_driver.env, **LEAK) as worker:
        job_id = worker.submit(*(f"Line {n}." for n in range(12)))
        stub_driver.stop()
        worker.wait_until("no child that can work", lambda: not worker.processes("ready", "busy"))
        stub_driver.start()
        items = worker.wait_for(job_id)
        assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
        assert worker.recycles() == {"errors": 1}
        assert worker.stop() == 0


@pytest.mark.full
def test_the_child_of_another_device_goes_on_when_one_is_lost(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    lost = stub_driver.add_gpu("GPU-a0")
    stub_driver.add_gpu("GPU-b1")
    env = {**stub_driver.env, **LEAK, "VOICEMILL_WORKERS": "2"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_until("two", lambda: uuids_of(worker) == ["GPU-a0", "GPU-b1"])
        sound = next(one.pid for one in worker.record.processes if one.slot == 1)
        job_id = worker.submit(*(f"Line {n}." for n in range(24)))
        lost.lose()
        items = worker.wait_for(job_id)
        assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
        worker.wait_until("the lost one", lambda: uuids_of(worker) == ["GPU-b1"])
        assert [one.pid for one in worker.processes("ready", "busy")] == [sound]
        assert worker.exit_status is None
        assert worker.stop() == 0


@pytest.mark.full
def test_memory_that_does_not_come_back_is_an_alert_until_it_does(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    device = stub_driver.add_gpu("GPU-a0")
    with SoloWorker(redis_url, tmp_path, **stub_driver.env, **LEAK) as worker:
        (old,) = worker.processes("ready")
        device.keep_what_is_held()
        os.kill(old.pid, signal.SIGKILL)
        worker.wait_until("the alert", lambda: warnings_of(worker))
        (warning,) = warnings_of(worker)
        assert f"process {old.pid} ended and still holds memory of GPU-a0" in warning
        items = worker.wait_for(worker.submit("One.", "Two."))
        assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
        device.keep_what_is_held(False)
        worker.wait_until("its end", lambda: not warnings_of(worker))
        assert worker.stop() == 0

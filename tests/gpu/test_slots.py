"""Each slot has its device, and each child its environment before it imports anything."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from voicemill.jobs import ItemStatus
from voicemill.workers import ProcessRecord

UUIDS = ("GPU-a0", "GPU-b1")
LEAK_MIB = 10
WARM_MIB = CONTEXT_MIB + 2 * LEAK_MIB


def two_gpus(driver: StubDriver, **env: str) -> dict[str, str]:
    """What two children, each on a GPU of its own, find in their environment."""
    for uuid in UUIDS:
        driver.add_gpu(uuid, total_mib=400)
    return {**driver.env, "VOICEMILL_WORKERS": "2", **env}


def leak(**options: object) -> dict[str, str]:
    """`tone` leaks device memory."""
    options = {"leak_device_mb": LEAK_MIB, **options}
    return {"VOICEMILL_ENGINE_OPTIONS": json.dumps(options)}


def environ_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def wait_for_two(worker: SoloWorker) -> dict[int, ProcessRecord]:
    """The children by slot, once there are two and no more."""
    worker.wait_until(
        "two children",
        lambda: (
            len(worker.record.processes)
            == len(worker.processes("ready", "busy"))
            == len(worker.store.snapshot().children)
            == 2
        ),
    )
    return {one.slot: one for one in worker.record.processes}


@pytest.mark.full
def test_a_child_has_its_slot_s_device_and_torch_s_allocator_and_so_has_its_successor(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    allocator = "expandable_segments:True"
    env = two_gpus(stub_driver, VOICEMILL_CUDA_ALLOC_CONF=allocator, **leak())
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        before = wait_for_two(worker)
        (victim,) = (one for one in worker.store.snapshot().children if one["pid"] == before[1].pid)
        assert worker.store.order(victim["id"], "recycle")
        worker.wait_until("a hand-over", lambda: worker.record.recycles)
        after = wait_for_two(worker)
        assert after[0] == before[0]
        assert after[1].pid == worker.record.recycles[0].successor != before[1].pid
        for slot, uuid in enumerate(UUIDS):
            found = environ_of(after[slot].pid)
            assert found["CUDA_VISIBLE_DEVICES"] == uuid
            assert found["PYTORCH_CUDA_ALLOC_CONF"] == allocator
        held = {
            child["pid"]: [(one["uuid"], one["own_bytes"]) for one in child["gpu"]["devices"]]
            for child in worker.store.snapshot().children
        }
        assert held == {after[n].pid: [(UUIDS[n], WARM_MIB * MIB)] for n in (0, 1)}
        assert "PYTORCH_CUDA_ALLOC_CONF" not in environ_of(worker.pid)
        assert worker.stop() == 0


@pytest.mark.full
def test_children_on_two_devices_leave_independently_and_their_successors_load_at_once(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    env = two_gpus(
        stub_driver,
        VOICEMILL_GPU_MEMORY_LIMIT=f"{WARM_MIB + LEAK_MIB // 2}MiB",
        **leak(load_seconds=2, seconds_per_segment=0.3),
    )
    with SoloWorker(redis_url, tmp_path, **env) as worker, stub_driver.probe() as other:
        wait_for_two(worker)
        job_id = worker.submit(*(f"Line {n}." for n in range(16)))
        worker.wait_until(
            "two hand-overs at once",
            lambda: {one.slot for one in worker.processes("loading")} == {0, 1},
        )
        items = worker.wait_for(job_id)
        worker.wait_until("two recycles", lambda: len(worker.record.recycles) >= 2)
        recycles = worker.record.recycles
        assert {one.reason for one in recycles} == {"gpu_memory"}
        assert all(one.successor is not None for one in recycles)
        assert worker.stop() == 0
        assert [one["used_bytes"] for one in other.look()["devices"]] == [0, 0]
    assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}


@pytest.mark.full
def test_children_whose_scheduled_time_has_come_go_one_after_another_whatever_their_devices(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    env = two_gpus(stub_driver, VOICEMILL_RECYCLE_AT="* * * * *", **leak(load_seconds=2))
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        before = {one.pid for one in wait_for_two(worker).values()}
        go: set[int] = set()

        def both_are_new() -> bool:
            processes = worker.record.processes
            go.add(sum(one.state in ("loading", "leaving") for one in processes))
            return not before & {one.pid for one in processes}

        worker.wait_until("two new children", both_are_new, 90)
        assert max(go) == 1
        recycles = worker.record.recycles
        assert len(recycles) >= 2
        assert {one.reason for one in recycles} == {"schedule"}
        assert all(one.successor is not None for one in recycles)
        assert worker.stop() == 0


@pytest.mark.full
def test_the_memory_of_a_killed_child_comes_back(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=400)
    with SoloWorker(redis_url, tmp_path, **stub_driver.env, **leak()) as worker:
        worker.wait_for(worker.submit(*(f"Line {n}." for n in range(5))))
        (old,) = worker.processes("ready", "busy")
        with stub_driver.probe() as other:
            (before,) = other.look()["devices"]
            assert before["used_bytes"] == (WARM_MIB + 5 * LEAK_MIB) * MIB
            os.kill(old.pid, signal.SIGKILL)
            worker.wait_until(
                "another child",
                lambda: any(one.pid != old.pid for one in worker.processes("ready")),
            )
            (after,) = other.look()["devices"]
        assert after["used_bytes"] == WARM_MIB * MIB
        assert worker.record.alerts == []
        assert worker.stop() == 0

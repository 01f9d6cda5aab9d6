"""A real worker on a stub GPU: its engine leaks, its children leave for it, health shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Worker
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from tests.support import inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.health import observe
from voicemill.jobs import ItemStatus, JobStatus, new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store


@pytest.mark.full
def test_children_leave_over_the_limit_of_one_device_and_give_its_memory_back(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str, store: Store
) -> None:
    settings = Settings.from_env({"VOICEMILL_REDIS_URL": redis_url, "VOICEMILL_ENGINE": "tone"})
    stub_driver.add_gpu("GPU-a0", total_mib=200)
    stub_driver.add_gpu("GPU-b1", total_mib=10000)
    # Warm: the context and two segments, 84 MiB. Over 50 % of 200 MiB after two more of them.
    env = {
        **stub_driver.env,
        "VOICEMILL_ENGINE_OPTIONS": json.dumps({"leak_device_mb": 10}),
        "VOICEMILL_GPU_MEMORY_LIMIT": "50%",
        "VOICEMILL_MEMORY_CHECK_SECONDS": "0.001",
        "VOICEMILL_MIN_AGE_SECONDS": "0.001",
    }
    with Worker(redis_url, tmp_path, **env) as worker, stub_driver.probe() as other:
        job_id = new_job_id()
        store.create_job(job_id, "default", inputs(*(f"Line {n}." for n in range(6))), {})
        dispatcher = Dispatcher(store, Queue(settings), settings)

        def has_completed() -> bool:
            dispatcher.resend()
            dispatcher.admit()
            return store.job(job_id).status is JobStatus.COMPLETED

        wait_until(has_completed, 60, "the end of the job")
        wait_until(lambda: any("recycles" in name for name, _, _ in store.metrics()), 30, "recycle")

        def takers() -> list[dict[str, Any]]:
            return [one for one in store.snapshot().children if one["takes_work"]]

        wait_until(lambda: len(takers()) == 1, 30, "a child that takes work, alone")
        (child,) = takers()
        (node,) = observe(store, settings).to_wire()["gpu"].values()
        assert [one["uuid"] for one in node["devices"]] == ["GPU-a0"], "the device of its slot"
        first = node["devices"][0]["children"][-1]
        assert (first["pid"], first["measured_by"]) == (child["pid"], "process")
        assert first["own_bytes"] >= (CONTEXT_MIB + 2 * 10) * MIB
        assert worker.stop() == 0
        assert [one["used_bytes"] for one in other.look()["devices"]] == [0, 0]
    items = store.items(job_id)
    assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}
    recycles = {labels["reason"]: n for name, labels, n in store.metrics() if "recycles" in name}
    assert list(recycles) == ["gpu_memory"]

"""A real worker on a stub GPU: its engine leaks, its children leave for it, health shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from voicemill.health import observe
from voicemill.settings import Settings


@pytest.mark.full
def test_children_leave_over_the_limit_of_one_device_and_give_its_memory_back(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    settings = Settings.from_env({"VOICEMILL_REDIS_URL": redis_url, "VOICEMILL_ENGINE": "tone"})
    stub_driver.add_gpu("GPU-a0", total_mib=200)
    stub_driver.add_gpu("GPU-b1", total_mib=10000)
    # Warm: the context and two segments, 84 MiB. Over 50 % of 200 MiB after two more of them.
    env = {
        **stub_driver.env,
        **tone(leak_device_mb=10),
        "VOICEMILL_GPU_MEMORY_LIMIT": "50%",
    }
    with SoloWorker(redis_url, tmp_path, **env) as worker, stub_driver.probe() as other:
        items = worker.wait_for(worker.submit(*(f"Line {n}." for n in range(6))))
        worker.wait_until("a recycle", worker.recycles)
        child = worker.the_child()
        (node,) = observe(worker.store, settings).to_wire()["gpu"].values()
        assert [one["uuid"] for one in node["devices"]] == ["GPU-a0"], "the device of its slot"
        first = node["devices"][0]["children"][-1]
        assert (first["pid"], first["measured_by"]) == (child["pid"], "process")
        assert first["own_bytes"] >= (CONTEXT_MIB + 2 * 10) * MIB
        assert worker.stop() == 0
        assert [one["used_bytes"] for one in other.look()["devices"]] == [0, 0]
        assert worker.recycles().keys() == {"gpu_memory"}
    assert_each_spoken_once(items)

"""Children of several workers on one card: they fit by what was measured, or they wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, tone
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver

LEAK_MIB = 10
WARM_MIB = CONTEXT_MIB + 2 * LEAK_MIB


@pytest.mark.full
def test_a_child_that_does_not_fit_beside_those_of_another_worker_waits_until_it_does(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=2 * WARM_MIB + 20)
    env = {**stub_driver.env, **tone(leak_device_mb=LEAK_MIB), "VOICEMILL_GPU_MEMORY_LIMIT": "off"}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with SoloWorker(redis_url, tmp_path / "first", **env) as first:
        revision = first.store.engines()["tone"].model_revision
        first.wait_until("a measurement", lambda: first.store.footprint("tone", revision))
        measured = first.store.footprint("tone", revision)
        assert measured is not None
        assert measured.gpu == WARM_MIB * MIB
        two = {**env, "VOICEMILL_WORKERS": "2"}
        with SoloWorker(redis_url, tmp_path / "second", **two) as second:
            second.wait_until("one that waits", lambda: second.record.alerts)
            second.wait_until("one that works", lambda: second.processes("ready"))
            second.wait_until(
                "its reason",
                lambda: (
                    second.record.alerts
                    == [
                        f"Slot 1 waits for memory: tone needs {WARM_MIB} MiB of GPU-a0, which "
                        "has 20 free."
                    ]
                ),
            )
            assert [one.slot for one in second.record.processes] == [0]
            assert first.stop() == 0
            second.wait_until("two children", lambda: len(second.processes("ready")) == 2)
            second.wait_until("no alert", lambda: not second.record.alerts)
            with stub_driver.probe() as other:
                (device,) = other.look()["devices"]
            assert device["used_bytes"] == 2 * WARM_MIB * MIB
            assert second.stop() == 0

"""Children that rot on a stub GPU, whose memory costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.gpu.stub import CONTEXT_MIB, StubDriver
from voicemill.health import Health, observe
from voicemill.jobs import Item
from voicemill.settings import Settings
from worker.handover import FIRST_PAUSE_SECONDS

LINES = [f"Line {n}." for n in range(8)]
MIN_AGE_SECONDS = 3.0


@pytest.mark.full
def test_a_child_whose_allocator_keeps_what_it_can_not_use_is_replaced(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    # Warm: two segments, 20 MiB of no use; three more come to the floor.
    env = {
        **stub_driver.env,
        **tone(cache_device_mb=10),
        "VOICEMILL_FRAGMENTATION_FLOOR_MB": "50",
    }
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        items = worker.wait_for(worker.submit(*LINES))
        worker.wait_until("a recycle", lambda: worker.record.recycles)
        first = worker.record.recycles[0]
        assert (first.reason, first.successor is not None) == ("fragmentation", True)
        worker.wait_until("its count", worker.recycles)
        assert worker.recycles().keys() == {"fragmentation"}
        assert worker.stop() == 0
    assert_each_spoken_once(items)


def health_of(worker: SoloWorker) -> Health:
    """What is said of a worker with a clerk beside it."""
    worker.store.beat_clerk("test", lease_seconds=60)
    return observe(worker.store, Settings.from_env({"VOICEMILL_ENGINE": "tone"}))


def rot(worker: SoloWorker, least_age: float) -> list[Item]:
    """Have the child come over its limit and be replaced; not before it has this age."""
    child = worker.the_child()
    worker.wait_until("health", lambda: health_of(worker).status == "ready")
    before = len(worker.record.recycles)
    items = worker.wait_for(worker.submit("One."))
    worker.wait_until("a warning", lambda: health_of(worker).status == "degraded")
    (warning,) = health_of(worker).warnings
    assert f"Child {child['pid']} should be replaced soon after its start (gpu_memory)" in warning
    items += worker.wait_for(worker.submit("It works on."))
    assert len(worker.record.recycles) == before
    worker.wait_until("a hand-over", lambda: len(worker.record.recycles) > before)
    recycle = worker.record.recycles[before]
    assert (recycle.pid, recycle.reason) == (child["pid"], "gpu_memory")
    assert recycle.handover_seconds is not None
    assert recycle.at - recycle.handover_seconds - child["ready_at"] >= least_age
    return items


@pytest.mark.full
def test_children_that_rot_soon_after_their_start_are_replaced_later_each_time(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    # Warm: the context and two segments. One more comes over the limit.
    env = {
        **stub_driver.env,
        **tone(leak_device_mb=10),
        "VOICEMILL_GPU_MEMORY_LIMIT": f"{CONTEXT_MIB + 25}MiB",
        "VOICEMILL_MIN_AGE_SECONDS": f"{MIN_AGE_SECONDS}",
    }
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        items = rot(worker, MIN_AGE_SECONDS + FIRST_PAUSE_SECONDS)
        items += rot(worker, MIN_AGE_SECONDS + 2 * FIRST_PAUSE_SECONDS)
        assert worker.stop() == 0
    assert_each_spoken_once(items)

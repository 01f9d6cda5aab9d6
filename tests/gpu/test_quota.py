"""A memory quota where the engine takes device memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker
from tests.gpu.stub import StubDriver
from voicemill.jobs import Item, ItemStatus

TAKES = {"VOICEMILL_ENGINE_OPTIONS": json.dumps({"leak_device_mb": 20})}
TEXTS = [f"Line {n}." for n in range(4)]


def codes(items: list[Item]) -> set[tuple[ItemStatus, str | None, int]]:
    return {(one.status, one.error.code if one.error else None, one.attempts) for one in items}


@pytest.mark.full
def test_what_takes_more_of_the_device_than_it_may_fails_and_its_child_is_replaced(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0")
    env = {**stub_driver.env, **TAKES, "VOICEMILL_MAX_MEMORY_MB": "16"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        job_id = worker.submit(*TEXTS)
        worker.wait_until("the end of the job", lambda: worker.has_ended(job_id))
        items = worker.store.items(job_id)
        assert codes(items) == {(ItemStatus.FAILED, "memory_quota_exceeded", 1)}
        assert items[0].error is not None
        assert "of 7 characters took 20.0 MiB of memory and may take 16;" in items[0].error.message
        worker.wait_until("a recycle", lambda: worker.recycles().get("gpu_memory"))
        assert set(worker.recycles()) == {"gpu_memory"}
        assert worker.stop() == 0


@pytest.mark.full
def test_what_takes_less_is_spoken_by_one_child(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0")
    env = {**stub_driver.env, **TAKES, "VOICEMILL_MAX_MEMORY_MB": "24"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        items = worker.wait_for(worker.submit(*TEXTS))
        assert codes(items) == {(ItemStatus.SUCCEEDED, None, 1)}
        assert worker.recycles() == {}
        assert worker.stop() == 0

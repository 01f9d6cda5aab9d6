"""A card that is full when an engine loads: by its name, with what to do."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, tone
from tests.gpu.stub import CONTEXT_MIB, StubDriver
from worker.exits import EXIT_NOT_LOADED

TOTAL_MIB = 200
NO_ROOM = "out_of_memory: no memory was left to load its engine in; end what else holds it"


@pytest.mark.full
@pytest.mark.parametrize(
    "python", [None, sys.executable], ids=["in the child", "in its own Python"]
)
def test_a_worker_whose_card_is_full_gives_up_and_says_so(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str, python: str | None
) -> None:
    stub_driver.add_gpu(total_mib=TOTAL_MIB).others_use(TOTAL_MIB - CONTEXT_MIB + 1)
    own = {} if python is None else {"VOICEMILL_ENGINE_PYTHON": python}
    env = {**stub_driver.env, **tone(leak_device_mb=10), **own}
    worker = SoloWorker(redis_url, tmp_path, **env)
    with ExitStack() as stack:
        worker.launch()
        stack.push(worker)
        worker.wait_until("its end", lambda: worker.exit_status == EXIT_NOT_LOADED)
    assert worker.log.count(f"engine tone: The device had no memory left for a context. {NO_ROOM}")
    assert f"no child could load the engine: the last ended with status 7 ({NO_ROOM}" in worker.log


@pytest.mark.full
def test_a_successor_that_finds_no_memory_takes_no_good_child_and_comes_once_there_is(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    """The driver lists nobody, so nothing tells beforehand that two do not fit."""
    card = stub_driver.add_gpu(total_mib=TOTAL_MIB)
    card.list_processes("unsupported")
    env = {**stub_driver.env, **tone(leak_device_mb=1)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        old = worker.the_child()["pid"]
        card.others_use(TOTAL_MIB - CONTEXT_MIB - 10)
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("the failure", lambda: worker.record.failure)
        assert NO_ROOM in str(worker.record.failure)
        assert worker.the_child()["pid"] == old
        card.others_use(0)
        worker.wait_until("its successor", lambda: worker.the_child()["pid"] != old)
        assert worker.stop() == 0

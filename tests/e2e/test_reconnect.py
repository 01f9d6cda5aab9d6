"""A worker that has lost its broker and found it again is the one that it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.proxy import Proxy
from tests.e2e.solo import SoloWorker, assert_each_spoken_once
from tests.support import Valkey

LOAD_SECONDS = 3
LONG = f"{{tone:seconds={LOAD_SECONDS + 1}}} Longer than a child may load."


@pytest.fixture
def reconnected(tmp_path: Path, redis_url: str, valkey: Valkey) -> Iterator[SoloWorker]:
    """A worker whose connections were cut after its child had loaded."""
    limits = {"VOICEMILL_LOAD_TIMEOUT_SECONDS": str(LOAD_SECONDS)}
    with (
        Proxy(valkey.port) as wire,
        SoloWorker(
            redis_url, tmp_path, "-l", "INFO", VOICEMILL_REDIS_URL=wire.url, **limits
        ) as worker,
    ):
        wire.cut()
        worker.wait_until("the way back", lambda: "Connected to redis" in after_loss(worker.log))
        yield worker


def after_loss(log: str) -> str:
    return log.partition("Connection to broker lost")[2]


@pytest.mark.full
def test_its_children_are_not_taken_for_loading_ones(reconnected: SoloWorker) -> None:
    old = reconnected.the_child()
    assert_each_spoken_once(reconnected.wait_for(reconnected.submit(LONG)))
    assert reconnected.the_child()["pid"] == old["pid"]
    # The record of the parent lags behind.
    reconnected.wait_until(
        "a child that waits",
        lambda: [one.pid for one in reconnected.processes("ready")] == [old["pid"]],
    )


@pytest.mark.full
def test_a_stop_waits_for_the_batch_in_hand(reconnected: SoloWorker) -> None:
    job_id = reconnected.submit("{tone:seconds=2} Long.")
    reconnected.wait_until(
        "its start", lambda: reconnected.store.job(job_id).counts.in_progress == 1
    )
    assert reconnected.stop() == 0
    assert_each_spoken_once(reconnected.store.items(job_id))

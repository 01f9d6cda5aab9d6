"""A second worker of a node name takes nothing from the first."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from voicemill.workers import Claim
from worker.exits import EXIT_MISCONFIGURED, EXIT_STUCK

pytestmark = pytest.mark.full


def test_a_second_worker_of_a_name_does_not_start(redis_url: str, tmp_path: Path) -> None:
    options = tone(seconds_per_segment=0.3)
    with SoloWorker(redis_url, tmp_path, **options) as first:
        job_id = first.submit(*(f"Line {number}." for number in range(8)))
        first.wait_until("a batch in hand", lambda: first.processes("busy"))
        (tmp_path / "second").mkdir()
        second = SoloWorker(redis_url, tmp_path / "second", **options)
        second.node = first.node
        second.launch()
        try:
            first.wait_until("its end", lambda: second.exit_status is not None)
        finally:
            second.__exit__()
        assert second.exit_status == EXIT_MISCONFIGURED
        assert f"{first.node} runs already, as process {first.pid}." in second.log
        assert "Traceback" not in second.log
        assert_each_spoken_once(first.wait_for(job_id))
        assert first.record.pid == first.pid


@pytest.mark.parametrize("time", range(3))
def test_of_two_that_start_at_the_same_time_one_is_refused(
    time: int, redis_url: str, tmp_path: Path
) -> None:
    both = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        both.append(SoloWorker(redis_url, tmp_path / name))
        both[-1].node = f"twin-{time}@localhost"
    with ExitStack() as ends:
        for worker in both:
            worker.launch()
            ends.callback(worker.__exit__)
        both[0].wait_until("the end of one", lambda: [w for w in both if w.exit_status is not None])
        refused, stays = sorted(both, key=lambda worker: worker.exit_status is None)
        assert refused.exit_status == EXIT_MISCONFIGURED
        assert f"{stays.node} runs already, as process {stays.pid}." in refused.log
        assert_each_spoken_once(stays.wait_for(stays.submit("One.", "Two.")))
        assert stays.stop() == 0


def test_one_whose_name_another_has_taken_leaves(redis_url: str, tmp_path: Path) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        heir = Claim("heir", 1, "elsewhere", 0.0)
        held, _ = worker.store.claim_name(worker.node, heir, 60)
        assert held.pid == worker.pid
        assert worker.store.claim_name(worker.node, heir, 60, instead_of=held)[0] == heir

        def is_gone() -> bool:
            worker.store.claim_name(worker.node, heir, 60)
            return worker.exit_status is not None

        worker.wait_until("its end", is_gone)
        assert worker.exit_status == EXIT_STUCK
        assert f"{worker.node} runs already, as process 1." in worker.log
        assert worker.store.claim_name(worker.node, held, 60)[0] == heir

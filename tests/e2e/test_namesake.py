"""A second worker of a node name takes nothing from the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from worker.exits import EXIT_MISCONFIGURED

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

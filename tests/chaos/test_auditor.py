"""The auditor finds what it is there to find."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.chaos.auditor import assert_ended, assert_nothing_else, assert_shared, judge
from tests.chaos.client import Sent
from voicemill.storage import MARKER
from worker.engines.tone import SAMPLE_RATE_HZ, tone

TEXT, OTHER, LONGER = "Line 1.", "Line 2.", "Line 1 and more."
SENT = [Sent("ann", "job_1", index, f"Line {index}.", ("succeeded", "failed")) for index in (0, 1)]
COUNTS = {"total": 2, "completed": 1, "failed": 1, "cached": 0}
NONE = dict.fromkeys(("cancelled", "expired", "queued", "in_progress"), 0)


def spoken(path: Path, text: str) -> dict[str, Any]:
    """An item whose file says this."""
    soundfile.write(path, tone(text, "low", 1.0, None), SAMPLE_RATE_HZ)
    return {"voice": "low", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_file_is_judged_by_its_bytes_and_by_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    item = spoken(path, TEXT)
    judge(path, item, TEXT)
    for text in (OTHER, LONGER):
        with pytest.raises(AssertionError):
            judge(path, item, text)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(AssertionError, match="not as recorded"):
        judge(path, item, TEXT)


def item(index: int, status: str, **more: Any) -> dict[str, Any]:
    error = {"code": "worker_lost"} if status == "failed" else None
    return {
        "index": index,
        "status": status,
        "attempts": 1,
        "error": error,
        "cached": False,
        "sha256": "aa",
        **more,
    }


def job(status: str = "completed", **counts: int) -> dict[str, Any]:
    return {"status": status, "run": 1, "request_counts": {**NONE, **COUNTS, **counts}}


GOOD = [item(0, "succeeded"), item(1, "failed")]


def test_a_job_that_has_ended_as_it_may_is_let_be() -> None:
    assert_ended(job(), GOOD, SENT, 3)


@pytest.mark.parametrize(
    ("bad_job", "items"),
    [
        (job("in_progress"), GOOD),
        (job(completed=2), GOOD),
        (job(queued=1), GOOD),
        (job(total=3), GOOD),
        (job(), GOOD[:1]),
        (job(), [*GOOD, item(2, "succeeded")]),
        (job(), [item(0, "cancelled"), GOOD[1]]),
        (job(), [item(0, "succeeded", attempts=4), GOOD[1]]),
        (job(), [item(0, "succeeded", attempts=0), GOOD[1]]),
        (job(), [GOOD[0], item(1, "failed", error=None)]),
        (job(cached=1), GOOD),
        (job(cached=1), [item(0, "succeeded", cached=True), GOOD[1]]),
        (job(cached=1), [GOOD[0], item(1, "failed", cached=True)]),
    ],
)
def test_a_job_that_has_not_is_named(bad_job: dict[str, Any], items: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        assert_ended(bad_job, items, SENT, 3)


def test_what_was_not_spoken_is_what_another_item_of_its_text_has() -> None:
    spoken, shared = item(0, "succeeded"), item(1, "succeeded", cached=True)
    assert_shared(["a", "a"], [spoken, shared])
    for texts, items in (
        (["a", "b"], [spoken, shared]),
        (["a", "a"], [spoken, {**shared, "sha256": "bb"}]),
        (["a", "a"], [{**spoken, "cached": True}, shared]),
    ):
        with pytest.raises(AssertionError):
            assert_shared(texts, items)


@pytest.mark.parametrize("name", ["job_1/0000/000000-a.2.wav", "job_1/.x.tmp", ".probe"])
def test_a_file_that_nothing_points_to_is_found(name: str, tmp_path: Path) -> None:
    recorded = tmp_path / "job_1/0000/000000-a.1.wav"
    recorded.parent.mkdir(parents=True)
    for path in (tmp_path / MARKER, recorded):
        path.touch()
    assert_nothing_else(tmp_path, [recorded])
    (tmp_path / name).touch()
    with pytest.raises(pytest.fail.Exception, match=Path(name).name):
        assert_nothing_else(tmp_path, [recorded], 0.0)

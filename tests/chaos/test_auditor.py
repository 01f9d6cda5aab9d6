"""The auditor finds what it is there to find."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from tests.chaos.auditor import (
    Verdict,
    assert_apart,
    assert_ended,
    assert_nothing_else,
    assert_shared,
    audit,
    from_elsewhere,
    judge,
    judge_all,
    judge_cache,
    judge_whole,
)
from tests.chaos.client import Log, Sent, Tenant, read_log
from tests.e2e.stack import Stack
from voicemill.storage import MARKER
from worker.engines.tone import SAMPLE_RATE_HZ, tone

TEXT, OTHER, LONGER = "Line 1.", "Line 2.", "Line 1 and more."
SENT = [Sent("ann", "job_1", index, f"Line {index}.", ("succeeded", "failed")) for index in (0, 1)]
COUNTS = {"total": 2, "completed": 1, "failed": 1, "cached": 0}
NONE = dict.fromkeys(("cancelled", "expired", "queued", "in_progress"), 0)


def spoken(path: Path, text: str) -> dict[str, Any]:
    """An item whose file says this."""
    soundfile.write(path, tone(text, "low", 1.0, None), SAMPLE_RATE_HZ)
    return {
        "status": "succeeded",
        "voice": "low",
        "audio_path": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


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
        "model": "tone",
        "voice": "low",
        "response_format": "wav",
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
    ],
)
def test_a_job_that_has_not_is_named(bad_job: dict[str, Any], items: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        assert_ended(bad_job, items, SENT, 3)


def test_two_items_have_two_files(tmp_path: Path) -> None:
    one, other = spoken(tmp_path / "a.wav", TEXT), spoken(tmp_path / "b.wav", OTHER)
    lost = {"status": "failed", "audio_path": None}
    assert judge_all([TEXT, OTHER, TEXT], [one, other, lost]) == {
        tmp_path / "a.wav",
        tmp_path / "b.wav",
    }
    with pytest.raises(AssertionError, match="of two items"):
        judge_all([TEXT, TEXT], [one, one])


def test_what_was_not_spoken_is_what_another_item_of_its_sound_has() -> None:
    spoken, shared = item(0, "succeeded"), item(1, "succeeded", cached=True)
    assert_shared([("a", spoken), ("a", shared)])
    assert_shared([("a", shared)], {"a"})
    for texts, items, forgotten in (
        (["a", "b"], [spoken, shared], ""),
        (["a", "a"], [spoken, {**shared, "sha256": "bb"}], ""),
        (["a", "a"], [spoken, {**shared, "voice": "high"}], ""),
        (["a", "a"], [spoken, {**shared, "response_format": "flac"}], ""),
        (["a", "a"], [{**spoken, "cached": True}, shared], ""),
        (["a", "a"], [spoken, item(1, "failed", cached=True)], ""),
        (["a"], [shared], "b"),
        (["a", "a"], [shared, {**shared, "sha256": "bb"}], "a"),
    ):
        with pytest.raises(AssertionError):
            assert_shared(list(zip(texts, items, strict=True)), forgotten)


def test_what_a_job_has_from_another_is_told_from_what_it_spoke_itself() -> None:
    spoken, shared = item(0, "succeeded"), item(1, "succeeded", cached=True)
    assert from_elsewhere(["a", "a", "b"], [spoken, shared, shared]) == [shared]


# --- the one file of a job ------------------------------------------------------


@pytest.fixture
def joined(tmp_path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A job of two parts with a tenth of a second between them, one item left out."""
    items = [spoken(tmp_path / f"{n}.wav", text) for n, text in enumerate((TEXT, OTHER))]
    parts = [soundfile.read(one["audio_path"])[0] for one in items]
    path = tmp_path / "audio.1.wav"
    silence = np.zeros(SAMPLE_RATE_HZ // 10)
    soundfile.write(path, np.concatenate([parts[0], silence, parts[1]]), SAMPLE_RATE_HZ)
    whole = {
        "error": None,
        "audio_path": str(path),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "items_left_out": 1,
        "silence_ms": 100,
        "sample_rate": SAMPLE_RATE_HZ,
    }
    return {"status": "completed", "concatenation": whole}, [*items, item(2, "failed")]


def test_the_one_file_of_a_job_is_as_long_as_its_parts(
    joined: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    job, items = joined
    whole = job["concatenation"]
    assert judge_whole(job, items) == {Path(whole["audio_path"])}
    assert judge_whole({**job, "concatenation": None}, items) == set()
    for wrong in (
        {"silence_ms": 0},
        {"items_left_out": 0},
        {"sha256": "aa"},
        {"audio_path": None},
        {"error": {"code": "audio_gone"}},
    ):
        with pytest.raises(AssertionError):
            judge_whole({**job, "concatenation": {**whole, **wrong}}, items)
    with pytest.raises(AssertionError, match="its length"):
        judge_whole(job, [items[0], items[2]])


# --- the folder -----------------------------------------------------------------


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


class Shelf:
    """An output folder with two jobs of two tenants, and one file of each in the cache."""

    def __init__(self, outputs: Path) -> None:
        self.outputs = outputs
        self.recorded: dict[Path, str] = {}
        self.cached: dict[str, Path] = {}
        for tenant in ("ann", "ben"):
            path = outputs / f"job_{tenant}" / "0000" / "000000-a.1.wav"
            path.parent.mkdir(parents=True)
            sha256 = spoken(path, TEXT)["sha256"]
            self.recorded[path] = tenant
            info = soundfile.info(path)
            length = round(info.frames / info.samplerate * 1e6)
            name = f"{'ab' * 32}.{sha256}.{length}.{info.samplerate}.wav"
            self.cached[tenant] = outputs / ".cache" / tenant / "ab" / name
            self.cached[tenant].parent.mkdir(parents=True)
            os.link(path, self.cached[tenant])

    @property
    def of_ann(self) -> Path:
        """The file of hers in the cache."""
        return self.cached["ann"]

    def judge(self, most_bytes: int = 10**9, recorded: Mapping[Path, str] | None = None) -> int:
        """What the auditor says to it, without a wait."""
        return judge_cache(self.outputs, recorded or self.recorded, most_bytes, 0.0)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "outputs")


def test_a_cache_of_what_jobs_have_is_let_be(shelf: Shelf) -> None:
    assert shelf.judge() == 2 * shelf.of_ann.stat().st_size
    assert_apart(shelf.outputs, shelf.recorded)
    (shelf.outputs / MARKER).touch()
    assert_nothing_else(shelf.outputs, shelf.recorded, 0.0)


def test_a_cache_that_is_too_large_is_found(shelf: Shelf) -> None:
    with pytest.raises(pytest.fail.Exception, match="to shrink"):
        shelf.judge(shelf.of_ann.stat().st_size)


def test_what_no_job_of_the_tenant_has_is_found_in_the_cache(shelf: Shelf) -> None:
    mine, _ = shelf.recorded
    with pytest.raises(pytest.fail.Exception, match="what no job has"):
        shelf.judge(recorded={mine: "ann"})
    with pytest.raises(pytest.fail.Exception, match="what no job has"):
        shelf.judge(recorded=dict.fromkeys(shelf.recorded, "ann"))


@pytest.mark.parametrize("name", [".cache/x.tmp", ".cache/ann/ab/.x.tmp", ".cache/ann/ab/link"])
def test_a_strange_file_in_the_cache_is_found(shelf: Shelf, name: str) -> None:
    path = shelf.outputs / name
    if path.name == "link":
        path.symlink_to(shelf.of_ann)
    else:
        path.touch()
    with pytest.raises(pytest.fail.Exception, match="what no job has"):
        shelf.judge()


@pytest.mark.parametrize(
    ("part", "wrong"), [(1, "cd" * 32), (2, "1"), (3, "8000"), (4, "flac"), (0, "ab")]
)
def test_a_name_in_the_cache_says_what_is_in_the_file(shelf: Shelf, part: int, wrong: str) -> None:
    parts = shelf.of_ann.name.split(".")
    parts[part] = wrong
    shelf.of_ann.rename(shelf.of_ann.with_name(".".join(parts)))
    with pytest.raises(AssertionError):
        shelf.judge()


def test_a_file_of_the_cache_lies_where_its_name_says(shelf: Shelf) -> None:
    other = shelf.of_ann.parent.with_name("cd")
    shelf.of_ann.parent.rename(other)
    with pytest.raises(AssertionError, match="cd"):
        shelf.judge()


def test_a_file_that_two_tenants_have_is_found(shelf: Shelf) -> None:
    mine, theirs = shelf.recorded
    theirs.unlink()
    os.link(mine, theirs)
    with pytest.raises(AssertionError, match="is a file of"):
        assert_apart(shelf.outputs, shelf.recorded)


def test_a_cache_that_gives_a_tenant_another_s_file_is_found(shelf: Shelf) -> None:
    mine, _ = shelf.recorded
    os.link(mine, shelf.cached["ben"].with_name("x.wav"))
    with pytest.raises(AssertionError, match="is a file of ann"):
        assert_apart(shelf.outputs, shelf.recorded)


# --- all of it ------------------------------------------------------------------


class Told(Tenant):
    """A tenant whose stack says what it is told to."""

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(Stack(folder / "home"), "ann", "key", log)
        self.has: dict[str, dict[str, Any]] = {}
        self.of: dict[str, list[dict[str, Any]]] = {}

    def request(self, method: str, path: str, **_: Any) -> httpx.Response:
        """Of a job: nothing, or that it is not there."""
        status = 200 if path.split("/")[3] in self.has else 404
        return httpx.Response(204 if method == "DELETE" else status)

    def jobs(self) -> list[str]:
        """Those that it was told of."""
        return list(self.has)

    def job(self, job_id: str) -> dict[str, Any]:
        """As it was told."""
        return self.has[job_id]

    def items(self, job_id: str) -> list[dict[str, Any]]:
        """As they were told."""
        return self.of[job_id]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Two jobs of the same text: one was deleted, the other has its audio."""
    path = tmp_path / "outputs" / "job_2" / "0000" / "000000-a.1.wav"
    path.parent.mkdir(parents=True)
    (tmp_path / "outputs" / MARKER).touch()
    told = Told(tmp_path, tmp_path / "log")
    sent = [Sent("ann", job_id, 0, TEXT, ("succeeded",)) for job_id in ("job_1", "job_2")]
    told.log.write_text("".join(json.dumps(asdict(one)) + "\n" for one in sent))
    told.delete("job_1")
    told.of["job_2"] = [{**item(0, "succeeded", size_bytes=9, cached=True), **spoken(path, TEXT)}]
    counts = {**NONE, "total": 1, "completed": 1, "failed": 0, "cached": 1}
    done = {"status": "completed", "run": 1, "request_counts": counts, "concatenation": None}
    told.has["job_2"] = done
    return told


def judged(told: Told, folder: Path, log: Log | None = None) -> Verdict:
    return audit([told], log or read_log(told.log), folder / "outputs", 3, 10**9, 0.0)


def test_a_job_that_was_deleted_has_left_only_what_others_share(told: Told, tmp_path: Path) -> None:
    verdict = judged(told, tmp_path)
    assert (verdict.ends, verdict.shared) == ({"deleted": 1, "succeeded": 1}, 1)


def test_a_deleted_job_that_is_still_there_is_found(told: Told, tmp_path: Path) -> None:
    told.has["job_1"] = told.has["job_2"]
    with pytest.raises(AssertionError, match="the jobs of ann"):
        judged(told, tmp_path)
    told.jobs = lambda: ["job_2"]  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="job_1"):
        judged(told, tmp_path)


def test_a_job_that_nobody_deleted_and_is_gone_is_found(told: Told, tmp_path: Path) -> None:
    log = read_log(told.log)
    with pytest.raises(AssertionError, match="the jobs of ann"):
        judged(told, tmp_path, Log(log.sent, frozenset()))


def test_audio_that_nobody_spoke_for_a_tenant_is_found(told: Told, tmp_path: Path) -> None:
    _, kept = read_log(told.log).sent
    with pytest.raises(AssertionError, match="nobody spoke"):
        judged(told, tmp_path, Log((kept,), frozenset()))


def test_a_file_of_a_deleted_job_is_found(told: Told, tmp_path: Path) -> None:
    left = tmp_path / "outputs" / "job_1" / "0000" / "000000-a.1.wav"
    left.parent.mkdir(parents=True)
    left.touch()
    with pytest.raises(pytest.fail.Exception, match="job_1"):
        judged(told, tmp_path)

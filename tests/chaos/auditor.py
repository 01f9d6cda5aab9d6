"""Judges a run by what its client wrote down, what the API says, and the files; by nothing else."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.chaos.client import Sent, Tenant
from tests.support import wait_until
from voicemill.storage import MARKER
from worker.cache import FOLDER as CACHE
from worker.engines.tone import pitch, seconds

ENDED = {"completed", "failed", "cancelled", "expired"}
PITCH_TOLERANCE = 0.015
"""Half of the way to the next pitch that another text may have."""
SECONDS_TOLERANCE = 0.02
SWEPT_SECONDS = 60.0


def audit(
    tenants: Sequence[Tenant], sent: Sequence[Sent], outputs: Path, most_attempts: int
) -> Counter[str]:
    """Every item has one end that it may have, every success its own sound; gives the ends."""
    recorded: set[Path] = set()
    ends: Counter[str] = Counter()
    for tenant in tenants:
        jobs = groupby((one for one in sent if one.tenant == tenant.name), lambda one: one.job)
        mine = {job_id: list(items) for job_id, items in jobs}
        assert sorted(tenant.jobs()) == sorted(mine), f"the jobs of {tenant.name}"
        for job_id, texts in mine.items():
            items = tenant.items(job_id)
            assert_ended(tenant.job(job_id), items, texts, most_attempts)
            for one, item in zip(texts, items, strict=True):
                if item["status"] == "succeeded":
                    path = Path(item["audio_path"])
                    judge(path, item, one.text)
                    assert path not in recorded, f"{path} is the audio of two items"
                    recorded.add(path)
            recorded |= judge_whole(tenant.job(job_id), items)
            ends.update(item["status"] for item in items)
    assert sum(ends.values()) == len(sent)
    assert_nothing_else(outputs, recorded)
    return ends


def assert_ended(
    job: dict[str, Any],
    items: Sequence[dict[str, Any]],
    sent: Sequence[Sent],
    most_attempts: int,
) -> None:
    """A job has its items and no other, each has ended as it may, and the counters say so."""
    assert job["status"] in ENDED, job
    assert [item["index"] for item in items] == [one.index for one in sent]
    for one, item in zip(sent, items, strict=True):
        assert item["status"] in one.may_end, (one, item)
        assert item["attempts"] <= most_attempts * job["run"], item
        if item["status"] in {"succeeded", "failed"}:
            assert item["attempts"] >= 1, item
            assert (item["error"] is None) == (item["status"] == "succeeded"), item
    by_status = Counter(item["status"] for item in items)
    counts = job["request_counts"]
    assert counts["total"] == len(items)
    assert counts["completed"] == by_status["succeeded"], (counts, by_status)
    assert counts["cached"] == sum(item["cached"] for item in items), counts
    assert_shared([one.text for one in sent], items)
    for status in ("failed", "cancelled", "expired", "queued", "in_progress"):
        assert counts[status] == by_status[status], (counts, by_status)


def assert_shared(texts: Sequence[str], items: Sequence[dict[str, Any]]) -> None:
    """What was not spoken has the very bytes of an item that was, of the same text."""
    pairs = list(zip(texts, items, strict=True))
    spoken = {(text, item["sha256"]) for text, item in pairs if not item["cached"]}
    for text, item in pairs:
        assert not item["cached"] or item["status"] == "succeeded", item
        assert not item["cached"] or (text, item["sha256"]) in spoken, item


def judge(path: Path, item: dict[str, Any], text: str) -> None:
    """A file is as recorded, and sounds as its text does."""
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == item["sha256"], f"{path} is not as recorded"
    samples, rate = soundfile.read(path)
    assert abs(len(samples) / rate - seconds(text)) <= SECONDS_TOLERANCE, f"{path}: its length"
    found = loudest_hz(samples, rate)
    assert abs(found / pitch(text, item["voice"]) - 1) <= PITCH_TOLERANCE, f"{path}: {found} Hz"


def judge_whole(job: dict[str, Any], items: Sequence[dict[str, Any]]) -> set[Path]:
    """The one file of a job is as recorded, and as long as its parts; gives where it is."""
    whole = job["concatenation"]
    if whole is None:
        return set()
    assert whole["error"] is None, whole
    spoken = [item for item in items if item["status"] == "succeeded"]
    if whole["audio_path"] is None:
        assert job["status"] != "completed", job
        return set()
    path = Path(whole["audio_path"])
    assert hashlib.sha256(path.read_bytes()).hexdigest() == whole["sha256"], path
    assert whole["items_left_out"] == len(items) - len(spoken), job
    frames = sum(soundfile.info(item["audio_path"]).frames for item in spoken)
    frames += (len(spoken) - 1) * whole["silence_ms"] * whole["sample_rate"] // 1000
    assert soundfile.info(path).frames == frames, f"{path}: its length"
    return {path}


def loudest_hz(samples: np.ndarray, rate: int) -> float:
    """The frequency that stands out."""
    padded = 4 * rate
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), padded))
    return float(np.argmax(spectrum)) * rate / padded


def assert_nothing_else(
    outputs: Path, recorded: Collection[Path], seconds: float = SWEPT_SECONDS
) -> None:
    """No file is there that no record points to, once those that were swept are gone."""

    def others() -> set[Path]:
        found = {path for path in outputs.rglob("*") if path.is_file() or path.is_symlink()}
        known = {path for path in found if path.is_relative_to(outputs / CACHE)}
        return (found - known - {outputs / MARKER}) ^ set(recorded)

    wait_until(lambda: not others(), seconds, f"the end of {sorted(others())[:5]}")

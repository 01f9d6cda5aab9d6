"""Judges a run by what its client wrote down, what the API says, and the files; by nothing else."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.chaos.client import Log, Sent, Tenant
from tests.support import wait_until
from voicemill.storage import MARKER
from worker.engines.tone import pitch, seconds

ENDED = {"completed", "failed", "cancelled", "expired"}
PITCH_TOLERANCE = 0.015
"""Half of the way to the next pitch that another text may have."""
SECONDS_TOLERANCE = 0.02
SETTLED_SECONDS = 90.0
"""Until all that nobody needs is swept, and the cache is as small as it may be."""
CACHE = ".cache"
SHELF = re.compile(r"[0-9a-f]{2}")
CACHED = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})\.(\d+)\.(\d+)\.wav")
"""A name in the cache: what sounds, sha256, microseconds, Hz."""


@dataclass(slots=True)
class Verdict:
    """What was found, all of it as it may be."""

    ends: Counter[str] = field(default_factory=Counter)
    """Items by their end; those of a job that its client had removed are `deleted`."""
    shared: int = 0
    """Items that have the audio of another job's."""
    spoken_bytes: int = 0
    cached_bytes: int = 0
    """In the cache, in the end."""


def audit(
    tenants: Sequence[Tenant],
    log: Log,
    outputs: Path,
    most_attempts: int,
    most_cached_bytes: int,
    seconds: float = SETTLED_SECONDS,
) -> Verdict:
    """Every item has one end that it may have, every success its own sound."""
    verdict = Verdict()
    recorded: dict[Path, str] = {}
    for tenant in tenants:
        sent = [one for one in log.sent if one.tenant == tenant.name]
        files = audit_tenant(tenant, sent, log.deleted, most_attempts, verdict)
        assert not files & recorded.keys(), f"audio of two: {files & recorded.keys()}"
        recorded |= dict.fromkeys(files, tenant.name)
    assert sum(verdict.ends.values()) == len(log.sent)
    assert_nothing_else(outputs, recorded, seconds)
    verdict.cached_bytes = judge_cache(outputs, recorded, most_cached_bytes, seconds)
    assert_apart(outputs, recorded)
    return verdict


def audit_tenant(
    tenant: Tenant,
    sent: Sequence[Sent],
    deleted: Collection[str],
    most_attempts: int,
    verdict: Verdict,
) -> set[Path]:
    """A tenant has the jobs that it sent, but those that it deleted; gives all their files."""
    jobs = defaultdict[str, list[Sent]](list)
    for one in sent:
        jobs[one.job].append(one)
    assert sorted(tenant.jobs()) == sorted(jobs.keys() - deleted), f"the jobs of {tenant.name}"
    for job_id in jobs.keys() & deleted:
        assert tenant.request("GET", f"/v1/jobs/{job_id}").status_code == 404, job_id
        verdict.ends["deleted"] += len(jobs[job_id])
    recorded: set[Path] = set()
    spoken: list[tuple[str, dict[str, Any]]] = []
    for job_id in jobs.keys() - deleted:
        job, items = tenant.job(job_id), tenant.items(job_id)
        assert_ended(job, items, jobs[job_id], most_attempts)
        texts = [one.text for one in jobs[job_id]]
        files = judge_all(texts, items) | judge_whole(job, items)
        assert not files & recorded, f"audio of two jobs: {files & recorded}"
        recorded |= files
        spoken += zip(texts, items, strict=True)
        verdict.ends.update(item["status"] for item in items)
        verdict.shared += len(from_elsewhere(texts, items))
    assert_shared(spoken, {one.text for one in sent if one.job in deleted})
    verdict.spoken_bytes += sum(i["size_bytes"] or 0 for _, i in spoken if not i["cached"])
    return recorded


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
    for status in ("failed", "cancelled", "expired", "queued", "in_progress"):
        assert counts[status] == by_status[status], (counts, by_status)


def sound(text: str, item: Mapping[str, Any]) -> tuple[str, ...]:
    """All of an item by which it may sound as another."""
    return (text, item["model"], item["voice"], item["response_format"])


def assert_shared(
    pairs: Sequence[tuple[str, dict[str, Any]]], forgotten: Collection[str] = ()
) -> None:
    """What was not spoken has the very bytes of an item of its tenant that was, and sounds so.

    Of a text that is ``forgotten`` that item may be gone with its job, and its bytes are unknown.
    """
    spoken = {(sound(text, item), item["sha256"]) for text, item in pairs if not item["cached"]}
    digests: dict[tuple[str, ...], str] = {}
    for text, item in pairs:
        if item["cached"]:
            assert item["status"] == "succeeded", item
            digest = digests.setdefault(sound(text, item), item["sha256"])
            assert digest == item["sha256"], f"{text!r} is cached with two sounds: {item}"
            is_known = (sound(text, item), item["sha256"]) in spoken
            assert is_known or text in forgotten, f"nobody spoke {text!r} for {item}"


def from_elsewhere(texts: Sequence[str], items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items of a job that have audio which nobody spoke for this job."""
    pairs = list(zip(texts, items, strict=True))
    spoken = {sound(text, item) for text, item in pairs if not item["cached"]}
    return [item for text, item in pairs if item["cached"] and sound(text, item) not in spoken]


def judge_all(texts: Iterable[str], items: Sequence[dict[str, Any]]) -> set[Path]:
    """Each that succeeded has a file of its own; gives where they are."""
    files: set[Path] = set()
    for text, item in zip(texts, items, strict=True):
        if item["status"] == "succeeded":
            path = Path(item["audio_path"])
            judge(path, item, text)
            assert path not in files, f"{path} is the audio of two items"
            files.add(path)
    return files


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
    samples, _ = soundfile.read(path)
    assert len(samples) == frames, f"{path}: its length"
    return {path}


def loudest_hz(samples: np.ndarray, rate: int) -> float:
    """The frequency that stands out."""
    padded = 4 * rate
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), padded))
    return float(np.argmax(spectrum)) * rate / padded


def assert_nothing_else(
    outputs: Path, recorded: Collection[Path], seconds: float = SETTLED_SECONDS
) -> None:
    """No file is there that no record points to, once those that were swept are gone."""

    def others() -> set[Path]:
        known = files_in(outputs / CACHE) | {outputs / MARKER}
        return (files_in(outputs) - known) ^ set(recorded)

    wait_until(lambda: not others(), seconds, f"the end of {sorted(others())[:5]}")


def files_in(folder: Path) -> set[Path]:
    """All that is no folder, at any depth."""
    return {path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}


def judge_cache(
    outputs: Path,
    recorded: Mapping[Path, str],
    most_bytes: int,
    seconds: float = SETTLED_SECONDS,
) -> int:
    """The cache gets as small as it may be, all in it is whole, and some job of its tenant has it.

    Gives its size in bytes.
    """
    cache = outputs / CACHE
    owned = {(tenant, path.stat().st_ino) for path, tenant in recorded.items()}

    def seen() -> dict[Path, os.stat_result]:
        found = {}
        for path in files_in(cache):
            with suppress(FileNotFoundError):
                found[path] = path.lstat()
        return found

    def orphans() -> set[Path]:
        return {path for path, one in seen().items() if (path.parts[-3], one.st_ino) not in owned}

    def size() -> int:
        return sum(one.st_size for one in seen().values())

    wait_until(lambda: not orphans(), seconds, f"the end of what no job has: {orphans()}")
    wait_until(lambda: size() <= most_bytes, seconds, f"a cache of {size()} bytes to shrink")
    for path in seen():
        judge_cached(path, cache)
    return size()


def judge_cached(path: Path, cache: Path) -> None:
    """A file of the cache is where it belongs, and its name says what is in it."""
    known = CACHED.fullmatch(path.name)
    assert known is not None, f"{path} has no name of the cache"
    _, shelf, _ = path.relative_to(cache).parts
    assert SHELF.fullmatch(shelf), path
    assert known[1].startswith(shelf), path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known[2], f"{path} is not whole"
    info = soundfile.info(path)
    length = (round(info.frames / info.samplerate * 1e6), info.samplerate)
    assert length == (int(known[3]), int(known[4])), f"{path}: its length"


def assert_apart(outputs: Path, recorded: Mapping[Path, str]) -> None:
    """No file has names of two tenants, in jobs or in the cache."""
    owners = {path.stat().st_ino: tenant for path, tenant in recorded.items()}
    named = {**recorded, **{path: path.parts[-3] for path in files_in(outputs / CACHE)}}
    for path, tenant in named.items():
        owner = owners.get(path.stat().st_ino, tenant)
        assert owner == tenant, f"{path} of {tenant} is a file of {owner}"

"""Judges a run by what its client wrote down, what the API says, and the files; by nothing else."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.e2e.stack import Stack
from tests.support import wait_until
from worker.engines.tone import pitch, seconds

PITCH_TOLERANCE = 0.015
"""Half of the way to the next pitch that another text may have."""
SECONDS_TOLERANCE = 0.02
SWEPT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sent:
    """One item as its client wrote it down when the job was accepted."""

    job: str
    index: int
    text: str
    may_end: tuple[str, ...]


class ClientLog:
    """A file with a line for each item that was accepted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, job: str, texts: list[str], *may_end: str, first: int = 0) -> None:
        """A job was accepted; its items may end in these states."""
        with self._path.open("a", encoding="utf-8") as file:
            for index, text in enumerate(texts, first):
                file.write(json.dumps(asdict(Sent(job, index, text, may_end))) + "\n")

    def read(self) -> list[Sent]:
        """All of it."""
        lines = self._path.read_text("utf-8").splitlines()
        records = map(json.loads, lines)
        return [Sent(**{**record, "may_end": tuple(record["may_end"])}) for record in records]


def audit(stack: Stack, log: ClientLog, outputs: Path, most_attempts: int) -> Counter[str]:
    """Every item has one end that it may have, every success its own sound; gives the ends."""
    sent = log.read()
    jobs = list(dict.fromkeys(one.job for one in sent))
    recorded: set[Path] = set()
    ends: Counter[str] = Counter()
    for job_id in jobs:
        mine = [one for one in sent if one.job == job_id]
        job, items = stack.job(job_id), stack.items(job_id)
        assert [item["index"] for item in items] == [one.index for one in mine]
        for one, item in zip(mine, items, strict=True):
            assert item["status"] in one.may_end, (one, item)
            assert item["attempts"] <= most_attempts * job["run"], item
            if item["status"] == "failed":
                assert item["error"]["code"], item
            if item["status"] == "succeeded":
                assert (item["attempts"] >= 1, item["error"]) == (True, None), item
                path = Path(item["audio_path"])
                judge(path, item, one.text)
                assert path not in recorded, f"{path} is the audio of two items"
                recorded.add(path)
        assert_counted(job, items)
        ends.update(item["status"] for item in items)
    assert sum(ends.values()) == len(sent)
    assert_nothing_else(outputs, recorded)
    return ends


def judge(path: Path, item: dict[str, Any], text: str) -> None:
    """A file is as recorded, and sounds as its text does."""
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == item["sha256"], f"{path} is not as recorded"
    samples, rate = soundfile.read(path)
    assert abs(len(samples) / rate - seconds(text)) <= SECONDS_TOLERANCE, f"{path}: its length"
    found = loudest_hz(samples, rate)
    assert abs(found / pitch(text, item["voice"]) - 1) <= PITCH_TOLERANCE, f"{path}: {found} Hz"


def loudest_hz(samples: np.ndarray, rate: int) -> float:
    """The frequency that stands out."""
    padded = 4 * rate
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), padded))
    return float(np.argmax(spectrum)) * rate / padded


def assert_counted(job: dict[str, Any], items: Collection[dict[str, Any]]) -> None:
    """The counters of a job say what its items do."""
    by_status = Counter(item["status"] for item in items)
    counts = job["request_counts"]
    assert counts["total"] == len(items)
    assert counts["completed"] == by_status["succeeded"], (counts, by_status)
    assert counts["failed"] == by_status["failed"], (counts, by_status)
    assert counts["queued"] == counts["in_progress"] == 0


def assert_nothing_else(outputs: Path, recorded: Collection[Path]) -> None:
    """No file is there that no record points to, once those that were swept are gone."""

    def others() -> set[Path]:
        return {path for job in outputs.glob("job_*") for path in files_in(job)} ^ set(recorded)

    wait_until(lambda: not others(), SWEPT_SECONDS, f"the end of {sorted(others())[:5]}")


def files_in(folder: Path) -> Iterator[Path]:
    """Every file below it."""
    return (path for path in folder.rglob("*") if path.is_file())

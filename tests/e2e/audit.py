"""What must hold of a job that has ended, seen from outside: the API and the files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import soundfile

from tests.e2e.stack import Stack


def audit(stack: Stack, job_id: str, count: int, *, seconds: float = 120) -> list[dict[str, Any]]:
    """Every item has one outcome; every success one whole file of its own, as recorded."""
    job = stack.wait_for(job_id, seconds)
    items = stack.items(job_id)
    assert [item["index"] for item in items] == list(range(count))
    counts = job["request_counts"]
    assert counts["completed"] + counts["failed"] == counts["total"] == count
    assert counts["queued"] == counts["in_progress"] == 0
    paths = set()
    for item in items:
        assert item["status"] in {"succeeded", "failed"}
        assert item["attempts"] >= 1
        if item["status"] == "succeeded":
            path = Path(item["audio_path"])
            data = path.read_bytes()
            assert hashlib.sha256(data).hexdigest() == item["sha256"]
            assert soundfile.info(path).frames > 0
            paths.add(path)
    succeeded = [item for item in items if item["status"] == "succeeded"]
    assert len(paths) == len(succeeded) == counts["completed"]
    return items

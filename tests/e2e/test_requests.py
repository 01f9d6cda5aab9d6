"""What clients ask of jobs that real processes are at work on: to stop, to run again, to forget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.chaos.trace import check
from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.e2e.stack import ROOT, Stack
from tests.support import Valkey, wait_until
from voicemill.jobs import Item, ItemStatus, JobStatus
from voicemill.store.removal import REWRITE_SECONDS

pytestmark = pytest.mark.full

OPTIONS = json.dumps({"seconds_per_segment": 0.05})
RACES = 40
STEP_SECONDS = 0.002
CLERKS = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(
        tmp_path_factory.mktemp("requests") / "home",
        *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
        env={"VOICEMILL_MAX_ATTEMPTS": "1"},
    )
    stack.start()
    yield stack
    assert stack.stop() == 0


def test_a_job_at_work_is_deleted_only_with_a_cancel_and_leaves_no_file(stack: Stack) -> None:
    job_id = stack.submit([f"Line {n}." for n in range(200)])
    wait_until(
        lambda: stack.job(job_id)["request_counts"]["completed"] >= 5, what="some of its files"
    )
    folder = Path(stack.items(job_id)[0]["audio_path"]).parents[1]
    assert folder.name == job_id
    url = f"/v1/jobs/{job_id}"

    refused = stack.request("DELETE", url)

    assert (refused.status_code, refused.json()["code"]) == (409, "job_active")
    assert stack.job(job_id)["status"] == "in_progress"
    assert stack.request("DELETE", f"{url}?cancel=true").status_code == 204
    assert stack.request("GET", url).status_code == 404
    wait_until(lambda: not folder.exists(), what="the end of its files")
    stack.wait_for(stack.submit(["Next."]))
    assert not folder.exists(), "what was in hand came back"


def test_a_job_past_its_deadline_expires_and_keeps_what_was_spoken(stack: Stack) -> None:
    job_id = stack.submit([f"Line {n}." for n in range(200)], deadline_seconds=2)
    job = stack.wait_for(job_id, 20)
    counts = job["request_counts"]
    assert job["status"] == "expired"
    assert job["expired_at"] - job["created_at"] <= 2 + 3
    assert 0 < counts["completed"] == 200 - counts["expired"]
    items = stack.items(job_id)
    assert [bool(mark(item)) for item in items] == [item["status"] == "succeeded" for item in items]


def test_a_job_that_is_to_stop_at_an_error_speaks_no_more(stack: Stack) -> None:
    texts = ["{tone:fail} Never.", *(f"Line {n}." for n in range(200))]
    job_id = stack.submit(texts, on_item_error="stop")
    job = stack.wait_for(job_id, 20)
    counts = job["request_counts"]
    assert (job["status"], counts["failed"]) == ("failed", 1)
    assert counts["cancelled"] == 200 - counts["completed"] > 100


def test_what_was_deleted_leaves_the_append_only_file_within_the_hour(stack: Stack) -> None:
    secret, kept = (stack.submit([text], metadata={"of": text}) for text in ("Secret.", "Kept."))
    for job_id in (secret, kept):
        stack.wait_for(job_id)
    with redis.Redis.from_url(stack.redis_url) as client:
        folder = Path(client.config_get("dir")["dir"])
        name = client.config_get("appenddirname")["appenddirname"]
        pages = [client.hget(f"voicemill:job:{job}:pages", 0) for job in (secret, kept)]
        assert all(pages)

        def written(page: Any) -> bool:
            return any(page in path.read_bytes() for path in (folder / name).iterdir())

        def is_gone(page: Any) -> bool:
            try:
                return not written(page)
            # Redis takes an old file away just now.
            except FileNotFoundError:
                return False

        assert [written(page) for page in pages] == [True, True]
        assert stack.request("DELETE", f"/v1/jobs/{secret}").status_code == 204
        wait_until(lambda: not client.exists(f"voicemill:job:{secret}"), what="its end")
        due = float(client.get("voicemill:rewrite_at"))
        assert time.time() < due <= time.time() + REWRITE_SECONDS

        client.set("voicemill:rewrite_at", 1)

        wait_until(lambda: is_gone(pages[0]), what="a file without it")
        wait_until(
            lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, what="the file"
        )
        assert [written(page) for page in (b"Secret.", pages[0], pages[1])] == [False, False, True]


def test_only_what_failed_runs_again(stack: Stack, tmp_path: Path) -> None:
    fails = f"{{tone:fail-once={tmp_path / 'failed'}}} Two."
    job_id = stack.submit(["One.", fails, "Three."])
    counts = stack.wait_for(job_id)["request_counts"]
    assert (counts["completed"], counts["failed"]) == (2, 1)
    before = stack.items(job_id)
    marks = [mark(item) for item in before]

    assert stack.request("POST", f"/v1/jobs/{job_id}/retry").status_code == 202

    counts = stack.wait_for(job_id)["request_counts"]
    assert (counts["completed"], counts["failed"]) == (3, 0)
    items = stack.items(job_id)
    assert [item["attempts"] for item in items] == [1, 2, 1]
    assert [items[0], items[2]] == [before[0], before[2]]
    assert (mark(items[0]), mark(items[2])) == (marks[0], marks[2])
    assert mark(items[1]) is not None


def mark(item: dict[str, Any]) -> tuple[int, int] | None:
    """What changes when somebody writes an item's file."""
    if item["audio_path"] is None:
        return None
    found = Path(item["audio_path"]).stat()
    return found.st_ino, found.st_mtime_ns


def test_a_cancel_that_meets_the_end_leaves_one_end_and_no_file_of_the_other(
    tmp_path: Path, own_valkey: Valkey
) -> None:
    with SoloWorker(own_valkey.url, tmp_path, **tone(seconds_per_segment=0.02)) as worker:
        store = worker.store
        jobs = []
        for number in range(RACES):
            job_id = worker.submit(f"Race {number}.")
            time.sleep(number * STEP_SECONDS)
            store.cancel(job_id)
            jobs.append(job_id)
        worker.wait_until("all ends", lambda: all(map(worker.has_ended, jobs)))
        ends = [(store.job(job_id).status, *store.items(job_id)) for job_id in jobs]
        assert worker.stop() == 0
        assert [(store.job(job_id).status, *store.items(job_id)) for job_id in jobs] == ends
    assert {status for status, _ in ends} == {JobStatus.COMPLETED, JobStatus.CANCELLED}
    assert {(status, item.status) for status, item in ends} == {
        (JobStatus.COMPLETED, ItemStatus.SUCCEEDED),
        (JobStatus.CANCELLED, ItemStatus.CANCELLED),
    }
    recorded = {item.audio.audio_path for _, item in ends if item.audio is not None}
    assert len(recorded) == [status for status, _ in ends].count(JobStatus.COMPLETED)
    assert {str(path) for path in tmp_path.rglob("*.wav")} == recorded
    own_valkey.stop()
    assert check(own_valkey.folder).moves >= 3 * RACES


def test_any_number_of_clerks_and_dispatchers_get_in_nobody_s_way(
    tmp_path: Path, own_valkey: Valkey
) -> None:
    url = own_valkey.url
    with ExitStack() as ending, SoloWorker(url, tmp_path, VOICEMILL_WORKERS="2") as worker:
        for _ in range(CLERKS):
            clerk = start_clerk(url, tmp_path)
            ending.callback(clerk.wait, 30)
            ending.callback(clerk.terminate)
        jobs = [worker.submit(*(f"Line {n}." for n in range(40))) for _ in range(8)]
        items: list[Item] = [one for job_id in jobs for one in worker.wait_for(job_id)]
        assert_each_spoken_once(items)
        assert worker.stop() == 0
    own_valkey.stop()
    assert check(own_valkey.folder).most_attempts == 1


def start_clerk(url: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process of its own, beside the worker whose folder it is."""
    env = {"VOICEMILL_REDIS_URL": url, "VOICEMILL_HOME": str(folder), "VOICEMILL_ENGINE": "tone"}
    return subprocess.Popen(
        [sys.executable, "-m", "worker.clerk"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        cwd=ROOT,
    )

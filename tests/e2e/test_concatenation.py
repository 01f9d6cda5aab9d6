"""A job that asks for one file of its audio, on the real stack."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.support import wait_until
from voicemill.client import Client

OPTIONS = json.dumps({"seconds_per_segment": 0.01})
LEASE_SECONDS = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(
        tmp_path_factory.mktemp("concatenation") / "home",
        *("--engine", "tone", "--engine-options", OPTIONS, "--workers", "2"),
        env={"VOICEMILL_LEASE_SECONDS": str(LEASE_SECONDS), "VOICEMILL_RETRY_SECONDS": "off"},
    )
    stack.start()
    yield stack
    assert stack.stop() == 0


def frames_of(items: list[dict[str, object]]) -> int:
    """Of all items that succeeded."""
    paths = (item["audio_path"] for item in items if item["status"] == "succeeded")
    return sum(soundfile.info(path).frames for path in paths)


def test_a_job_with_failing_items_becomes_one_file_of_the_others(
    stack: Stack, tmp_path: Path
) -> None:
    failing = {4, 17, 29}
    texts = [f"Line {n}{' {tone:fail}' if n in failing else ''}." for n in range(30)]
    with Client(stack.url) as client:
        inputs = [{"input": text} for text in texts]
        job = client.create_job(inputs, concatenate=True, concatenate_silence_ms=200)
        items = audit(stack, job["id"], 30)
        whole = client.job(job["id"])["concatenation"]
        assert whole is not None
        path = tmp_path / "whole.wav"
        size = client.download_job(job["id"], path, sha256=whole["sha256"])

    assert {item["index"] for item in items if item["status"] == "failed"} == failing
    assert (whole["items_left_out"], whole["error"]) == (3, None)
    samples, rate = soundfile.read(path)
    assert rate == whole["sample_rate"]
    assert len(samples) == frames_of(items) + 26 * rate // 5
    assert whole["duration_seconds"] == round(len(samples) / rate, 6)
    assert size == whole["size_bytes"] == Path(str(whole["audio_path"])).stat().st_size


@pytest.mark.full
def test_a_clerk_killed_while_it_joins_costs_time_and_nothing_else(stack: Stack) -> None:
    long = "All work and no play. " * 300
    job_id = stack.submit([long] * 4, concatenate=True, response_format="mp3")
    folder = stack.home / "outputs" / job_id

    wait_until(lambda: bool(list(folder.glob(".audio.*.tmp"))), 60, "a join")
    assert stack.kill_part("clerk")
    job = stack.job(job_id)
    assert (job["status"], job["concatenation"]["audio_path"]) == ("finalizing", None)
    assert not list(folder.glob("audio.*")), "nothing half-written has the name"

    items = audit(stack, job_id, 4)
    whole = stack.job(job_id)["concatenation"]
    path = Path(whole["audio_path"])
    assert path.name == "audio.2.mp3"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == whole["sha256"]
    assert soundfile.info(path).frames == frames_of(items)
    stack.wait_ready()

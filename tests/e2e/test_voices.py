"""Voices on a live stack: real speech is enrolled, spoken with, and deleted, without a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.e2e.stack import ROOT, Stack
from tests.support import wait_until
from voicemill.bulk.progress import Silence
from voicemill.bulk.speak import speak_csv
from voicemill.client import Client, ServerProblemError
from voicemill.store import Store
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.hibari import HibariEngine
from worker.engines.tone import cloned_hz, interval

SAID = "The harbour was quiet, and the boats came home before the rain began to fall."
LINE = "A line to be spoken in a voice of somebody."
CONSENT = ("--consent", "A synthetic voice.")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of `tone`, with one child."""
    home = tmp_path_factory.mktemp("voices") / "home"
    stack = Stack(home, "--engine", "tone", "--workers", "1")
    stack.start()
    yield stack
    assert stack.stop() == 0


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One sentence, spoken twice by an engine that speaks: once more slowly."""
    engine = HibariEngine()
    has = engine.load({})
    folder = tmp_path_factory.mktemp("clips")
    paths = []
    for speed in (1.0, 0.8):
        options = SynthesisOptions(speed=speed)
        (samples,) = engine.synthesize([Segment(SAID)], has.voices[0].name, options)
        assert isinstance(samples, np.ndarray)
        paths.append(folder / f"{speed}.wav")
        soundfile.write(paths[-1], samples, has.sample_rate)
    return paths


def enrol_voice(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / "enrol_voice.py")
    command = [sys.executable, script, "--url", stack.url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def heard_hz(path: str) -> float:
    samples, rate = soundfile.read(path)
    spectrum = np.abs(np.fft.rfft(samples, 1 << 20))
    return float(np.argmax(spectrum) * rate / (1 << 20))


@pytest.mark.full
def test_real_speech_is_enrolled_and_spoken_with_at_once_and_gone_when_deleted(
    stack: Stack, clips: list[Path], tmp_path: Path
) -> None:
    child = stack.children()
    for name, clip in zip(("first", "second"), clips, strict=True):
        said = ("--text", SAID, "--language", "en", *CONSENT)
        made = enrol_voice(stack, "enrol", name, str(clip), *said)
        assert (made.returncode, made.stderr) == (0, "")
        assert made.stdout.startswith(f"The voice {name} is ready: ")
    listed = [line.split() for line in enrol_voice(stack, "list").stdout.splitlines()]
    assert ["first", "any", "that", "clones", "en", "ready"] in listed

    job = stack.wait_for(stack.submit([LINE], voice="first"))
    other = stack.wait_for(stack.submit([LINE], voice="second"))
    heard = [heard_hz(stack.items(one["id"])[0]["audio_path"]) for one in (job, other)]
    with Client(stack.url) as client:
        expected = []
        for name in ("first", "second"):
            sample = tmp_path / f"{name}.wav"
            enrolled = client.voice(name)["enrolled"]
            assert enrolled is not None
            client.download_sample(name, sample, sha256=enrolled["sha256"])
            expected.append(cloned_hz(sample.read_bytes(), SAID) * interval(LINE))
    assert heard == pytest.approx(expected, rel=1e-3)
    assert abs(heard[0] - heard[1]) > 2

    assert enrol_voice(stack, "delete", "first").returncode == 0
    assert enrol_voice(stack, "delete", "first").returncode == 1
    folder = stack.home / "outputs" / ".voices" / "default"
    wait_until(lambda: len(list(folder.iterdir())) == 1, 20, "the removal of the clip")
    refused = stack.request(
        "POST", "/v1/jobs", json={"inputs": [{"input": LINE, "voice": "first"}]}
    )
    assert refused.json()["errors"][0]["code"] == "voice_not_found"
    wait_until(lambda: "voice first of default is forgotten" in stack.logs(), 20, "forgetting")
    assert stack.children() == child


@pytest.mark.full
def test_what_waits_for_a_voice_that_is_deleted_fails_and_what_was_spoken_stays(
    stack: Stack, clips: list[Path]
) -> None:
    with Client(stack.url) as client:
        client.enrol_voice(clips[0], SAID, language="en", name="brief", consent="Synthetic.")
        texts = [f"{{tone:seconds=0.3}} Line {number}." for number in range(40)]
        job_id = stack.submit(texts, voice="brief")
        wait_until(lambda: stack.job(job_id)["request_counts"]["completed"] > 0, 30, "an item")
        client.delete_voice("brief")
        job = stack.wait_for(job_id)
    items = stack.items(job_id)
    assert {item["status"] for item in items} == {"succeeded", "failed"}
    assert {item["error"]["code"] for item in items if item["error"]} == {"voice_not_found"}
    assert job["status"] == "completed"
    assert all(Path(item["audio_path"]).is_file() for item in items if not item["error"])


@pytest.mark.full
def test_a_clip_that_can_not_be_used_is_told_to_a_person(
    stack: Stack, clips: list[Path], tmp_path: Path
) -> None:
    samples, rate = soundfile.read(clips[0])
    short = tmp_path / "short.wav"
    soundfile.write(short, samples[: rate // 2], rate)
    said = ("--text", SAID, "--language", "en", *CONSENT)
    ended = enrol_voice(stack, "enrol", "short", str(short), *said)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("The prompt audio lasts 0.5 s; 1 to 30 s can be used")
    ended = enrol_voice(stack, "enrol", "none", str(tmp_path / "none.wav"), *said)
    assert (ended.returncode, ended.stderr.rstrip().endswith("No such file or directory.")) == (
        2,
        True,
    )
    with Client(stack.url) as client, pytest.raises(ServerProblemError) as caught:
        client.enrol_voice(
            clips[0], "Only this.", language="en", name="other", consent="Synthetic."
        )
    assert [fault.code for fault in caught.value.faults] == ["prompt_text_implausible"]


@pytest.mark.full
def test_rows_of_a_csv_bring_their_clips_and_these_go_with_their_job(
    stack: Stack, clips: list[Path], tmp_path: Path
) -> None:
    table = tmp_path / "lines.csv"
    first, second = (tmp_path / name for name in ("first.wav", "second.wav"))
    first.write_bytes(clips[0].read_bytes())
    second.write_bytes(clips[1].read_bytes())
    table.write_text(
        "id,text,language,prompt_audio,prompt_text\n"
        f'a,{LINE},en,first.wav,"{SAID}"\nb,{LINE},en,second.wav,"{SAID}"\n'
        f'c,{LINE},en,first.wav,"{SAID}"\nd,{LINE},en,,\n'
    )
    summary = speak_csv(table, tmp_path / "out", stack.url, Silence())
    assert (summary.rows, summary.failures) == (4, ())
    a, b, c, d = (heard_hz(str(tmp_path / "out" / "audio" / f"{row}.wav")) for row in "abcd")
    assert a == c
    assert min(abs(a - b), abs(a - d), abs(b - d)) > 2

    folder, store = stack.home / "outputs" / ".voices" / "default", Store.connect(stack.redis_url)
    names = [key.decode().split(":")[-1] for key in store._redis.keys("voicemill:voice:*:voice_*")]
    assert len(names) == 2
    before = len(list(folder.iterdir()))
    (job,) = store.jobs("default", limit=1).jobs
    assert stack.request("DELETE", f"/v1/jobs/{job.id}").status_code == 204
    for name in names:
        store._redis.zadd("voicemill:unlisted_voices", {f"default/{name}": 1.0})
    wait_until(lambda: len(list(folder.iterdir())) == before - 2, 20, "the removal of the clips")
    assert [store.voice("default", name) for name in names] == [None, None]

"""CosyVoice through the whole queue, on the stand-in, in the Python that it pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.clips import clip
from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.pythons import venv
from tests.support import wait_until
from tests.worker.cosyvoice_world import World, pitch_of
from voicemill.client import Client
from voicemill.voices import HOW_TO_ENROL

SECRET = "nobody may read this in a log"


def heard_in(stack: Stack, voice: str) -> float:
    """The pitch (Hz) of something that is spoken in a voice."""
    job = stack.wait_for(stack.submit([SECRET], voice=voice))
    samples, rate = soundfile.read(stack.items(job["id"])[0]["audio_path"])
    return pitch_of(samples[rate // 10 : -rate // 10])


@pytest.mark.full
@pytest.mark.timeout(300)
def test_voices_are_enrolled_while_the_stack_runs_and_speak(tmp_path: Path) -> None:
    python = venv("3.10", "numpy", "soundfile>=0.13")
    world = World(tmp_path)
    world.make_model()
    world.voices_dir.mkdir()
    stack = Stack(
        tmp_path / "home",
        *("--engine", "cosyvoice", "--engine-options", json.dumps(world.options())),
        *("--workers", "1"),
        env={"VOICEMILL_MAX_ATTEMPTS": "1", "VOICEMILL_ENGINE_PYTHON": str(python)},
    )
    stack.start()
    try:
        refused = stack.request("POST", "/v1/jobs", json={"inputs": [{"input": SECRET}]})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert (error["code"], HOW_TO_ENROL in error["detail"]) == ("voice_not_found", True)
        assert HOW_TO_ENROL in (stack.home / "logs" / "worker.log").read_text("utf-8")

        first = stack.children()
        with Client(stack.url) as client:
            for name, hz in (("bea", 140), ("cy", 190)):
                (tmp_path / f"{name}.wav").write_bytes(clip(6.0, hz))
                path = tmp_path / f"{name}.wav"
                client.enrol_voice(path, SECRET, name=name, language="en-GB", consent="A test.")
        heard = [heard_in(stack, name) for name in ("bea", "cy")]
        assert heard[1] > heard[0] + 20
        assert stack.children() == first

        world.make_voice("ann", language="en", pitch=250)
        (worker,) = stack.request("GET", "/v1/workers").json()["data"]
        stack.request("POST", f"/v1/workers/{worker['id']}/recycle")

        def voices() -> list[str]:
            found: list[str] = stack.request("GET", "/v1/models").json()["data"][0]["voices"]
            return found

        wait_until(lambda: voices() == ["ann"], 60, "the successor's voices")
        asked = [
            {"input": SECRET},
            {"input": "\u4eca\u5929\u5929\u6c14\u5f88\u597d", "options": {"dialect": "sichuan"}},
            {"input": "\u4eca\u5929\u5929\u6c14\u5f88\u597d", "language": "zh", "speed": 1.5},
            {"input": "hello from over here", "instructions": "Whisper.", "seed": 4},
            {"input": "zerotokens"},
        ]
        answer = stack.request("POST", "/v1/jobs", json={"inputs": asked})
        assert answer.status_code == 202, answer.text
        items = audit(stack, answer.json()["id"], len(asked))
        assert [item["status"] for item in items] == [*["succeeded"] * 4, "failed"]
        assert items[-1]["error"]["code"] == "invalid_audio"
        for item in items[:-1]:
            samples, rate = soundfile.read(item["audio_path"])
            assert rate == 24_000
            assert pitch_of(samples[rate // 10 : -rate // 10]) == pytest.approx(250, rel=0.03)
        for log in (stack.home / "logs").glob("*.log"):
            assert SECRET not in log.read_text("utf-8", "replace")
    finally:
        assert stack.stop() == 0

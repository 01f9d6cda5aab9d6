"""CosyVoice through the whole queue, on the stand-in: from no voice to one, without a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.e2e.audit import audit
from tests.e2e.stack import Stack
from tests.support import wait_until
from tests.worker.cosyvoice_world import World, pitch_of
from voicemill.voices import HOW_TO_ENROL

SECRET = "nobody may read this in a log"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_voice_is_enrolled_while_the_stack_runs_and_speaks(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.make_model()
    world.voices_dir.mkdir()
    stack = Stack(
        tmp_path / "home",
        *("--engine", "cosyvoice", "--engine-options", json.dumps(world.options())),
        *("--workers", "1"),
        env={"VOICEMILL_MAX_ATTEMPTS": "1"},
    )
    stack.start()
    try:
        refused = stack.request("POST", "/v1/jobs", json={"inputs": [{"input": SECRET}]})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert (error["code"], HOW_TO_ENROL in error["detail"]) == ("voice_not_found", True)
        log = (stack.home / "logs" / "worker.log").read_text("utf-8")
        assert HOW_TO_ENROL in log
        assert f"cp CLIP.wav {world.voices_dir}/NAME.wav" in log

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

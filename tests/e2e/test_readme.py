"""The commands of the README do what it says, on a running stack."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import soundfile

from tests.e2e.stack import ROOT, Stack


def block(name: str) -> str:
    """The fenced block that follows ``<!-- run: NAME -->``."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(rf"<!-- run: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def environ(stack: Stack) -> dict[str, str]:
    """What the README's export lines give."""
    return {
        **os.environ,
        "VOICEMILL_URL": stack.url,
        "VOICEMILL_REDIS_URL": (stack.home / "redis.url").read_text("utf-8").strip(),
    }


def test_the_curl_command_submits_a_job(hibari_stack: Stack) -> None:
    ended = subprocess.run(
        ["sh", "-c", block("curl")],
        env=environ(hibari_stack),
        check=True,
        capture_output=True,
        text=True,
    )
    job_id = re.search(r"job_[0-9a-f]{32}", ended.stdout)
    assert job_id is not None
    assert hibari_stack.wait_for(job_id[0])["status"] == "completed"
    assert hibari_stack.items(job_id[0])[0]["custom_id"] == "hello"


def test_the_python_lines_print_a_path_to_speech(hibari_stack: Stack) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", block("python")],
        env=environ(hibari_stack),
        check=True,
        capture_output=True,
        text=True,
    )
    paths = re.findall(r"'(/[^']+\.wav)'", ended.stdout)
    assert len(paths) == 1, ended.stdout
    assert soundfile.info(Path(paths[0])).duration > 0.5

"""The commands of docs/quickstart-cosyvoice.md, from first to last, on the stand-in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import soundfile

from tests.clips import clip
from tests.e2e.stack import ROOT
from tests.pythons import interpreter
from tests.worker.cosyvoice_world import CHECKOUT, World
from voicemill.voices import HOW_TO_ENROL

PAGE = ROOT / "docs" / "quickstart-cosyvoice.md"


def block(name: str) -> tuple[str, str]:
    """A command of the page, and what is said that it prints."""
    found = re.search(
        rf"<!-- run: {name} -->\n```sh\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text("utf-8"), re.S
    )
    assert found is not None
    return found[1], found[2]


class Machine:
    """A folder that is the checkout to whoever works in it, with what the page asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "voicemill"
        self.folder.mkdir()
        for name in ("Makefile", "api", "celeryconfig.py", "examples", "scripts", "voicemill"):
            (self.folder / name).symlink_to(ROOT / name)
        (self.folder / "worker").symlink_to(ROOT / "worker")
        (self.folder / ".venv").symlink_to(sys.prefix)
        world = World(folder)
        world.make_model()
        (self.folder / "ann.wav").write_bytes(clip(6.0))
        self._paths = {
            "/srv/CosyVoice": str(CHECKOUT),
            "/srv/Fun-CosyVoice3-0.5B": str(world.model_dir),
            # The environment is as it is: it may be older than the lock.
            "make ": "make -s -o venv ",
        }
        self.env = {
            **{name: value for name, value in os.environ.items() if "VOICEMILL" not in name},
            "PYTHONPATH": str(ROOT),
            "VOICEMILL_HOME": str(folder / "home"),
            "VOICEMILL_PORT": "0",
            "VOICEMILL_FLOWER_PORT": "0",
        }

    def here(self, command: str) -> str:
        """A command with this machine's paths."""
        for there, path in self._paths.items():
            command = command.replace(there, path)
        return command

    def run(self, command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Carry it out to its end."""
        return subprocess.run(
            ["sh", "-c", self.here(command)],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With a Python for CosyVoice, made as the page says."""
    machine = Machine(tmp_path)
    made = machine.run(
        f"make venv-cosyvoice COSYVOICE_DIR=/srv/CosyVoice PARTS= PYTHON310={interpreter('3.10')}"
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Left out: deepspeed==0.15.1; sys_platform == 'linux' (trains models only)." in (
        made.stdout
    )
    return machine


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_stranger_comes_from_nothing_to_a_spoken_csv(machine: Machine) -> None:
    command, says = block("doctor")
    looked = machine.run(command)
    assert looked.returncode == 0, looked.stdout
    assert "ok       engine: cosyvoice has all that it needs." in looked.stdout
    assert names(looked.stdout) - {"GPU", "container toolkit"} == (
        names(says) - {"GPU", "container toolkit"}
    )

    command, says = block("up")
    up = subprocess.Popen(
        ["sh", "-c", f"exec {machine.here(command)}"],
        cwd=machine.folder,
        env=machine.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert up.stdout is not None
        first = up.stdout.readline()
        assert re.sub(r":\d+$", ":8080", first.strip()) == says.strip()
        go_on(machine, {"VOICEMILL_URL": first.split()[1]})
    finally:
        os.killpg(up.pid, signal.SIGTERM)
        up.communicate(timeout=90)


def go_on(machine: Machine, env: Mapping[str, str]) -> None:
    """What is done in the other terminal."""
    say, said = block("say")
    refused = machine.run(say, **env)
    log = Path(machine.env["VOICEMILL_HOME"]) / "logs" / "worker.log"
    assert HOW_TO_ENROL in log.read_text("utf-8")
    assert not (machine.folder / "hello.wav").exists(), refused.stdout

    enrol, enrolled = block("enrol")
    assert machine.run(enrol, **env).stdout == enrolled
    done = machine.run(say, **env)
    assert done.stdout == said, done.stderr
    assert soundfile.info(str(machine.folder / "hello.wav")).duration > 0.2

    command, printed = block("bulk")
    spoken = machine.run(command, **env)
    assert spoken.returncode == 0, spoken.stderr
    assert printed.splitlines()[0] in spoken.stdout + spoken.stderr
    files = {path.stem for path in (machine.folder / "spoken" / "audio").iterdir()}
    assert files == {"greeting", "cantonese", "sichuan", "happy", "english"}


def names(report: str) -> set[str]:
    """What the lines of a report are about."""
    return {line.split(maxsplit=1)[1].partition(":")[0] for line in report.splitlines()}

"""The commands that people and CI type."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (
    *("venv", "venv-all", "demo", "up", "test", "test-all", "long", "chaos", "bench"),
    *("check", "lock", "clean", "doctor", "venv-cosyvoice"),
)


def dry_run(target: str, *variables: str) -> str:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target, *variables],
        cwd=ROOT,
        # The make that runs these tests must not speak through to this one.
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_exists(target: str) -> None:
    assert dry_run(target)


def test_the_environment_is_installed_from_the_lock_with_hashes() -> None:
    commands = dry_run("venv")

    assert "--require-hashes --requirement requirements/venv.txt" in commands
    assert "torch" not in commands


def test_torch_is_installed_at_an_exact_version_and_only_with_everything() -> None:
    assert "'torch==" in dry_run("venv-all")


@pytest.mark.parametrize("target", ["up", "doctor"])
def test_an_engine_is_chosen_by_variables_of_make(target: str) -> None:
    *_, plain = dry_run(target).splitlines()
    chosen = dry_run(target, "ENGINE=cosyvoice", "MODEL_DIR=/srv/m", "COSYVOICE_DIR=/srv/c")

    assert "VOICEMILL_" not in plain
    assert "VOICEMILL_ENGINE='cosyvoice'" in chosen
    assert """VOICEMILL_ENGINE_OPTIONS='{"checkout": "/srv/c", "model_dir": "/srv/m"}'""" in chosen
    with_voices = dry_run(target, "ENGINE=cosyvoice", "VOICES_DIR=/srv/v")
    assert """"voices_dir": "/srv/v"}'""" in with_voices
    assert "VOICEMILL_ENGINE_OPTIONS" not in dry_run(target, "ENGINE=tone")


def test_the_python_of_cosyvoice_is_made_apart_with_the_parts_that_are_asked_for() -> None:
    made = dry_run("venv-cosyvoice", "COSYVOICE_DIR=/srv/c", "PARTS=torch trt")

    assert "--checkout '/srv/c' --venv .venv-cosyvoice" in made
    assert "--python 'python3.10' --parts 'torch trt'" in made


def test_clean_removes_whatever_git_is_told_not_to_keep_but_what_is_a_persons_own() -> None:
    made, _, own = (ROOT / ".gitignore").read_text("utf-8").partition("# Of one machine")
    ignored = {line.strip("/") for line in made.splitlines() if line.startswith("/")}

    removed = set(dry_run("clean").split())

    assert {".venv", ".venv-cosyvoice", ".demo", "out"} <= ignored <= removed
    assert not {line.strip("/") for line in own.splitlines() if line} & removed


@pytest.mark.parametrize("script", ["scripts/check", "scripts/lock", ".ci/run"])
def test_each_shell_script_can_be_read_and_run(script: str) -> None:
    shell = (ROOT / script).read_text("utf-8").splitlines()[0].split("/")[-1].split()[-1]

    subprocess.run([shell, "-n", ROOT / script], check=True)

    assert os.access(ROOT / script, os.X_OK)

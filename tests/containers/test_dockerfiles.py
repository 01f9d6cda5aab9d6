"""The images: small, pinned, not root, and stopped by the signal they are sent."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.images import (
    COSYVOICE,
    DOCKERFILES,
    ROOT,
    Stage,
    services,
    stages,
    structure,
)
from worker.engines.cosy.packages import PARTS

TARGETS = [("api/Dockerfile", "final"), (COSYVOICE, "final")] + [
    ("worker/Dockerfile", target) for target in ("cpu", "gpu", "flower")
]


@pytest.fixture(params=TARGETS, ids=lambda param: f"{Path(param[0]).parent.name}-{param[1]}")
def image(request: pytest.FixtureRequest) -> Stage:
    """Each image that is started."""
    dockerfile, target = request.param
    return stages(dockerfile)[target]


def test_every_target_that_compose_builds_is_tested_here() -> None:
    built = {
        (one["build"]["dockerfile"], one["build"].get("target", "final"))
        for one in services().values()
        if "build" in one
    }

    assert built == set(TARGETS)


def test_an_image_does_not_run_as_root(image: Stage) -> None:
    assert image.user == "voicemill"
    assert any("--uid 10001" in run for run in image.runs)


def test_an_entry_point_is_no_shell_so_that_signals_arrive(image: Stage) -> None:
    assert image.shell_forms == []
    assert image.entrypoint[0] in {"gunicorn", "celery"}


@pytest.mark.parametrize(("dockerfile", "target"), TARGETS)
def test_an_image_takes_its_packages_from_a_stage_that_checks_their_hashes(
    dockerfile: str, target: str
) -> None:
    known = stages(dockerfile)
    (packages,) = [one for one in known[target].copied_from if one.startswith("packages")]

    (install,) = known[packages].runs

    assert "--require-hashes --requirement /tmp/" in install
    (lock,) = known[packages].sources
    assert (ROOT / lock).is_file()


def test_the_output_folder_belongs_to_the_user_of_the_image(image: Stage) -> None:
    folder = image.env["VOICEMILL_OUTPUT_DIR"]

    assert any(
        "install --directory --owner voicemill" in run and folder in run for run in image.runs
    )


def test_what_an_image_copies_exists(image: Stage) -> None:
    assert [source for source in image.sources if not (ROOT / source).exists()] == []


def test_the_api_image_has_no_worker_code_and_the_worker_image_no_api() -> None:
    assert stages("api/Dockerfile")["final"].sources == ["voicemill", "api"]
    for target in ("cpu", "gpu", "flower"):
        sources = stages("worker/Dockerfile")[target].sources
        assert sources == ["voicemill", "worker", "celeryconfig.py"]
    assert stages(COSYVOICE)["final"].sources == ["voicemill", "worker", "celeryconfig.py"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_base_images_are_pinned_by_a_tag_that_names_a_version(dockerfile: str) -> None:
    known = stages(dockerfile)
    bases = {stage.parent for stage in known.values() if stage.parent not in known}

    assert bases
    assert all(re.fullmatch(r"python:3\.1[0-3]-slim-\w+", base) for base in bases)


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_a_dockerfile_holds_no_secret_and_fetches_nothing_by_hand(dockerfile: str) -> None:
    values = [one["value"] for one in structure(dockerfile)]

    added = [one["value"] for one in structure(dockerfile) if one["instruction"] == "ADD"]
    # By the builder itself, at a commit, with its submodules.
    upstream = "https://github.com/FunAudioLLM/CosyVoice.git#${COSYVOICE_COMMIT} /opt/CosyVoice"
    assert added == ([upstream] if dockerfile == COSYVOICE else [])
    assert not re.search(r"curl|wget|password|git clone|sudo", " ".join(values), re.IGNORECASE)


def test_the_python_of_cosyvoice_is_the_oldest_one_and_has_all_of_its_files() -> None:
    known = stages(COSYVOICE)
    image = known["final"]

    assert known["cosyvoice"].parent == "oldest"
    assert known["oldest"].parent.startswith("python:3.10-")
    assert "/opt/cosyvoice" in known["cosyvoice"].runs[-1]
    assert image.env["VOICEMILL_ENGINE_PYTHON"] == "/opt/cosyvoice/bin/python"
    copied = [one["value"] for one in structure(COSYVOICE) if one["instruction"] == "COPY"]
    for name in ("bin/python3.10", "lib/libpython3.10.so.1.0", "lib/python3.10"):
        assert f"--from=oldest /usr/local/{name} /usr/local/{name}" in copied
    assert "ldconfig" in image.runs


def test_what_makes_the_python_of_cosyvoice_runs_from_what_is_copied_for_it(
    tmp_path: Path,
) -> None:
    stage = stages(COSYVOICE)["cosyvoice"]
    folder = tmp_path / "worker/engines/cosy"
    folder.mkdir(parents=True)
    for source in stage.sources:
        shutil.copy(ROOT / source, folder)
    asked = stage.runs[-1].split()

    done = subprocess.run(
        [sys.executable, "-S", *asked[asked.index("-m") : asked.index("-m") + 2], "--help"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for flag in ("--checkout", "--venv", "--parts"):
        assert flag in asked
        assert flag in done.stdout
    defaults = [one["value"] for one in structure(COSYVOICE) if one["instruction"] == "ARG"]
    assert f"COSYVOICE_PARTS={next(iter(PARTS))}" in defaults


def test_the_builder_is_sent_only_what_images_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = {
        source
        for dockerfile in DOCKERFILES
        for stage in stages(dockerfile).values()
        for source in stage.sources
    }

    assert rules[0] == "*"
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {source.split("/")[0] for source in copied} == sent

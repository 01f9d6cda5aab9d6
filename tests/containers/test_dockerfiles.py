"""The images: small, pinned, not root, and stopped by the signal they are sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.containers.images import DOCKERFILES, ROOT, Stage, services, stages, structure

TARGETS = [("api/Dockerfile", "final")] + [
    ("worker/Dockerfile", target) for target in ("cpu", "gpu", "flower")
]


@pytest.fixture(params=TARGETS, ids=lambda param: f"{Path(param[0]).parent}-{param[1]}")
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


def test_an_image_takes_its_packages_from_a_stage_that_checks_their_hashes(image: Stage) -> None:
    dockerfile = "api/Dockerfile" if "api" in image.sources else "worker/Dockerfile"
    (packages,) = image.copied_from

    (install,) = stages(dockerfile)[packages].runs

    assert "--require-hashes --requirement /tmp/" in install
    (lock,) = stages(dockerfile)[packages].sources
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


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_base_images_are_pinned_by_a_tag_that_names_a_version(dockerfile: str) -> None:
    known = stages(dockerfile)
    bases = {stage.parent for stage in known.values() if stage.parent not in known}

    assert bases
    assert all(re.fullmatch(r"python:3\.1[1-3]-slim-\w+", base) for base in bases)


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_a_dockerfile_holds_no_secret_and_fetches_nothing_by_hand(dockerfile: str) -> None:
    values = [one["value"] for one in structure(dockerfile)]

    assert not [one for one in structure(dockerfile) if one["instruction"] == "ADD"]
    assert not re.search(r"curl|wget|password|git clone|sudo", " ".join(values), re.IGNORECASE)


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

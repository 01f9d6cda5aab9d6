"""What is installed when somebody installs Voicemill."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_wheel_holds_voicemill_and_nothing_else(wheel: Path) -> None:
    folders = {PurePosixPath(name).parts[0] for name in names_in(wheel)}

    assert {one for one in folders if not one.endswith(".dist-info")} == {"voicemill"}


def test_the_wheel_misses_no_file_of_the_package(wheel: Path) -> None:
    files = (path for path in (ROOT / "voicemill").rglob("*") if path.is_file())
    expected = {
        path.relative_to(ROOT).as_posix() for path in files if path.parent.name != "__pycache__"
    }

    packaged = {name for name in names_in(wheel) if name.startswith("voicemill/")}

    assert packaged == expected
    assert "voicemill/py.typed" in packaged
    assert any(name.endswith(".lua") for name in packaged)


def test_the_wheel_carries_its_licence_and_notice(wheel: Path) -> None:
    licences = {PurePosixPath(name).name for name in names_in(wheel) if "/licenses/" in name}

    assert licences == {"LICENSE", "NOTICE"}
    assert metadata_of(wheel)["License-Expression"] == "Apache-2.0"


def test_a_base_install_needs_an_http_client_and_a_progress_bar_only(wheel: Path) -> None:
    requirements = [Requirement(text) for text in metadata_of(wheel).get_all("Requires-Dist", [])]

    base = {one.name for one in requirements if one.marker is None}

    assert base == {"httpx", "rich"}


def test_the_version_is_that_of_the_package(wheel: Path) -> None:
    import voicemill

    assert metadata_of(wheel)["Version"] == voicemill.__version__


def test_no_distribution_offers_our_application_folders() -> None:
    offered = packages_distributions()

    assert {"api", "worker", "scripts", "celeryconfig"} & offered.keys() == set()


@pytest.mark.full
def test_the_client_and_the_bulk_tool_run_in_a_venv_that_has_the_wheel_alone(
    wheel: Path, tmp_path: Path
) -> None:
    python = str(tmp_path / "venv/bin/python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True)
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in [ROOT / "voicemill/client.py", *(ROOT / "voicemill/bulk").glob("[!_]*.py")]
    )

    code = f"import {', '.join(modules)}"
    done = subprocess.run(
        [python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert len(modules) > 3
    assert done.returncode == 0, done.stderr
    listed = [python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"]
    installed = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert not {"redis", "celery", "flask", "torch", "numpy"} & {
        line.partition("==")[0] for line in installed.splitlines()
    }

"""The locks: exact, hashed, without addresses, without torch, and of one mind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? \\\n"
    r"(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)


def entries(lock: Path) -> list[re.Match[str]]:
    return list(ENTRY.finditer(lock.read_text("utf-8")))


def versions(lock: Path) -> dict[str, set[str]]:
    """Versions of each package; more than one where Pythons differ."""
    found: dict[str, set[str]] = {}
    for entry in entries(lock):
        found.setdefault(entry["name"], set()).add(entry["version"])
    return found


def requirements_of(extras: list[str], groups: list[str]) -> list[Requirement]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    texts = [*pyproject["project"]["dependencies"]]
    for extra in extras:
        texts += pyproject["project"]["optional-dependencies"][extra]
    for group in groups:
        texts += pyproject["dependency-groups"][group]
    return [one for one in map(Requirement, texts) if one.name != "voicemill"]


def test_the_locks_are_those_the_makefile_and_the_images_use() -> None:
    names = {lock.name for lock in LOCKS}

    assert names == {
        *("pip.txt", "venv.txt", "full.txt", "gpl.txt"),
        *("api.txt", "worker.txt", "worker-gpu.txt", "flower.txt"),
    }


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_line_of_a_lock_is_an_exact_version_with_its_hashes(lock: Path) -> None:
    text = lock.read_text("utf-8")

    rest = re.sub(r"^ *#.*\n", "", ENTRY.sub("", text), flags=re.MULTILINE)

    assert entries(lock)
    assert rest.strip() == ""


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_address_and_no_torch(lock: Path) -> None:
    text = lock.read_text("utf-8")

    assert "://" not in text
    assert not {"torch", "torchvision", "torchaudio", "triton"} & versions(lock).keys()
    assert not [name for name in versions(lock) if name.startswith("nvidia-c")]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_agrees_with_the_one_the_tests_run_on(lock: Path) -> None:
    tested = versions(ROOT / "requirements/full.txt")

    assert {
        name: found
        for name, found in versions(lock).items()
        if not found <= tested.get(name, found)
    } == {}


@pytest.mark.parametrize(
    ("lock", "extras", "groups"),
    [
        (
            "venv.txt",
            ["server", "api", "worker", "hibari", "embedded", "flower"],
            ["test", "lint"],
        ),
        (
            "full.txt",
            ["server", "api", "worker", "hibari", "embedded", "flower", "transformers"],
            ["test", "lint", "recognition", "maintain"],
        ),
        ("gpl.txt", ["piper", "kokoro"], ["voices"]),
        ("api.txt", ["server", "api"], []),
        ("worker.txt", ["server", "worker", "hibari"], []),
        ("worker-gpu.txt", ["server", "worker", "transformers"], []),
        ("flower.txt", ["server", "flower"], []),
    ],
)
def test_a_lock_satisfies_what_pyproject_asks_for(
    lock: str, extras: list[str], groups: list[str]
) -> None:
    locked = versions(ROOT / "requirements" / lock)

    unsatisfied = [
        str(wanted)
        for wanted in requirements_of(extras, groups)
        if not any(
            wanted.specifier.contains(version)
            for version in locked.get(canonicalize_name(wanted.name), ())
        )
    ]

    assert unsatisfied == []


def test_the_api_image_gets_no_engine_and_the_worker_image_no_web_server() -> None:
    assert (
        not {"numpy", "onnxruntime", "soundfile"} & versions(ROOT / "requirements/api.txt").keys()
    )
    assert not {"flask", "gunicorn"} & versions(ROOT / "requirements/worker.txt").keys()


def test_what_is_under_the_gpl_is_in_a_lock_of_its_own() -> None:
    known = {"piper-tts", "kokoro-onnx", "phonemizer", "espeakng-loader"}
    found = {lock.name: known & versions(lock).keys() for lock in LOCKS}
    assert found.pop("gpl.txt") == known
    assert set().union(*found.values()) == set()


def test_the_flower_image_gets_none_of_the_worker_s_own_packages() -> None:
    own = {one.name for one in requirements_of(["worker", "hibari"], [])}

    assert {"numpy", "soundfile", "psutil"} <= own
    assert own & versions(ROOT / "requirements/flower.txt").keys() <= {"httpx", "rich", "tzlocal"}


WITHOUT = """
import json, sys

absent = set(json.loads(sys.argv[1]))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import flower.command
from worker.app import app

app.loader.import_default_modules()
print(*(name for name in app.tasks if name.startswith("voicemill.")))
"""


def test_the_lock_of_flower_has_all_that_its_page_imports_from_the_worker() -> None:
    locked = versions(ROOT / "requirements/flower.txt").keys()
    absent = [
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & locked
    ]
    assert {"flask", "pytest"} <= set(absent)

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(absent)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["voicemill.synthesize"]


def make_package(folder: Path, name: str, metadata: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{metadata}")


@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [
        ("License-Expression: MIT\n", "0 refused"),
        ("License-Expression: LGPL-2.1-or-later\n", "0 refused"),
        ("License-Expression: GPL-2.0-only OR MIT\n", "0 refused"),
        ("License-Expression: GPL-3.0-or-later\n", "sample: GPL-3.0-or-later"),
        ("License-Expression: AGPL-3.0-only\n", "sample: AGPL-3.0-only"),
        (
            "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)\n",
            "sample: GNU General Public License v3 (GPLv3)",
        ),
        ("License: GPLv3\n", "sample: GPLv3"),
        ("", "sample: names no licence"),
    ],
)
def test_the_licence_check_refuses_the_gpl_and_the_unknown(
    tmp_path: Path, metadata: str, verdict: str
) -> None:
    make_package(tmp_path / "packages", "sample", metadata)
    lock = tmp_path / "lock.txt"
    lock.write_text("sample==1.0 \\\n    --hash=sha256:00\n")

    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/licences.py"), str(lock)],
        env={"PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert verdict in done.stdout
    assert done.returncode == (0 if verdict == "0 refused" else 1), done.stderr

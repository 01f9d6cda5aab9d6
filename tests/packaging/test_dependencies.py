"""What pyproject.toml declares is what the code imports, folder by folder."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OURS = {"voicemill", "api", "worker", "scripts", "celeryconfig"}

BROUGHT_ALONG = {
    "billiard": "celery",
    "pydantic-core": "pydantic",
    "typing-extensions": "pydantic",
    "werkzeug": "flask",
    "jinja2": "flask",
    "torch": "voicemill[torch]",
}
"""Imported by us, and promised by a package we declare (or, torch, by the extra beside it)."""

OPTIONAL = {"piper": ["piper-tts"]}
"""Owners of modules that `make venv` does not install, where the name is another one."""

NOT_IMPORTED = {"gunicorn", "flower", "flask-swagger-ui"}
"""Declared, and started as a program or served as files."""


@cache
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def declared(*extras: str) -> set[str]:
    """Packages of a base install with these extras, without what they depend on."""
    texts = [*project()["dependencies"]]
    for extra in extras:
        texts += project()["optional-dependencies"][extra]
    found: set[str] = set()
    for one in map(Requirement, texts):
        found |= declared(*one.extras) if one.name == "voicemill" else {canonicalize_name(one.name)}
    return found


@cache
def owners_of_modules() -> Mapping[str, list[str]]:
    return packages_distributions()


def imported(*folders: str) -> set[str]:
    """Distributions that the modules of these folders import, other than at type checking."""
    names = set()
    for folder in folders:
        path = ROOT / folder
        for module in path.rglob("*.py") if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(module.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module.partition(".")[0])
    owners = {**OPTIONAL, **owners_of_modules()}
    return {
        canonicalize_name(owners.get(name, [name])[0])
        for name in names - OURS - sys.stdlib_module_names
    }


@pytest.mark.parametrize(
    ("folders", "extras"),
    [
        (("voicemill/client.py", "voicemill/transport.py", "voicemill/bulk"), ()),
        (("voicemill",), ("server",)),
        (("api",), ("api",)),
        (("celeryconfig.py",), ("server",)),
        (("worker",), ("worker", "hibari", "transformers", "piper", "kokoro", "verify")),
    ],
    ids=["base", "core", "api", "celeryconfig", "worker"],
)
def test_everything_that_is_imported_is_declared(
    folders: tuple[str, ...], extras: tuple[str, ...]
) -> None:
    undeclared = imported(*folders) - declared(*extras)

    assert undeclared <= BROUGHT_ALONG.keys()


def test_everything_that_is_declared_is_used() -> None:
    used = imported("voicemill", "api", "worker", "scripts", "celeryconfig.py")

    assert declared("all") - used <= NOT_IMPORTED


def test_all_is_free_of_what_is_under_the_gpl() -> None:
    assert not {"piper-tts", "kokoro-onnx", "phonemizer"} & declared("all")


def test_the_seven_packages_of_the_product_stand_in_its_extras() -> None:
    product = {"torch", "celery", "redis", "flask", "soundfile", "nvidia-ml-py", "flower"}

    assert product <= declared("all")


@pytest.mark.parametrize("extra", ["server", "api", "worker", "torch", "flower", "piper", "all"])
def test_each_named_extra_exists(extra: str) -> None:
    assert declared(extra) > declared()


def test_each_dependency_says_what_it_is_for() -> None:
    lines = (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
    start = lines.index("dependencies = [")
    end = lines.index("[dependency-groups]")
    entries = [n for n in range(start, end) if lines[n].startswith('    "')]
    bare = [
        lines[n].strip()
        for n in entries
        if "#" not in lines[n]
        and "voicemill[" not in lines[n]
        # The pinned group shares the comment above it.
        and not any(pinned in lines[n] for pinned in ("celery", "kombu", "billiard"))
    ]

    assert bare == []

"""Which part may load what. Each import is made in a process of its own."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BASE = (
    "errors",
    "parsers",
    "settings",
    "formats",
    "jobs",
    "limits",
    "fairness",
    "tenants",
    "voices",
    "outputs",
    "costs",
    "logs",
    "transport",
    "client",
    "bulk",
)
"""Modules of the base install; ``bulk`` with all it holds."""
SERVER = {"flask", "werkzeug", "celery", "kombu", "redis", "pydantic", "pynvml", "psutil"}
ENGINES = {"torch", "transformers", "onnxruntime", "hibari", "hibari_tts", "ctranslate2"}
AUDIO = {"numpy", "soundfile", "soxr", "scipy"}

LOADED = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(*modules: str) -> set[str]:
    """Top-level packages in memory after these imports, in a fresh process."""
    ended = subprocess.run(
        [sys.executable, "-c", LOADED, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


def modules_of(package: str) -> list[str]:
    """Every module below a folder, by its dotted name; not the folder itself."""
    paths = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names if name != f"{package}.__init__"]


def imports_of(path: Path) -> set[str]:
    """Top-level packages that a file imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_the_base_install_loads_neither_server_nor_engine() -> None:
    modules = [
        name
        for name in modules_of("voicemill")
        if name.split(".")[1:2] and name.split(".")[1] in BASE
    ]
    assert {name.split(".")[1] for name in modules} == set(BASE)
    assert loaded_by(*modules) & (SERVER | ENGINES | AUDIO) == set()


def test_the_store_loads_redis_and_no_celery() -> None:
    assert loaded_by("voicemill.store", "voicemill.health") & (SERVER | ENGINES) == {"redis"}


def test_the_core_never_loads_flask_or_an_engine() -> None:
    assert (
        loaded_by(*modules_of("voicemill")) & (ENGINES | {"flask", "werkzeug", "pydantic"}) == set()
    )


def test_the_api_loads_no_worker_no_engine_and_no_audio_code() -> None:
    assert loaded_by(*modules_of("api")) & (ENGINES | AUDIO | {"worker", "pynvml"}) == set()


def test_celery_s_parent_loads_no_engine() -> None:
    loaded = loaded_by("worker.app", "worker.tasks", "worker.pool", "worker.process")
    assert loaded & (ENGINES | {"flask", "api"}) == set()


def test_the_clerk_loads_no_engine_and_no_audio_code_until_it_joins_or_judges() -> None:
    assert loaded_by("worker.clerk") & (ENGINES | AUDIO | {"flask", "api"}) == set()


def test_the_celery_settings_load_no_worker() -> None:
    assert loaded_by("celeryconfig") & (ENGINES | AUDIO | {"worker", "api", "flask"}) == set()


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("voicemill", {"api", "worker", "scripts", "flask", "werkzeug", "torch", "onnxruntime"}),
        ("api", {"worker", "scripts", "celery", "kombu", "redis", "torch", "numpy", "soundfile"}),
        ("worker", {"api", "scripts", "flask", "werkzeug"}),
        ("scripts", {"api", "worker", "flask", "celery", "torch"}),
    ],
)
def test_no_file_of_a_folder_imports_what_is_none_of_its_business(
    folder: str, forbidden: set[str]
) -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in (ROOT / folder).rglob("*.py")
        if (found := imports_of(path) & forbidden)
    }
    assert wrong == {}


def test_only_engines_import_what_engines_are_made_of() -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for folder in ("voicemill", "api", "worker", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != "engines" and (found := imports_of(path) & ENGINES)
    }
    assert wrong == {}


def test_only_the_store_and_the_queue_import_their_servers() -> None:
    importers = {
        path.relative_to(ROOT / "voicemill").parts[0]
        for path in (ROOT / "voicemill").rglob("*.py")
        if imports_of(path) & {"redis", "celery", "kombu"}
    }
    assert importers == {"store", "queue.py"}


def test_no_installed_package_could_be_taken_for_ours() -> None:
    offered = importlib.metadata.packages_distributions()
    assert {"api", "worker", "scripts", "celeryconfig"} & set(offered) == set()


def test_no_test_folder_is_a_package() -> None:
    """An ``__init__.py`` in ``tests/api`` would hide the real ``api``."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []

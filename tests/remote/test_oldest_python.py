"""What runs in another Python keeps to the oldest one, and needs numpy alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pythons import venv
from worker.engines import BUILT_IN
from worker.remote.interpreter import NEEDS, OLDEST

ROOT = Path(__file__).parents[2]
OTHER_SIDE = ("worker.remote.keeper", "worker.remote.host")
ENGINES = {at.partition(":")[0] for at in BUILT_IN.values()} | {"worker.engines.cosy.build"}
OURS = ("voicemill", "worker")

LOADED = """
import json, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    __import__(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def path_of(module: str) -> Path:
    """The file of one of our modules."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports_of(module: str) -> Iterator[str]:
    """Modules that one imports as it runs, and not for its types alone."""
    tree = ast.parse(path_of(module).read_text("utf-8"))
    hidden = {
        id(node)
        for one in ast.walk(tree)
        if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"
        for node in ast.walk(one)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (one for one in submodules if path_of(one).is_file())


def reached(*modules: str) -> tuple[set[str], set[str]]:
    """Modules of ours that these come to in the end, and packages of others."""
    ours: set[str] = set()
    others: set[str] = set()
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        root = module.partition(".")[0]
        if root not in OURS:
            others.add(root)
        elif module not in ours:
            ours.add(module)
            waiting += [module.rpartition(".")[0]] if "." in module else []
            waiting += imports_of(module)
    return ours, others - sys.stdlib_module_names


def test_the_other_side_needs_numpy_alone() -> None:
    ours, others = reached(*OTHER_SIDE)
    assert others == {NEEDS}
    assert {"worker.engines.base", "voicemill.voices", "voicemill.errors"} < ours
    assert not {"voicemill.settings", "voicemill.jobs", "voicemill.store"} & ours


def test_its_syntax_is_that_of_the_oldest_python() -> None:
    ours, _ = reached(*OTHER_SIDE, *ENGINES)
    assert ours > ENGINES
    for module in sorted(ours):
        ast.parse(path_of(module).read_text("utf-8"), module, feature_version=OLDEST)


@pytest.mark.full
def test_the_types_know_nothing_that_the_oldest_python_lacks(tmp_path: Path) -> None:
    """What came to the library later is unknown to mypy when it checks for that Python."""
    ours, _ = reached(*OTHER_SIDE, *ENGINES)
    files = sorted(str(path_of(module).relative_to(ROOT)) for module in ours)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--follow-imports", "silent"),
            *("--python-version", ".".join(map(str, OLDEST)), *files),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = [line for line in done.stdout.splitlines() if line.startswith(files_of_ours())]
    assert wrong == []


def files_of_ours() -> tuple[str, ...]:
    """How the path of a file of ours begins."""
    return tuple(f"{name}/" for name in OURS)


@pytest.mark.full
def test_the_oldest_python_imports_it_with_numpy_alone() -> None:
    python = venv(".".join(map(str, OLDEST)), NEEDS)
    modules = [*OTHER_SIDE, "worker.engines.tone", "worker.engines.letters"]
    done = subprocess.run(
        [python, "-I", "-c", LOADED, ROOT, *modules], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not {"celery", "redis", "psutil", "pynvml"} & set(json.loads(done.stdout))

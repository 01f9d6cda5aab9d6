"""Names that others use: documented, complete, and one word for one thing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import voicemill
from voicemill import store

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path
    for folder in ("voicemill", "api", "worker", "scripts")
    for path in (ROOT / folder).rglob("*.py")
)
AVOIDED = re.compile(
    r"utterance|speaker|artifact|predict|repository|_dao|chunk_?text", re.IGNORECASE
)
"""Words for which we have another one; ``docs/architecture.md`` has the list."""
FOREIGN = {"worker/engines/transformers.py"}
"""Where the words of a library are used as it uses them."""

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def public_definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Classes and functions of a module, and methods of its classes, that others may call."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                        yield one


@every_file
def test_what_is_public_says_in_one_line_what_it_gives(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    documented = [tree, *public_definitions(tree)]
    silent = [
        getattr(one, "name", "the module") for one in documented if not ast.get_docstring(one)
    ]
    assert silent == []


@every_file
def test_one_concept_has_one_word(path: Path) -> None:
    if str(path.relative_to(ROOT)) in FOREIGN:
        pytest.skip("speaks the language of a library")
    names = {
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert {name for name in names if AVOIDED.search(name)} == set()


def test_the_list_of_public_names_of_the_store_is_sorted_and_complete() -> None:
    tree = ast.parse(Path(store.__file__).read_text("utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert store.__all__ == sorted(store.__all__)
    assert set(store.__all__) == (imported | defined) - {
        "FleetStore",
        "JobStore",
        "TaskStore",
        "TenantStore",
    }


def test_the_version_is_one_that_packages_can_have() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", voicemill.__version__)

"""How the scripts are put together from their parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from voicemill.store import connection
from voicemill.store.connection import USES, script_text

FOLDER = Path(str(connection.SCRIPTS))
NAMES = sorted(
    str(path.relative_to(FOLDER).with_suffix("")) for path in sorted(FOLDER.rglob("*.lua"))
)
MOST_LINES = 250
MOST_LOCALS = 150
"""Lua allows 200 in one function, and a script is one."""
DEFINED = re.compile(r"^local (?:function )?(\w+)", re.MULTILINE)
USED = re.compile(r"(?<![.\w])\w+")
NO_CODE = re.compile(r"--.*|'[^']*'")


def read(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text("utf-8")


HOME = {
    name: part
    for part in NAMES
    if part.startswith("parts/")
    for name in DEFINED.findall(read(part))
}
"""The part that defines a name."""


def homes(name: str) -> set[str]:
    """The parts of which a file uses something."""
    used = USED.findall(NO_CODE.sub("", read(name)))
    return {HOME[one] for one in used if one in HOME} - {name}


def uses(name: str) -> set[str]:
    """The parts that a file says it uses."""
    found = USES.search(read(name))
    return {f"parts/{part}" for part in found[1].split(", ")} if found else set()


def behind(name: str) -> set[str]:
    """Those and what they use in turn."""
    return uses(name).union(*(behind(part) for part in uses(name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_all_that_it_uses_and_nothing_else(name: str) -> None:
    assert homes(name) <= behind(name)
    assert uses(name) <= homes(name)
    implied = {part for used in uses(name) for part in behind(used)}
    assert not uses(name) & implied, "said twice"


@pytest.mark.parametrize("name", NAMES)
def test_a_part_stands_once_and_in_front_of_what_uses_it(name: str) -> None:
    text = script_text(name)
    assert text.endswith(read(name))
    places = {part: text.index(read(part)) for part in behind(name)}
    assert all(text.count(read(part)) == 1 for part in places)
    assert all(places[used] < places[part] for part in places for used in uses(part))


@pytest.mark.parametrize("name", NAMES)
def test_no_file_is_long_and_no_script_nears_the_limit_of_locals(name: str) -> None:
    assert len(read(name).splitlines()) <= MOST_LINES
    assert len(DEFINED.findall(script_text(name))) <= MOST_LOCALS


def test_no_name_is_defined_by_two_parts() -> None:
    parts = [part for part in NAMES if part.startswith("parts/")]
    names = [name for part in parts for name in DEFINED.findall(read(part))]
    assert sorted(names) == sorted(set(names))

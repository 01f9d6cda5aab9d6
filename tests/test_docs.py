"""What is written about Voicemill is true of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

import voicemill.bulk.errors
import voicemill.client
from voicemill.bulk.table import KNOWN_COLUMNS
from voicemill.errors import SynthesisError, leaves
from voicemill.settings import Settings
from worker.engines import BUILT_IN

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#([^)]+))?\)")
VARIABLE = re.compile(r"VOICEMILL_[A-Z_]+")
MAKE = re.compile(r"`make ([a-z-]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def read(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def test_the_tables_are_equal_to_the_code() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "docs.py"), "--check"]
    ended = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_every_setting_is_documented() -> None:
    page = read("docs/settings.md")
    missing = [
        one.name for one in fields(Settings) if f"`VOICEMILL_{one.name.upper()}`" not in page
    ]
    assert missing == []


def test_every_error_code_is_documented() -> None:
    assert voicemill.client
    assert voicemill.bulk.errors
    page = read("docs/errors.md")
    ours = [error for error in leaves() if error.__module__.startswith("voicemill.")]
    assert [error.code for error in ours if f"| `{error.code}` |" not in page] == []


def test_what_the_worker_does_is_told_for_every_error_of_a_synthesis() -> None:
    page = read("docs/engines.md")
    table = page.partition("## What it raises")[2].partition("## One of your own")[0]
    assert [error.code for error in leaves(SynthesisError) if f"`{error.code}`" not in table] == []


def test_every_built_in_engine_is_documented() -> None:
    page = read("docs/engines.md")
    assert [name for name in BUILT_IN if f"| `{name}` |" not in page] == []


@every_page
def test_no_page_names_a_setting_that_does_not_exist(page: Path) -> None:
    known = {f"VOICEMILL_{one.name.upper()}" for one in fields(Settings)}
    compose = set(VARIABLE.findall(read(".env.example")))
    assert set(VARIABLE.findall(page.read_text("utf-8"))) - {"VOICEMILL_"} <= known | compose


@every_page
def test_every_link_to_a_file_of_ours_leads_somewhere(page: Path) -> None:
    broken = [
        target
        for target, _ in LINK.findall(FENCE.sub("", page.read_text("utf-8")))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


@every_page
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    assert set(MAKE.findall(page.read_text("utf-8"))) <= targets


@pytest.mark.parametrize(
    "name",
    [
        *("settings", "errors", "architecture", "decisions", "operations", "failures"),
        *("cosyvoice", "quickstart-cosyvoice"),
    ],
)
def test_the_readme_leads_to_every_page(name: str) -> None:
    assert f"(docs/{name}.md)" in read("README.md")


def code_of(page: str) -> list[str]:
    """What a page shows in code, in its order: blocks, with how they are marked to be run."""
    return re.findall(r"^(?:<!--[^\n]*-->\n)?```.*?^```$", read(page), re.MULTILINE | re.DOTALL)


def inline_code_of(page: str) -> Counter[str]:
    """Commands, paths and names within its sentences, each as often as it is there."""
    return Counter(re.findall(r"`[^`\n]+`", FENCE.sub("", read(page))))


def test_the_chinese_readme_has_the_same_commands_and_leads_to_the_same_pages() -> None:
    english, chinese = "README.md", "README.zh-CN.md"
    assert len(code_of(english)) == 7
    assert code_of(chinese) == code_of(english)
    assert inline_code_of(chinese) == inline_code_of(english)
    pages = [
        Counter(target for target, _ in LINK.findall(read(page))) for page in (english, chinese)
    ]
    own = Counter({chinese: 1}), Counter({english: 1})
    assert pages[0] - own[0] == pages[1] - own[1]


def test_the_first_screen_of_the_readme_shows_how_to_begin() -> None:
    screen = "\n".join(read("README.md").splitlines()[:60])
    for needed in ("make demo", "make test", "curl", "AsyncResult", ".get()"):
        assert needed in screen, needed


@pytest.mark.parametrize(("language", "name"), [("sh", "curl"), ("python", "python")])
def test_the_blocks_that_are_run_elsewhere_can_be_found(language: str, name: str) -> None:
    found = re.findall(rf"^<!-- run: {name} -->\n```{language}\n", read("README.md"), re.MULTILINE)
    assert len(found) == 1


def test_the_readme_names_every_column_of_the_csv() -> None:
    page = read("README.md")
    assert [column for column in KNOWN_COLUMNS if f"`{column}`" not in page] == []


def test_the_state_machines_in_the_architecture_are_those_of_the_code() -> None:
    from voicemill.jobs import ITEM_TRANSITIONS, JOB_TRANSITIONS

    page = read("docs/architecture.md")
    for heading, table in (("### Jobs", JOB_TRANSITIONS), ("### Items", ITEM_TRANSITIONS)):
        section = page.partition(heading)[2].partition("\n##")[0]
        drawn = set(re.findall(r"^\s*(\w+) --> (\w+)$", section, re.MULTILINE))
        assert drawn == {(a.value, b.value) for a, after in table.items() for b in after}


def test_every_row_of_the_fault_table_names_a_test_that_exists() -> None:
    page = read("docs/failures.md")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    faults = [row for row in rows if not row.startswith(("| What fails", "| ---"))]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)` \|$", row) for row in faults]
    assert [row for row, tests in zip(faults, named, strict=True) if len(tests) != 1] == []
    missing = [
        (file, test)
        for ((file, test),) in named
        if not re.search(rf"^def {test}\(", read(file), re.MULTILINE)
    ]
    assert missing == []
    assert len(faults) > 30

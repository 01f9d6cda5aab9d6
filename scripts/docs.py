"""Write the tables of docs/settings.md and docs/errors.md from the code; ``--check`` only looks.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; the rest is written by hand.
Exits 1 when ``--check`` finds a table that differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from voicemill.bulk.errors import BulkError
from voicemill.client import ClientError
from voicemill.errors import (
    AudioGoneError,
    ConcatenationError,
    InputError,
    OutputError,
    QueueFullError,
    RequestError,
    SettingsError,
    StoreRefusedError,
    StoreUnavailableError,
    SynthesisError,
    VoicemillError,
    leaves,
)
from voicemill.settings import PREFIX, Settings

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- end -->"
DEPENDS_ON_MACHINE = {"workers": "one per core"}
"""Defaults that the code computes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 on a difference"
    )
    check = parser.parse_args(argv).check
    stale = [path for path in documents() if filled(path) != path.read_text("utf-8")]
    for path in stale:
        print(f"{path.name} {'differs from the code; run scripts/docs.py' if check else 'written'}")
        if not check:
            path.write_text(filled(path), "utf-8")
    return 1 if stale and check else 0


def documents() -> list[Path]:
    """The files that hold tables."""
    return [DOCS / "settings.md", DOCS / "errors.md"]


def filled(path: Path) -> str:
    """The text of a document with its tables as the code has them now."""
    text = path.read_text("utf-8")
    for name, table in tables().items():
        text = between(text, f"<!-- table {name} -->", table)
    return text


def between(text: str, begin: str, table: str) -> str:
    """The text with a table between that line and the next end, where it has that line."""
    before, line, rest = text.partition(begin)
    return f"{before}{line}\n\n{table}\n\n{END}{rest.partition(END)[2]}" if line else text


def tables() -> dict[str, str]:
    """Every table by its name."""
    request = [one for one in leaves(RequestError)]
    store = [StoreUnavailableError, StoreRefusedError, QueueFullError]
    return {
        "settings": settings_table(),
        "problems": error_table([*request, *store, VoicemillError], with_status=True),
        "inputs": error_table(leaves(InputError), with_status=False),
        "synthesis": error_table(leaves(SynthesisError), with_status=False),
        "concatenation": error_table(
            [*leaves(ConcatenationError), AudioGoneError, OutputError], with_status=False
        ),
        "local": error_table(
            [SettingsError, *leaves(ClientError), *leaves(BulkError)], with_status=False
        ),
    }


def settings_table() -> str:
    """Every setting: variable, default, what it takes, what it is for."""
    rows = [
        (
            f"`{PREFIX}{one.name.upper()}`",
            DEPENDS_ON_MACHINE.get(one.name) or f"`{one.metadata['default']}`",
            first_line(one.metadata["parse"].__doc__),
            one.metadata["doc"],
        )
        for one in fields(Settings)
    ]
    return table(("Variable", "Default", "Takes", "Meaning"), rows)


def error_table(errors: Iterable[type[VoicemillError]], *, with_status: bool) -> str:
    """Every error: code, perhaps its HTTP status, whether to try again, what it means."""
    rows = []
    for one in errors:
        status = [str(one.http_status)] if with_status else []
        again = "yes" if one.retryable else "no"
        # A class with others below it is documented as their root; its title says what it means.
        meaning = f"{one.title}." if one.__subclasses__() else first_line(one.__doc__)
        rows.append([f"`{one.code}`", *status, again, meaning])
    status = ["Status"] if with_status else []
    return table(["Code", *status, "Try again", "Meaning"], rows)


def first_line(text: str | None) -> str:
    """The first line of a docstring, code marked as Markdown does."""
    return (text or "").strip().splitlines()[0].replace("``", "`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())

"""What benchmarks print of their figures, and write into the docs where they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.docs import DOCS, between, table

PAGE = DOCS / "performance.md"
NONE = "-"


def shown(value: float | str | None, places: int = 1) -> str:
    """A cell."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else f"{value:.{places}f}"


def show(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], page: Path | None = None
) -> None:
    """Print a table, and put it into a page that has ``<!-- figures NAME -->``."""
    written = table(head, rows)
    print(f"\n{written}", flush=True)
    if page is not None:
        page.write_text(between(page.read_text("utf-8"), f"<!-- figures {name} -->", written))

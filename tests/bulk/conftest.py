"""The wire double, and a bulk run against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bulk.wire_double import WireDouble


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[WireDouble]:
    """A server that keeps the wire and nothing else."""
    with WireDouble(tmp_path / "server") as double:
        yield double

"""Host memory of this process and of what it may use."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from worker.memory import allowed_bytes, resident_bytes

MACHINE = psutil.virtual_memory().total


def test_what_a_process_takes_shows() -> None:
    before = resident_bytes()
    taken = bytearray(b"x" * (64 * 2**20))
    assert resident_bytes() - before > 48 * 2**20
    assert len(taken) == 64 * 2**20


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [("1048576\n", 1048576), ("max\n", MACHINE), (f"{MACHINE * 2}", MACHINE), ("", MACHINE)],
)
def test_the_cgroup_allows_no_more_than_it_says(tmp_path: Path, limit: str, allowed: int) -> None:
    file = tmp_path / "memory.max"
    file.write_text(limit)
    assert allowed_bytes(file) == allowed


def test_without_a_cgroup_it_is_the_machine_s(tmp_path: Path) -> None:
    assert allowed_bytes(tmp_path / "nothing") == MACHINE

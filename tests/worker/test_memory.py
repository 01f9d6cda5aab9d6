"""Host memory of this process and of what it may use."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from worker.memory import allowed_bytes, available_bytes, resident_bytes

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
    (tmp_path / "memory.max").write_text(limit)
    assert allowed_bytes(tmp_path) == allowed


def test_without_a_cgroup_it_is_the_machine_s(tmp_path: Path) -> None:
    assert allowed_bytes(tmp_path) == MACHINE
    assert 0 < available_bytes(tmp_path) < MACHINE


def test_what_is_available_is_left_of_the_cgroup_s_limit_with_what_the_kernel_gives_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    assert available_bytes(tmp_path) == 100
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 300\nactive_file 100\n")
    assert available_bytes(tmp_path) == 400
    (tmp_path / "memory.current").write_text("2000\n")
    assert available_bytes(tmp_path) == 0

"""How many cores a process may use, and the threads that leaves for a child."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from voicemill.cgroup import core_quotas
from voicemill.cores import cores_within, threads_for, usable_cores

ROOT = Path(__file__).parents[2]


def test_the_cpuset_of_a_process_counts_and_not_the_machine() -> None:
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "from voicemill.settings import Settings\n"
        "print(Settings.from_env({}).workers)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("cores", "quotas", "left"),
    [(8, [], 8), (8, [2.0], 2), (8, [2.5, 4.0], 3), (2, [16.0], 2), (8, [0.2], 1)],
)
def test_a_quota_of_time_counts_as_cores_and_the_strictest_wins(
    cores: int, quotas: list[float], left: int
) -> None:
    assert cores_within(cores, quotas) == left


@pytest.mark.parametrize(
    ("cores", "children", "threads"), [(8, 1, 8), (8, 3, 2), (8, 8, 1), (2, 5, 1)]
)
def test_children_share_the_cores_and_each_has_one_thread_at_least(
    cores: int, children: int, threads: int
) -> None:
    assert threads_for(cores, children) == threads


def test_the_quotas_of_the_group_and_of_those_above_it_are_read(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("0::/pod/voice\n")
    (tmp_path / "root" / "pod" / "voice").mkdir(parents=True)
    (tmp_path / "root" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "root" / "pod" / "cpu.max").write_text("400000 100000\n")
    (tmp_path / "root" / "pod" / "voice" / "cpu.max").write_text("150000 100000\n")
    assert list(core_quotas(tmp_path / "root", tmp_path / "membership")) == [1.5, 4.0]


def test_the_quota_of_version_1_is_read_and_none_is_no_quota(tmp_path: Path) -> None:
    (tmp_path / "membership").write_text("3:cpu,cpuacct:/voice\n")
    folder = tmp_path / "root" / "cpu"
    (folder / "voice").mkdir(parents=True)
    for place, quota in ((folder, -1), (folder / "voice", 200000)):
        (place / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (place / "cpu.cfs_period_us").write_text("100000\n")
    assert list(core_quotas(tmp_path / "root", tmp_path / "membership")) == [2.0]

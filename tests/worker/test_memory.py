"""Host memory of this process and of what it may use."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from voicemill.cgroup import MemoryGroup, memory_groups
from worker.memory import allowed_bytes, available_bytes, resident_bytes

MACHINE = psutil.virtual_memory().total
NO_LIMIT_IN_V1 = 9223372036854771712


def test_what_a_process_takes_shows() -> None:
    before = resident_bytes()
    taken = bytearray(b"x" * (64 * 2**20))
    assert resident_bytes() - before > 48 * 2**20
    assert len(taken) == 64 * 2**20


def test_no_more_is_allowed_than_the_machine_has_and_less_is_available() -> None:
    assert resident_bytes() < allowed_bytes() <= MACHINE
    assert 0 < available_bytes() < MACHINE


class Machine:
    """The files of one, as far as they speak of control groups."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cgroup"
        self.membership = folder / "membership"

    def is_in(self, *lines: str) -> None:
        self.membership.write_text("".join(f"{line}\n" for line in lines))

    def has(self, path: str, **files: object) -> None:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(f"{content}\n")

    def groups(self) -> list[MemoryGroup]:
        return list(memory_groups(self.root, self.membership))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_group_of_version_2_and_those_above_it_count(machine: Machine) -> None:
    machine.is_in("0::/system.slice/voice.service")
    machine.has("system.slice/voice.service", memory__max=1000, memory__current=900)
    machine.has("system.slice", memory__max="max", memory__current=5000)
    machine.has("", memory__max=7000, memory__current=6500)
    assert machine.groups() == [MemoryGroup(1000, 900), MemoryGroup(7000, 6500)]
    assert [group.free for group in machine.groups()] == [100, 500]


def test_the_group_of_version_1_counts_too(machine: Machine) -> None:
    machine.is_in("9:name=systemd:/", "4:cpu,memory:/docker/abc", "0::/")
    files = {"memory__limit_in_bytes": 1000, "memory__usage_in_bytes": 700}
    machine.has("memory/docker/abc", **files, memory__stat="cache 9\ntotal_inactive_file 50")
    machine.has("memory", memory__limit_in_bytes=NO_LIMIT_IN_V1, memory__usage_in_bytes=800)
    assert machine.groups()[0] == MemoryGroup(1000, 650)
    assert [group.limit for group in machine.groups()] == [1000, NO_LIMIT_IN_V1]


def test_in_a_container_the_root_is_the_group(machine: Machine) -> None:
    machine.is_in("0::/only/seen/outside")
    machine.has("", memory__max=1000, memory__current=10)
    assert machine.groups() == [MemoryGroup(1000, 10)]


def test_what_the_kernel_gives_back_is_free(machine: Machine) -> None:
    machine.is_in("0::/")
    stat = "anon 500\ninactive_file 300\nactive_file 100"
    machine.has("", memory__max=1000, memory__current=900, memory__stat=stat)
    assert [group.free for group in machine.groups()] == [400]


def test_nothing_is_free_where_more_is_used_than_allowed(machine: Machine) -> None:
    machine.is_in("0::/")
    machine.has("", memory__max=1000, memory__current=2000)
    assert [group.free for group in machine.groups()] == [0]


@pytest.mark.parametrize("limit", ["max", ""])
def test_a_group_without_a_limit_is_none(machine: Machine, limit: str) -> None:
    machine.is_in("0::/")
    machine.has("", memory__max=limit, memory__current=10)
    assert machine.groups() == []


def test_where_there_are_no_control_groups_there_is_no_limit(machine: Machine) -> None:
    assert machine.groups() == []

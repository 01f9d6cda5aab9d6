"""The cores beside a GPU, from a tree as the kernel has it in ``/sys``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stack import ROOT
from tests.gpu.stub import StubDriver
from worker.numa import cores_near, read_list

PCI = "00000000:3B:00.0"
ALL = frozenset(range(16))


def make_tree(root: Path, *, node: str | None, cores: dict[int, str]) -> Path:
    """A machine whose card is on a node, and the cores of its nodes."""
    device = root / "bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    if node is not None:
        (device / "numa_node").write_text(f"{node}\n")
    for number, listed in cores.items():
        folder = root / f"devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{listed}\n")
    return root


TWO = {0: "0-3,8-11", 1: "4-7,12-15"}


@pytest.mark.parametrize(
    ("node", "cores", "allowed", "near"),
    [
        ("1", TWO, ALL, {4, 5, 6, 7, 12, 13, 14, 15}),
        ("0", TWO, frozenset({2, 3, 4, 9}), {2, 3, 9}),
        ("0", TWO, frozenset({4, 5}), set()),
        ("-1", TWO, ALL, set()),
        (None, TWO, ALL, set()),
        ("none", TWO, ALL, set()),
        ("0", {0: "0-15"}, ALL, set()),
        ("0", {0: "0-15", 1: ""}, ALL, set()),
        ("2", TWO, ALL, set()),
        ("0", {}, ALL, set()),
    ],
    ids=[
        *("its node", "of its cpuset", "none of its cpuset", "not known", "no file", "no number"),
        *("one node", "a node of memory alone", "a node that is not there", "no nodes"),
    ],
)
def test_cores_are_those_of_the_card_s_node_that_the_process_may_use(
    node: str | None,
    cores: dict[int, str],
    allowed: frozenset[int],
    near: set[int],
    tmp_path: Path,
) -> None:
    root = make_tree(tmp_path, node=node, cores=cores)
    assert cores_near(PCI, allowed, root) == near


def test_the_domain_of_a_card_has_four_digits_or_more(tmp_path: Path) -> None:
    make_tree(tmp_path, node="1", cores=TWO)
    device = tmp_path / "bus/pci/devices/10000:3b:00.0"
    device.mkdir()
    (device / "numa_node").write_text("0\n")
    assert 0 in cores_near("00010000:3B:00.0", ALL, tmp_path)
    assert cores_near("00000001:3B:00.0", ALL, tmp_path) == frozenset()


def test_a_list_has_numbers_and_ranges() -> None:
    assert read_list("0-2,8\n") == {0, 1, 2, 8}
    assert read_list("\n") == frozenset()


ASK = """
import json, sys
from pathlib import Path
from worker import numa
from worker.devices import Devices
numa.SYS = Path(sys.argv[1])
print(json.dumps([sorted(Devices().cores_near(slot, frozenset({0, 1, 4}))) for slot in (0, 1)]))
"""


def test_each_slot_has_the_cores_beside_its_own_device(
    stub_driver: StubDriver, tmp_path: Path
) -> None:
    root = make_tree(tmp_path / "sys", node="1", cores=TWO)
    stub_driver.add_gpu("GPU-a0")
    stub_driver.add_gpu("GPU-b1").set("pci", "00000000:AF:00.0")
    asked = [sys.executable, "-c", ASK, str(root)]
    env = {"PYTHONPATH": str(ROOT), **stub_driver.env}
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[4], []]
    stub_driver.stop()
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], []]


KEEP = """
import os
from worker.environment import keep_to_cores
keep_to_cores()
print(sorted(os.sched_getaffinity(0)))
"""


@pytest.mark.parametrize("told", ["least", "gone", ""])
def test_a_process_keeps_to_the_cores_that_it_was_told_of_while_it_may_use_them(told: str) -> None:
    allowed = os.sched_getaffinity(0)
    cores = {"least": str(min(allowed)), "gone": "1023", "": ""}[told]
    done = subprocess.run(
        [sys.executable, "-c", KEEP],
        env={"PYTHONPATH": str(ROOT), "VOICEMILL_CORES": cores},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str([min(allowed)] if told == "least" else sorted(allowed))

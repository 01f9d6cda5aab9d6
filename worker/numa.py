"""The cores beside a GPU: memory of another NUMA node is slower to reach from both.

What the kernel tells in ``/sys`` (``Documentation/ABI`` of Linux: ``sysfs-bus-pci``,
``stable/sysfs-devices-node``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SYS = Path("/sys")


def cores_near(pci: str, allowed: frozenset[int], root: Path = SYS) -> frozenset[int]:
    """Of the allowed cores, those of the NUMA node that a PCI device is on.

    None where the node is not known, where there is only one, and where all of its cores are for
    others. ``pci`` is an address as NVML has it, ``00000000:3B:00.0``.
    """
    node = node_of(root / "bus/pci/devices" / address(pci))
    nodes = dict(nodes_with_cores(root / "devices/system/node"))
    return nodes.get(node, frozenset()) & allowed if len(nodes) > 1 else frozenset()


def address(pci: str) -> str:
    """A PCI address as the kernel writes it: a domain of four digits at least, small letters."""
    domain, _, place = pci.lower().partition(":")
    return f"{int(domain, 16):04x}:{place}"


def node_of(device: Path) -> int:
    """The number of its node; -1 where the kernel does not know it."""
    try:
        return int((device / "numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return -1


def nodes_with_cores(folder: Path) -> Iterator[tuple[int, frozenset[int]]]:
    """The nodes of this machine by number; those of memory alone are left out."""
    for path in folder.glob("node[0-9]*/cpulist"):
        cores = read_list(path.read_text("ascii"))
        if cores:
            yield int(path.parent.name.removeprefix("node")), cores


def read_list(text: str) -> frozenset[int]:
    """Numbers and ranges of them, as in ``0-3,8``."""
    ends = [part.strip().split("-") for part in text.split(",") if part.strip()]
    return frozenset(core for one in ends for core in range(int(one[0]), int(one[-1]) + 1))

"""Whether one more child fits beside the others."""

from __future__ import annotations

from voicemill.workers import Footprint
from worker.headroom import MARGIN, FreeMemory, lack_of_room, least_free

MIB = 2**20


def test_a_child_fits_with_a_margin_or_not_at_all() -> None:
    footprint = Footprint(host=100 * MIB)
    assert lack_of_room(footprint, FreeMemory(host=int(100 * MARGIN * MIB))) is None
    lack = lack_of_room(footprint, FreeMemory(host=int(100 * MARGIN * MIB) - 1))
    assert lack == "120 MiB of host memory needed, 120 free"


def test_gpu_memory_is_asked_for_where_both_sides_are_known() -> None:
    wants = Footprint(host=1, gpu=1000 * MIB)
    assert lack_of_room(wants, FreeMemory(host=MIB, gpu=1100 * MIB)) == (
        "1200 MiB of GPU memory needed, 1100 free"
    )
    assert lack_of_room(wants, FreeMemory(host=MIB, gpu=1200 * MIB)) is None
    assert lack_of_room(wants, FreeMemory(host=MIB)) is None
    assert lack_of_room(Footprint(host=1), FreeMemory(host=MIB, gpu=0)) is None


def test_a_child_needs_its_footprint_free_and_never_more_than_an_empty_device_has() -> None:
    assert least_free(600, 1000) == 600
    assert least_free(990, 1000) == 900

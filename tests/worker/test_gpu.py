"""What of a device's memory is this process's: by a stub driver, and by that of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gpu.stub import CONTEXT_MIB, MIB, Listing, StubDriver
from worker import gpu
from worker.gpu import Process, own_devices
from worker.nvml import Driver, Gpu, Seen, visible_of

HERE = gpu.read_devices(Driver(None))
no_driver = pytest.mark.skipif(bool(HERE.devices), reason="this machine has a GPU")


@no_driver
def test_a_machine_without_a_driver_gives_a_reason_and_no_error() -> None:
    assert HERE.devices == ()
    assert HERE.reason is not None
    assert HERE.reason.startswith("no NVIDIA driver: ")
    assert HERE.to_record() == {"devices": [], "reason": HERE.reason}


def test_asking_the_driver_loads_no_engine() -> None:
    code = (
        "import sys; from worker import gpu, nvml; gpu.read_devices(nvml.Driver(None));"
        "sys.exit(bool({'torch', 'onnxruntime', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- what the driver says -----------------------------------------------------


def test_a_device_tells_its_memory_and_what_of_it_is_ours(stub_driver: StubDriver) -> None:
    device = stub_driver.add_gpu("GPU-a0", total_mib=1000)
    device.others_use(50)
    with stub_driver.probe() as ours, stub_driver.probe() as other:
        assert (ours.take(100), other.take(200)) == (None, None)
        assert ours.look() == {
            "devices": [
                {
                    "uuid": "GPU-a0",
                    "name": "A stub GPU",
                    "total_bytes": 1000 * MIB,
                    "used_bytes": (50 + 100 + 200 + 2 * CONTEXT_MIB) * MIB,
                    "own_bytes": (100 + CONTEXT_MIB) * MIB,
                    "measured_by": "process",
                    "reason": None,
                }
            ],
            "reason": None,
        }
        other.kill()
        (alone,) = ours.look()["devices"]
        assert alone["used_bytes"] == (50 + 100 + CONTEXT_MIB) * MIB


def test_a_process_without_cuda_has_nothing_of_a_device(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu().others_use(900)
    with stub_driver.probe() as idle:
        (device,) = idle.look()["devices"]
        assert (device["own_bytes"], device["measured_by"]) == (None, None)
        assert device["reason"] == "This process has not loaded CUDA."


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        ("host-pids", gpu.NOT_LISTED),
        ("empty", gpu.NOT_LISTED),
        ("no-bytes", gpu.NO_FIGURE),
        ("unsupported", "The driver does not list processes: Not Supported."),
    ],
)
def test_a_figure_that_the_driver_withholds_is_the_engine_s_or_the_device_s_and_never_0(
    listing: Listing, reason: str, stub_driver: StubDriver
) -> None:
    device = stub_driver.add_gpu()
    device.others_use(10)
    device.list_processes(listing)
    with stub_driver.probe() as ours:
        ours.take(100)
        assert ours.own(engine_bytes=130 * MIB) == {"GPU-a0": (130, "engine")}
        whole = (10 + 100 + CONTEXT_MIB, "device")
        unknown = (None, None)
        expected = unknown if listing == "unsupported" else whole
        assert ours.own() == ours.own(engine_bytes=0) == {"GPU-a0": expected}
        (shown,) = ours.look()["devices"]
        assert shown["reason"] == (f"{reason} {gpu.SHARED}" if expected is unknown else reason)


@pytest.mark.parametrize("listing", ["host-pids", "no-bytes"])
def test_the_device_s_figure_is_nobody_s_where_another_process_is_listed(
    listing: Listing, stub_driver: StubDriver
) -> None:
    device = stub_driver.add_gpu()
    device.list_processes(listing)
    with stub_driver.probe() as ours, stub_driver.probe() as other:
        ours.take(1)
        other.take(500)
        assert ours.own() == {"GPU-a0": (None, None)}
        assert ours.look()["devices"][0]["reason"].endswith(gpu.SHARED)
        assert ours.own(engine_bytes=70 * MIB) == {"GPU-a0": (70, "engine")}


def test_of_several_devices_that_hide_processes_none_is_guessed(stub_driver: StubDriver) -> None:
    for uuid in ("GPU-a0", "GPU-b1"):
        stub_driver.add_gpu(uuid).list_processes("empty")
    with stub_driver.probe() as ours:
        ours.take(100)
        assert ours.own(engine_bytes=130 * MIB) == dict.fromkeys(("GPU-a0", "GPU-b1"), (None, None))
        assert ours.look()["devices"][1]["reason"] == f"{gpu.NOT_LISTED} {gpu.WHICH}"
    with stub_driver.probe(CUDA_VISIBLE_DEVICES="GPU-b1") as ours:
        ours.take(100)
        assert ours.own() == {"GPU-b1": (100 + CONTEXT_MIB, "device")}


def test_a_process_that_is_listed_on_one_device_has_nothing_of_the_other(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu("GPU-a0")
    stub_driver.add_gpu("GPU-b1").others_use(900)
    with stub_driver.probe() as ours:
        ours.take(100)
        assert ours.own() == {"GPU-a0": (100 + CONTEXT_MIB, "process"), "GPU-b1": (None, None)}
        assert ours.look()["devices"][1]["reason"] == gpu.NOT_HERE


# --- which devices are ours ---------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("2,0", ["GPU-c2", "GPU-a0"]),
        ("GPU-b", ["GPU-b1"]),
        ("1,-1,0", ["GPU-b1"]),
    ],
)
def test_cuda_visible_devices_says_which_devices_are_ours(
    visible: str, uuids: list[str], stub_driver: StubDriver
) -> None:
    for uuid in ("GPU-a0", "GPU-b1", "GPU-c2"):
        stub_driver.add_gpu(uuid)
    with stub_driver.probe(CUDA_VISIBLE_DEVICES=visible) as ours:
        assert ours.take(100) is None
        own = ours.own()
    assert list(own) == uuids
    assert own[uuids[0]] == (100 + CONTEXT_MIB, "process")


@pytest.mark.parametrize("visible", ["", "GPU-"])
def test_where_cuda_sees_no_device_none_is_ours(visible: str, stub_driver: StubDriver) -> None:
    for uuid in ("GPU-a0", "GPU-b1"):
        stub_driver.add_gpu(uuid)
    with stub_driver.probe(CUDA_VISIBLE_DEVICES=visible) as ours:
        assert ours.look() == {
            "devices": [],
            "reason": f"CUDA_VISIBLE_DEVICES={visible!r} names no device here.",
        }


def test_a_driver_without_devices_says_so(stub_driver: StubDriver) -> None:
    with stub_driver.probe() as ours:
        assert ours.look() == {"devices": [], "reason": "The driver has no device."}


@pytest.mark.parametrize("visible", ["MIG-2", "0"])
def test_a_mig_device_is_a_device_of_its_own(visible: str, stub_driver: StubDriver) -> None:
    card = stub_driver.add_gpu("GPU-a0")
    for place, uuid in ((0, "MIG-0"), (2, "MIG-2")):
        card.add_mig(place, uuid, total_mib=200)
    with stub_driver.probe(CUDA_VISIBLE_DEVICES=visible) as ours:
        assert ours.take(30) is None
        assert ours.take(130) == "out_of_memory", "of 200 MiB, and not of the card's 1000"
        devices = ours.look()["devices"]
    assert [one["uuid"] for one in devices] == (["MIG-0", "MIG-2"] if visible == "0" else ["MIG-2"])
    assert {one["total_bytes"] for one in devices} == {200 * MIB}
    own = {one["uuid"]: one["own_bytes"] for one in devices}
    assert own.pop("MIG-2" if visible == "MIG-2" else "MIG-0") == (30 + CONTEXT_MIB) * MIB
    assert set(own.values()) <= {None}


CARDS = [Gpu(0, "GPU-aa"), Gpu(1, "GPU-ab", ("MIG-x", "MIG-y")), Gpu(2, "GPU-b")]


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ("GPU-aa", "MIG-x", "MIG-y", "GPU-b")),
        (" 2 , 0", ("GPU-b", "GPU-aa")),
        ("1", ("MIG-x", "MIG-y")),
        ("GPU-a", ()),
        ("GPU-ab,MIG-y", ("MIG-x", "MIG-y")),
        ("MIG-y", ("MIG-y",)),
        ("0,,2", ("GPU-aa",)),
        ("0,7,2", ("GPU-aa",)),
        ("GPU-b", ("GPU-b",)),
        ("GPU-z", ()),
        ("MIG-", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
    ],
)
def test_names_are_read_as_cuda_reads_them(visible: str | None, uuids: tuple[str, ...]) -> None:
    assert visible_of(CARDS, visible) == uuids


# --- trouble ------------------------------------------------------------------


def test_nvml_is_opened_once_for_many_looks(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu()
    with stub_driver.probe() as ours:
        for _ in range(5):
            assert len(ours.look()["devices"]) == 1
        assert stub_driver.inits == 1


def test_a_driver_that_goes_and_comes_back_is_seen_again(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu()
    with stub_driver.probe() as ours:
        ours.take(100)
        before = ours.look()
        stub_driver.stop()
        for _ in range(3):
            gone = ours.look()
            assert gone["devices"] == []
            assert gone["reason"].endswith("Driver Not Loaded")
        stub_driver.start()
        assert ours.look() == before


def test_a_driver_that_was_replaced_between_two_looks_is_opened_anew(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu()
    with stub_driver.probe() as ours:
        before = ours.look()
        stub_driver.stop()
        stub_driver.start()
        assert ours.look() == {"devices": [], "reason": "GPU-a0: Unknown Error"}
        assert ours.look() == before
        assert stub_driver.inits == 2


def test_a_driver_that_comes_late_is_found(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu()
    stub_driver.stop()
    with stub_driver.probe() as ours:
        assert ours.look() == {"devices": [], "reason": "no NVIDIA driver: Driver Not Loaded"}
        stub_driver.start()
        assert [one["uuid"] for one in ours.look()["devices"]] == ["GPU-a0"]


def test_a_lost_device_is_named_and_the_others_are_still_read(stub_driver: StubDriver) -> None:
    lost = stub_driver.add_gpu("GPU-a0")
    stub_driver.add_gpu("GPU-b1")
    with stub_driver.probe() as ours:
        ours.look()
        lost.lose()
        for _ in range(2):
            reading = ours.look()
            assert [one["uuid"] for one in reading["devices"]] == ["GPU-b1"]
            assert reading["reason"] == "GPU-a0: GPU is lost"


def test_a_device_that_is_lost_from_the_start_is_named_by_its_index(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu("GPU-a0").lose()
    stub_driver.add_gpu("GPU-b1")
    with stub_driver.probe(CUDA_VISIBLE_DEVICES="1") as ours:
        reading = ours.look()
    assert [one["uuid"] for one in reading["devices"]] == ["GPU-b1"]
    assert reading["reason"] == "GPU 0: GPU is lost"


# --- the rule itself ----------------------------------------------------------

US = 1
sizes = st.integers(0, 2**40)
devices = st.builds(
    Seen,
    uuid=st.text("ab", min_size=1, max_size=6),
    name=st.just("GPU"),
    total_bytes=sizes,
    used_bytes=sizes,
    processes=st.none() | st.dictionaries(st.integers(1, 4), st.none() | st.integers(1, 2**40)),
    trouble=st.just("Not Supported"),
)
fleets = st.lists(devices, max_size=4, unique_by=lambda one: one.uuid)
processes = st.builds(
    Process,
    pids=st.just(frozenset({US})),
    has_cuda=st.booleans(),
    engine_bytes=st.none() | sizes,
    neighbours=st.frozensets(st.integers(2, 4)),
)


@given(seen=fleets, process=processes)
def test_each_device_has_a_figure_with_its_source_or_a_reason(
    seen: list[Seen], process: Process
) -> None:
    found = own_devices(seen, process)
    assert [one.uuid for one in found] == [one.uuid for one in seen]
    for one in found:
        assert (one.own_bytes is None) == (one.measured_by is None)
        assert (one.reason is None) == (one.measured_by == "process")
        assert one.own_bytes != 0, "what is not known is not 0"


@given(seen=fleets, process=processes)
def test_the_driver_s_figure_of_this_process_wins_over_all_others(
    seen: list[Seen], process: Process
) -> None:
    for device, one in zip(seen, own_devices(seen, process), strict=True):
        listed = (device.processes or {}).get(US)
        assert (one.own_bytes if one.measured_by == "process" else None) == listed


@given(seen=fleets, process=processes)
def test_a_figure_that_stands_in_is_given_for_one_device_at_most(
    seen: list[Seen], process: Process
) -> None:
    stand_ins = [
        one for one in own_devices(seen, process) if one.measured_by in ("engine", "device")
    ]
    assert len(stand_ins) <= 1
    assert not stand_ins or process.has_cuda


@given(device=devices, process=processes, stranger=st.integers(2, 4))
def test_the_device_s_figure_never_stands_in_beside_a_neighbour(
    device: Seen, process: Process, stranger: int
) -> None:
    shared = replace(device, processes={**(device.processes or {}), stranger: None})
    neighbours = process.neighbours | {stranger}
    (one,) = own_devices([shared], replace(process, neighbours=neighbours))
    assert one.measured_by != "device"


def test_a_figure_is_held_against_the_first_of_its_own_source() -> None:
    baseline: gpu.Baseline = {}

    def uses(engine_bytes: int | None, *listed: dict[int, int | None]) -> list[tuple[int, int]]:
        seen = [Seen(f"GPU-{n}", "GPU", 100, 50, one) for n, one in enumerate(listed)]
        devices = own_devices(seen, Process(frozenset({US}), engine_bytes=engine_bytes))
        found = gpu.memory_uses(gpu.GpuReading(devices), baseline)
        assert {use.total for use in found} <= {100}
        return [(use.used, use.baseline) for use in found]

    assert uses(None, {US: 20}) == [(20, 20)]
    assert uses(None, {US: 30}) == [(30, 20)]
    assert uses(7, {US: None}) == [(7, 7)], "the engine's figure has a baseline of its own"
    assert uses(9, {US: None}) == [(9, 7)]
    assert uses(None, {US: 25}, {US: 5}) == [(25, 20), (5, 5)]
    assert uses(None, {US: 25}, {}) == [(25, 20)]


@pytest.mark.parametrize(
    ("listed", "own", "reason"),
    [
        ({US: 20, 2: 5, 3: 7}, 25, None),
        ({2: 5, 3: 7}, 5, None),
        ({US: 20, 2: None, 3: 7}, None, f"{gpu.NO_FIGURE} {gpu.SHARED}"),
        ({3: 7}, None, f"{gpu.NOT_LISTED} {gpu.SHARED}"),
    ],
)
def test_what_all_processes_of_a_child_hold_is_its_own(
    listed: dict[int, int | None], own: int | None, reason: str | None
) -> None:
    process = Process(frozenset({US, 2}), neighbours=frozenset({3}))
    (device,) = own_devices([Seen("GPU-a", "GPU", 100, 50, listed)], process)
    assert (device.own_bytes, device.reason) == (own, reason)


def test_a_device_that_only_processes_of_the_child_are_on_is_its_own() -> None:
    process = Process(frozenset({US, 2}))
    (device,) = own_devices([Seen("GPU-a", "GPU", 100, 50, {US: None, 2: None})], process)
    assert (device.own_bytes, device.measured_by) == (50, "device")


def test_another_process_of_the_child_is_asked_for_cuda_by_what_it_has_mapped(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu()
    with stub_driver.probe() as other:
        assert not gpu.is_cuda_of(other.pid)
        other.take(1)
        assert gpu.is_cuda_of(other.pid)
    assert not gpu.is_cuda_of(other.pid)


def test_the_record_is_json() -> None:
    seen, process = Seen("GPU-a", "GPU", 100, 50, {US: 20}), Process(frozenset({US}))
    record: dict[str, Any] = gpu.GpuReading(own_devices([seen], process)).to_record()
    assert json.loads(json.dumps(record)) == record

"""The devices of one worker: slots, free memory, and who still holds some after it ended."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.e2e.stack import ROOT
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver

ASK = """
import json, sys
from worker import devices
devices.TEARDOWN_SECONDS = 0
here = devices.Devices(int(sys.argv[1]))
for line in sys.stdin:
    name, *args = json.loads(line)
    value = getattr(here, name)
    print(json.dumps(value(*args) if callable(value) else value), flush=True)
"""


class Asked:
    """The devices as a worker's parent with this driver has them."""

    def __init__(self, driver: StubDriver, taken: int = 0, **env: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ASK, str(taken)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(ROOT), **driver.env, **env},
        )

    def __call__(self, *question: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def test_slots_get_the_devices_in_turn_and_a_successor_that_of_its_slot(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu("GPU-a0")
    stub_driver.add_gpu("GPU-b1")
    with Asked(stub_driver) as devices:
        assert [devices("of", slot) for slot in range(4)] == ["GPU-a0", "GPU-b1"] * 2
        assert devices("environment_of", 1) == {"CUDA_VISIBLE_DEVICES": "GPU-b1"}
    with Asked(stub_driver, CUDA_VISIBLE_DEVICES="1") as devices:
        assert [devices("of", slot) for slot in range(2)] == ["GPU-b1", "GPU-b1"]
        assert devices("environment_of", 1) == {}


def test_slots_of_the_stack_s_other_engines_come_first(stub_driver: StubDriver) -> None:
    for uuid in ("GPU-a0", "GPU-b1", "GPU-c2"):
        stub_driver.add_gpu(uuid)
    with Asked(stub_driver, taken=2) as devices:
        assert [devices("of", slot) for slot in range(3)] == ["GPU-c2", "GPU-a0", "GPU-b1"]


def test_devices_are_chosen_by_uuid_and_a_cut_card_by_those_of_its_parts(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu("GPU-a0")
    cut = stub_driver.add_gpu("GPU-b1")
    cut.add_mig(0, "MIG-c2")
    cut.add_mig(1, "MIG-d3", total_mib=50)
    with Asked(stub_driver, CUDA_VISIBLE_DEVICES="MIG-d3") as devices:
        assert devices("of", 0) == "MIG-d3"
        assert devices("sizes", "MIG-d3") == [50 * MIB, 50 * MIB]
        assert devices("environment_of", 0) == {}
    with Asked(stub_driver, CUDA_VISIBLE_DEVICES="GPU-b,GPU-a0") as devices:
        assert [devices("of", slot) for slot in range(3)] == ["MIG-c2", "MIG-d3", "GPU-a0"]
        assert devices("environment_of", 1) == {"CUDA_VISIBLE_DEVICES": "MIG-d3"}


def test_without_a_driver_all_slots_share_the_host(stub_driver: StubDriver) -> None:
    stub_driver.stop()
    with Asked(stub_driver) as devices:
        assert [devices("of", slot) for slot in range(2)] == ["host", "host"]
        assert devices("environment_of", 0) == {}
        assert devices("free_bytes", "host") is None


def test_free_memory_is_the_driver_s(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000).others_use(300)
    with Asked(stub_driver) as devices:
        assert devices("free_bytes", "GPU-a0") == 700 * MIB


def test_a_process_that_ended_and_still_holds_memory_is_named_until_it_lets_go(
    stub_driver: StubDriver,
) -> None:
    stub_driver.add_gpu("GPU-a0")
    with Asked(stub_driver) as devices, stub_driver.probe() as stuck:
        stuck.take(CONTEXT_MIB)
        devices("departed", stuck.pid, 0)
        devices("watch")
        assert devices("alerts") == [f"process {stuck.pid} ended and still holds memory of GPU-a0"]
        stub_driver.stop()
        devices("watch")
        stub_driver.start()
        devices("watch")
        assert devices("alerts") == [f"process {stuck.pid} ended and still holds memory of GPU-a0"]
        stuck.kill()
        devices("watch")
        assert devices("alerts") == []

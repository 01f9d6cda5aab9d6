"""Device memory as the driver sees it, on whatever machine this is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from worker import gpu

HERE = gpu.read_devices()
no_driver = pytest.mark.skipif(bool(HERE.devices), reason="this machine has a GPU")
driver = pytest.mark.skipif(not HERE.devices, reason="this machine has no GPU")


def test_the_devices_are_known_or_else_the_reason_why_not() -> None:
    assert bool(HERE.devices) != bool(HERE.reason)


@no_driver
def test_a_machine_without_a_driver_gives_a_reason_and_no_error() -> None:
    assert HERE.devices == ()
    assert HERE.reason is not None
    assert HERE.reason.startswith("no NVIDIA driver: ")
    assert HERE.to_record() == {"devices": [], "reason": HERE.reason}


@driver
def test_a_device_tells_its_memory_in_bytes() -> None:
    device = HERE.devices[0]
    assert device.index == 0
    assert device.name
    assert device.total_bytes > 2**30
    assert 0 < device.used_bytes <= device.total_bytes
    assert device.own_bytes is None, "this process has no context"


def test_the_record_is_json() -> None:
    assert json.loads(json.dumps(HERE.to_record())) == HERE.to_record()


def test_asking_the_driver_loads_no_engine() -> None:
    code = (
        "import sys; from worker import gpu; gpu.read_devices();"
        "sys.exit(bool({'torch', 'onnxruntime', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("value", ["NVIDIA H200", b"NVIDIA H200"])
def test_names_come_as_text_from_every_release(value: str | bytes) -> None:
    assert gpu.text(value) == "NVIDIA H200"

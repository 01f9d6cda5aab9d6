"""``scripts/gpu_check.py``, on a stub GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from scripts.gpu.machine import CheckError, Machine, NoDeviceError, Probe
from scripts.gpu.recycling import check_spoken
from scripts.gpu.report import Finding
from scripts.gpu_check import carry_out
from tests.gpu.stub import CONTEXT_MIB, MIB, StubDriver
from tests.pythons import venv
from tests.worker.cosyvoice_world import World
from voicemill.answers import Item

ROOT = Path(__file__).parents[2]


def check(driver: StubDriver, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run it with this driver."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), *flags],
        env={**os.environ, **driver.env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_driver_there_is_nothing_to_check(stub_driver: StubDriver) -> None:
    stub_driver.stop()
    done = check(stub_driver)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Nothing to check: no NVIDIA driver: Driver Not Loaded\n"


@pytest.mark.full
def test_it_ends_in_time_with_all_that_it_started(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    before = {one.pid for one in psutil.process_iter()}
    done = check(stub_driver, "--limit", "12")
    assert done.returncode == 1, done.stdout
    assert done.stderr.splitlines()[-1] == "Stopped before the end, after 12 s at most."
    left = [one for one in psutil.process_iter() if one.pid not in before and ours(one)]
    assert left == []


@pytest.mark.full
@pytest.mark.timeout(200)
def test_an_engine_is_tried_by_the_suite_and_through_the_queue(
    stub_driver: StubDriver, tmp_path: Path
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    world = World(tmp_path)
    world.make_model()
    world.make_voice("ann", language="en")
    options = json.dumps(world.options())
    engine = ("--engine", "cosyvoice", "--engine-options", options, "--engine-python")
    done = check(stub_driver, *engine, str(venv("3.10", "numpy", "soundfile>=0.13")))
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout.splitlines()[-1])["checks"]
    assert set(checks) == {"conformance", "work"}
    assert set(checks["conformance"]) == {"ok", "passed"}
    assert checks["conformance"]["passed"] >= 20
    assert checks["work"]["recycles"] >= 2
    assert checks["work"]["items"] >= 24
    assert checks["work"]["real_time"] > 0


def ours(process: psutil.Process) -> bool:
    """Whether a process belongs to a stack or to a probe of this checkout."""
    with suppress(psutil.NoSuchProcess):
        return str(ROOT) in " ".join(process.cmdline()) and process.ppid() == 1
    return False


@pytest.mark.full
@pytest.mark.timeout(400)
def test_on_a_sound_machine_every_check_has_its_figures(stub_driver: StubDriver) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    done = check(stub_driver, "--handovers", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert lines[0] == "A stub GPU, 1000 MiB free"
    found: dict[str, Any] = json.loads(last)
    checks = found["checks"]
    assert (found["ok"], found["device"]) == (True, "A stub GPU")
    assert [line.split()[:2] for line in lines[1:]] == [["ok", name] for name in checks]
    assert checks["pid"]["measured_by"] == "process"
    assert checks["pid"]["context_mib"] == CONTEXT_MIB + 1
    assert checks["teardown"]["mib"] == 500
    assert 0 < checks["teardown"]["median_ms"] <= checks["teardown"]["worst_ms"]
    assert checks["handovers"]["count"] >= 3
    assert (checks["handovers"]["breaks"], checks["handovers"]["reasons"]) == (0, ["gpu_memory"])
    assert checks["headroom"]["breaks"] == checks["headroom"]["recycles"] >= 2
    assert checks["empty_cache"]["skipped"]


def test_a_check_that_fails_says_why_and_the_others_go_on(stub_driver: StubDriver) -> None:
    device = stub_driver.add_gpu("GPU-a0", total_mib=100)
    machine = Machine({**os.environ, **stub_driver.env}, "A stub GPU", 100 * MIB, CONTEXT_MIB * MIB)

    def take_too_much(machine: Machine, observer: Probe) -> Finding:
        with Probe(machine.env) as holder:
            holder.take(machine.free)
        return Finding(True, "")

    def look(machine: Machine, observer: Probe) -> Finding:
        return Finding(observer.used() == 0, "")

    with Probe(machine.env) as observer:
        failed = carry_out(take_too_much, machine, observer)
        assert failed == Finding(False, "100 MiB could not be taken: out_of_memory")
        assert carry_out(look, machine, observer) == Finding(True, "")
        device.lose()
        assert carry_out(look, machine, observer) == Finding(False, "GPU-a0: GPU is lost")
        with pytest.raises(NoDeviceError):
            observer.device()


def test_an_item_that_was_not_spoken_once_fails_the_check(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    file.write_bytes(b"RIFF")

    def item(**fields: Any) -> Item:
        whole = {"status": "succeeded", "attempts": 1, "audio_path": str(file), **fields}
        return cast(Item, whole)

    check_spoken([item()])
    for wrong in ({"attempts": 2}, {"status": "failed"}, {"audio_path": None}):
        with pytest.raises(CheckError):
            check_spoken([item(**wrong)])
    with pytest.raises(CheckError, match="2 items have 1 files"):
        check_spoken([item(), item()])

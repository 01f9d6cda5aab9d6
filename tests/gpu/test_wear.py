"""What others met on GPUs, tried on a stub of one: contexts, limits, CUDA faults, many recycles."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_the_suite import install
from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.e2e.stack import ROOT
from tests.gpu.stub import CONTEXT_MIB, MIB, Listing, StubDriver
from tests.pythons import venv_of_ours
from tests.support import inputs
from voicemill.health import observe
from voicemill.jobs import ItemStatus, new_job_id
from voicemill.settings import Settings

LINES = [f"Line {n}." for n in range(5)]
OF_CUDA = """
import os
from dataclasses import replace
from pathlib import Path

from worker.engines.cuda import DeviceMemory
from worker.engines.tone import ToneEngine

MEMORY = DeviceMemory()

class CudaEngine(ToneEngine):
    fault = None

    def load(self, options):
        self.diary = Path(options["diary"])
        return replace(super().load({}), engine="of_cuda")

    def synthesize(self, batch, voice, options):
        for segment in batch:
            _, boom, fault = segment.text.partition("BOOM ")
            self.fault = fault if boom else self.fault
            with self.diary.open("a") as diary:
                diary.write(f"{os.getpid()} {segment.text}\\n")
        if self.fault is not None:
            raise RuntimeError(self.fault)
        return super().synthesize(batch, voice, options)
"""
"""As engines by torch are: a context once it is imported; after a fault of it no call works."""


def of_cuda(folder: Path) -> dict[str, str]:
    """The environment in which a worker has that engine."""
    (folder / "package").mkdir()
    install(folder / "package", "of_cuda", OF_CUDA, "CudaEngine")
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder / "package")]),
        "VOICEMILL_ENGINE": "of_cuda",
        "VOICEMILL_ENGINE_OPTIONS": json.dumps({"diary": str(folder / "diary")}),
    }


def speak(worker: SoloWorker, text: str) -> str:
    """A job of one text for that engine; gives its id."""
    job_id = new_job_id()
    worker.store.create_job(job_id, "default", inputs(text, model="of_cuda"), {})
    return job_id


@pytest.mark.full
def test_the_parent_never_has_a_context_though_the_engine_makes_one_as_it_is_imported(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    card = stub_driver.add_gpu()

    def holders() -> set[int]:
        return {int(one.name) for one in (card.folder / "held").iterdir()}

    with stub_driver.probe() as somebody:
        somebody.look()
        with SoloWorker(redis_url, tmp_path, **stub_driver.env, **of_cuda(tmp_path)) as worker:
            assert_each_spoken_once(worker.wait_for(speak(worker, "The first.")))
            old = worker.the_child()["pid"]
            assert holders() == {old}
            assert worker.store.order(worker.node, "recycle")
            worker.wait_until("a hand-over", lambda: worker.record.recycles)
            new = worker.the_child()["pid"]
            assert_each_spoken_once(worker.wait_for(speak(worker, "The second.")))
            assert {old, new} >= holders() >= {new}
            loaded = Path(f"/proc/{worker.pid}/maps").read_text()
            assert "libnvidia-ml.so" in loaded, "it asks the driver"
            assert not [one for one in ("libcuda", "libtorch") if one in loaded]
            assert worker.stop() == 0
    assert "re-initialize CUDA" not in worker.log


@pytest.mark.full
def test_a_fresh_child_over_its_limit_of_device_memory_works_on_and_it_is_said_once(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    settings = Settings.from_env({"VOICEMILL_ENGINE": "tone"})
    stub_driver.add_gpu()
    env = {**stub_driver.env, **tone(leak_device_mb=1), "VOICEMILL_GPU_MEMORY_LIMIT": "10MiB"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        for line in LINES:
            assert_each_spoken_once(worker.wait_for(worker.submit(line)))
        worker.wait_until("the warning", lambda: observe(worker.store, settings).warnings)
        (warning,) = observe(worker.store, settings).warnings
        assert "raise VOICEMILL_GPU_MEMORY_LIMIT" in warning
        assert worker.recycles() == {}
        said = f"gpu_memory: {CONTEXT_MIB + 2} MiB used of 10MiB. The limit is not obeyed; raise "
        assert worker.log.count(said) == 1
        assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "fault",
    [
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`",
    ],
    ids=["assert", "access", "cublas"],
)
@pytest.mark.parametrize("place", ["in the child", "in its own Python"])
def test_what_cuda_fails_at_fails_alone_and_no_other_text_is_spoken_by_that_process(
    place: str, fault: str, stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu()
    env = {**stub_driver.env, **of_cuda(tmp_path), "VOICEMILL_RETRY_SECONDS": "off"}
    if place != "in the child":
        env["VOICEMILL_ENGINE_PYTHON"] = str(venv_of_ours(tmp_path / "venv", tmp_path / "package"))
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        good = [speak(worker, "Good one.")]
        bad = speak(worker, f"BOOM {fault}")
        good += [speak(worker, "Good two."), speak(worker, "Good three.")]
        worker.wait_until("its end", lambda: worker.has_ended(bad))
        for job_id in good:
            assert_each_spoken_once(worker.wait_for(job_id))
        (failed,) = worker.store.items(bad)
        assert failed.error is not None
        assert (failed.status, failed.attempts) == (ItemStatus.FAILED, 3)
        assert failed.error.code == "engine_poisoned"
        worker.wait_until("the recycles", lambda: worker.recycles() == {"errors": 3})
        assert worker.stop() == 0
    told = [line.split(" ", 1) for line in (tmp_path / "diary").read_text().splitlines()]
    booms = [pid for pid, text in told if text.startswith("BOOM")]
    assert len(set(booms)) == 3
    for pid in booms:
        assert [text for one, text in told if one == pid][-1].startswith("BOOM"), "its last"


@pytest.mark.full
@pytest.mark.parametrize(
    ("listing", "source"),
    [
        ("normal", "process (the driver's own figure)"),
        ("host-pids", "device (The driver does not list this process"),
        ("no-bytes", "device (The driver does not say how much this process uses"),
        ("empty", "device (The driver does not list this process"),
        ("unsupported", "nobody (The driver does not list processes: Not Supported"),
    ],
)
def test_memory_that_the_driver_tells_in_other_ways_replaces_no_child_and_its_source_is_said(
    listing: Listing, source: str, stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    """As in a container with pids of its own, or on a MIG device."""
    stub_driver.add_gpu("GPU-a0").list_processes(listing)
    env = {**stub_driver.env, **tone(leak_device_mb=1), "VOICEMILL_GPU_MEMORY_LIMIT": "50%"}
    with SoloWorker(redis_url, tmp_path, "-l", "INFO", **env) as worker:
        child = worker.the_child()
        for line in LINES[:3]:
            assert_each_spoken_once(worker.wait_for(worker.submit(line)))
        assert worker.recycles() == {}
        assert worker.the_child()["pid"] == child["pid"]
        assert worker.stop() == 0
    assert worker.log.count(f"GPU-a0 is measured by: {source}") == 1
    assert "Traceback" not in worker.log


@pytest.mark.full
@pytest.mark.timeout(300)
def test_over_many_recycles_memory_comes_back_to_what_it_was_and_no_job_is_lost(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    chance = random.Random(1453)
    texts = [f"{n} " + "word " * chance.randint(4, 299) for n in range(200)]
    stub_driver.add_gpu(total_mib=4000)
    env = {
        **stub_driver.env,
        **tone(leak_device_mb=0.5, leak_host_mb=0.5),
        "VOICEMILL_MAX_TASKS_PER_CHILD": "50",
    }
    seen: dict[int, dict[str, Any]] = {}
    with SoloWorker(redis_url, tmp_path, **env) as worker, stub_driver.probe() as somebody:
        for text in texts:
            assert_each_spoken_once(worker.wait_for(worker.submit(text)))
            for child in worker.store.snapshot().children:
                seen.setdefault(child["pid"], child)
        worker.wait_until("the recycles", lambda: worker.recycles().get("tasks", 0) >= 3)
        worker.wait_until("no other child", lambda: len(worker.record.processes) == 1)
        (device,) = somebody.look()["devices"]
        handovers = [one.handover_seconds for one in worker.record.recycles]
        assert worker.stop() == 0
    assert len(seen) >= 4
    first, *others = seen.values()
    for other in others:
        assert other["rss_baseline_bytes"] == pytest.approx(first["rss_baseline_bytes"], rel=0.1)
        assert other["gpu_baseline_bytes"] == first["gpu_baseline_bytes"]
    assert all(seconds is not None and seconds < 30 for seconds in handovers)
    assert device["used_bytes"] < 2 * CONTEXT_MIB * MIB, "what one child holds after so few tasks"
    assert len(list(tmp_path.rglob("*.wav"))) == len(texts)

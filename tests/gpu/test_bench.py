"""``scripts/gpu_check.py --bench``, on a stub GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from scripts.gpu.bench import bench_engine, read, with_failures
from scripts.gpu.engine import Subject
from scripts.gpu.machine import CheckError, Machine
from scripts.gpu.report import Finding, as_json, as_page, line, write
from tests.gpu.stub import StubDriver

ROOT = Path(__file__).parents[2]
TABLE = "| way | a |\n| --- | --- |\n| 1 | 2 |"


def check(driver: StubDriver, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run it with this driver."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), "--bench", *flags],
        env={**os.environ, **driver.env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
@pytest.mark.timeout(300)
def test_it_measures_batches_and_engines_and_writes_a_page(
    stub_driver: StubDriver, tmp_path: Path
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    page = tmp_path / "reports" / "gpu.md"
    done = check(
        stub_driver, "--quick", "--engine", "tone", "--report", str(page), "--limit", "250"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    checks: dict[str, Any] = json.loads(last)["checks"]
    assert list(checks) == ["transformers", "tone", "batches"]
    ways = checks["batches"]["ways"]
    assert list(ways) == [
        *("1", "4 unsorted", "4 sorted", "4 bucketed"),
        *("1 bfloat16", "4 bucketed bfloat16"),
    ]
    assert all(one["times_real_time"] > 0 and one["rss_mb"] > 0 for one in ways.values())
    assert ways["1"]["against_one"] == 1.0
    assert ways["1"]["padded_tokens"] == ways["1"]["padded_samples"] == 0.0
    assert ways["4 unsorted"]["padded_tokens"] > ways["4 sorted"]["padded_tokens"] > 0
    assert (checks["batches"]["device"], checks["batches"]["failed"]) == ("cpu", {})
    for name in ("transformers", "tone"):
        (one,) = checks[name]["engines"].values()
        assert one["bare_times_real_time"] > 0
        assert one["efficiency"] > 0
        assert one["word_error_rate"] is None or name == "tone"
    assert sum(said.startswith("| `") for said in lines) == 2
    written = page.read_text("utf-8")
    assert written.startswith("# A stub GPU\n")
    assert all(said in written for said in lines if said.startswith("|"))
    assert json.loads(written.split("```json\n")[1].split("\n```")[0])["checks"] == checks
    assert [one.name for one in page.parent.iterdir()] == ["gpu.md"]


@pytest.mark.full
def test_at_its_limit_it_stops_all_that_it_started_and_the_page_says_how_far_it_came(
    stub_driver: StubDriver, tmp_path: Path
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=1000)
    before = {one.pid for one in psutil.process_iter()}
    page = tmp_path / "gpu.md"
    done = check(stub_driver, "--report", str(page), "--limit", "12")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "Stopped before the end, after 12 s at most."
    assert page.read_text("utf-8").count("the time was over before it") == 2
    assert [one for one in psutil.process_iter() if one.pid not in before and is_ours(one)] == []


def is_ours(process: psutil.Process) -> bool:
    """Whether a process belongs to a benchmark."""
    with suppress(psutil.NoSuchProcess):
        told = " ".join(process.cmdline())
        return "benchmarks." in told or "multiprocessing" in told
    return False


def test_the_last_line_has_the_figures_and_the_table_is_what_looks_like_one() -> None:
    lines = ["Linux", "", *TABLE.splitlines(), '{"ways": {}}']
    assert read(lines) == ({"ways": {}}, TABLE)


@pytest.mark.parametrize("lines", [[], ["Linux", "Traceback", "KeyError: 'a'"]])
def test_a_benchmark_without_figures_is_named_with_its_last_words(lines: list[str]) -> None:
    with pytest.raises(CheckError, match="no figures: .*" + " / ".join(lines[-3:])):
        read(lines)


@pytest.mark.full
def test_an_engine_that_can_t_be_loaded_is_named_with_the_reason() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    machine = Machine(env, "A stub GPU", 1000, 1)
    subject = Subject("transformers", {"model_path": "/nowhere"})
    with pytest.raises(CheckError, match=r"transformers was not measured: .*model_path='/nowhere'"):
        bench_engine(machine, subject, quick=True)


def test_what_failed_stands_beside_what_was_found() -> None:
    assert with_failures("2 ways", {"failed": {}}) == "2 ways"
    found = with_failures("2 ways", {"failed": {"32 sorted": "No memory.", "64": "Lost."}})
    assert found == "2 ways; 32 sorted: No memory.; 64: Lost."


def test_a_page_has_each_finding_its_table_and_all_figures(tmp_path: Path) -> None:
    findings = {
        "batches": Finding(True, "1 way", {"ways": 1}, TABLE),
        "tone": Finding(False, "lost"),
    }
    assert line("tone", findings["tone"]) == "FAILED tone        lost"
    assert line("batches", findings["batches"]) == f"ok     batches     1 way\n\n{TABLE}\n"
    told = as_json("A card", 1.26, findings)
    assert json.loads(told) == {
        "ok": False,
        "device": "A card",
        "seconds": 1.3,
        "checks": {"batches": {"ok": True, "ways": 1}, "tone": {"ok": False}},
    }
    page = tmp_path / "new" / "page.md"
    for _ in range(2):
        write(page, as_page("A card", 1.26, findings))
    assert page.read_text("utf-8") == (
        f"# A card\n\nok     batches     1 way\n\n{TABLE}\n\nFAILED tone        lost\n\n"
        f"```json\n{told}\n```\n"
    )
    assert [one.name for one in page.parent.iterdir()] == ["page.md"]

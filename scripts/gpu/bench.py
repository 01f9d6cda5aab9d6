"""The benchmarks of engines, each in a process that sees this machine's device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from scripts.gpu.engine import Subject
from scripts.gpu.machine import CheckError, Machine
from scripts.gpu.report import Finding
from scripts.stack.parts import ROOT
from scripts.stack.stopping import stop

MODEL_FLAGS = ("--batches", "8", "16", "32", "--autocast", "float16", "--compile")
"""A VITS model as large as one of MMS: 32 of its lines take about 3 GB, in full precision."""
FULL_FLAGS = ("--lines", "512", "--rounds", "1")
QUICK_FLAGS = ("--quick", "--batches", "4", "--autocast", "bfloat16")
MODEL = Subject("transformers", {})


def bench_batches(machine: Machine, *, quick: bool) -> Finding:
    """What batches, half precision and compiling give."""
    figures, table = run(machine, "padded", QUICK_FLAGS if quick else (*MODEL_FLAGS, *FULL_FLAGS))
    ways: dict[str, dict[str, Any]] = figures["ways"]
    if not ways:
        raise CheckError(f"nothing was measured: {figures['failed']}")
    best = max(ways, key=lambda way: float(ways[way]["times_real_time"]))
    times = ways[best]["times_real_time"]
    text = f"{len(ways)} ways on {figures['device']}; fastest: {best}, {times:g} times real time"
    return Finding(not figures["failed"], with_failures(text, figures), figures, table)


def bench_engine(machine: Machine, subject: Subject, *, quick: bool) -> Finding:
    """An engine bare and through the stack."""
    flags = ["--engines", subject.name, *(["--quick"] if quick else [])]
    if subject.options:
        flags += ["--engine-options", json.dumps(subject.options)]
    if subject.python is not None:
        flags += ["--engine-python", str(subject.python)]
    figures, table = run(machine, "engines", flags)
    if not figures["engines"]:
        (why,) = {**figures["left_out"], **figures["failed"]}.values()
        raise CheckError(f"{subject.name} was not measured: {why}")
    (one,) = figures["engines"].values()
    text = "{bare_times_real_time} times real time, {stack_times_real_time} through the stack"
    return Finding(True, text.format(**one), figures, table)


def with_failures(text: str, figures: dict[str, Any]) -> str:
    """A finding, and what failed beside it."""
    failed = [f"{way}: {why}" for way, why in figures["failed"].items()]
    return "; ".join([text, *failed])


def run(machine: Machine, benchmark: str, flags: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The figures and the table of a benchmark, which is stopped with all it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{benchmark}", "--json", *flags],
        env=machine.env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for said in process.stdout:
            lines.append(said.decode().rstrip("\n"))
            if not lines[-1].startswith(("|", "{")):
                print(f"       {lines[-1]}".rstrip(), file=sys.stderr, flush=True)
    finally:
        stop(process)
    return read(lines)


def read(lines: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The figures and the table in what a benchmark printed; raises ``CheckError`` without them."""
    if not lines or not lines[-1].startswith("{"):
        raise CheckError(f"the benchmark gave no figures: {' / '.join(lines[-3:])}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures, "\n".join(one for one in lines if one.startswith("|"))

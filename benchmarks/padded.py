"""What padded batches of the `transformers` engine give, against line by line in the same run.

A VITS model of random weights, as large as one of MMS, speaks lines of mixed length: in groups as
they come (unsorted), in groups of all lines by length (sorted), and in the buckets that the engine
makes of each of its calls (bucketed). Each way has a process of its own, on one core or on the
device that torch finds; the ways take turns, round after round, and times are of the median round.

examples:
  padded.py --quick
  padded.py --json --docs
  padded.py --batches 8 16 32 --autocast float16 --compile --lines 512 --rounds 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.bulk import SEED, make_lines
from benchmarks.parts.alone import ProcessLostError, alone, peak_bytes
from benchmarks.parts.stack import print_machine
from benchmarks.parts.tables import PAGE, show, shown
from benchmarks.parts.vits import LIKE_MMS, NARROW, SAMPLE_RATE_HZ, make_vits
from voicemill.errors import VoicemillError
from voicemill.health import MEBIBYTE
from worker.engines.base import SynthesisOptions
from worker.engines.buckets import buckets, padding

BATCHES = (8, 16)
ORDERS = ("unsorted", "sorted", "bucketed")
LINES = 32
FULL_ROUNDS = 2
FEWEST_WORDS, MOST_WORDS = 3, 32
WAY_SECONDS = 300.0
NO_DEVICE = "nothing"
HEAD = (
    *("way", "times real time", "texts/s", "against 1", "padded tokens", "padded samples"),
    *("load s", "warm-up s", "memory MB", "device MB"),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How the lines are spoken."""

    batch: int
    order: str
    autocast: str | None = None
    compile: bool = False

    @property
    def name(self) -> str:
        """As in the table."""
        words = [str(self.batch), self.order if self.batch > 1 else "", self.autocast or ""]
        return " ".join(filter(None, [*words, "compiled" if self.compile else ""]))


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one process found."""

    device: str
    groups: list[list[int]]
    """Of lines, each a padded batch."""
    samples: list[int]
    """Of each line."""
    load_seconds: float
    warm_seconds: float
    """The first batch after that; compiled, all of them, since each shape may be compiled anew."""
    seconds: float
    """For all lines."""
    rss_mb: float
    """The most that was resident."""
    device_mb: float | None

    @property
    def times_real_time(self) -> float:
        """Seconds of audio in one."""
        return sum(self.samples) / SAMPLE_RATE_HZ / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one way."""

    times_real_time: float
    texts_per_second: float
    against_one: float | None
    """How many times as fast as line by line in full precision, in the same round."""
    padded_tokens: float
    """For one that is text."""
    padded_samples: float
    """Computed and thrown away, for one that is heard."""
    load_seconds: float
    warm_seconds: float
    rss_mb: float
    device_mb: float | None


def mixed_lines(count: int) -> list[str]:
    """Lines of three to thirty-two words, the same for the same count; 3,000 at most."""
    chance = random.Random(SEED)
    words = iter(" ".join(make_lines(5000)).lower().replace(".", "").split())
    lengths = [chance.randint(FEWEST_WORDS, MOST_WORDS) for _ in range(count)]
    return [" ".join(next(words) for _ in range(length)) for length in lengths]


def ways(batches: Sequence[int], autocast: str | None, compiled: bool) -> list[Way]:
    """All that is compared, line by line first."""
    plain = [Way(1, ORDERS[0]), *(Way(batch, order) for batch in batches for order in ORDERS)]
    more = [(autocast, False)] if autocast else []
    more += [(autocast, True)] if compiled else []
    return plain + [Way(batch, ORDERS[-1], *one) for one in more for batch in (1, *batches)]


def groups(way: Way, lengths: Sequence[int], window: int) -> list[list[int]]:
    """Indexes of the lines that are spoken together; ``window`` lines make a call of the engine."""
    lines = list(range(len(lengths)))
    if way.order == "bucketed":
        calls = cut(lines, window)
        return [
            [call[place] for place in bucket]
            for call in calls
            for bucket in buckets([lengths[line] for line in call], way.batch)
        ]
    if way.order == "sorted":
        lines.sort(key=lengths.__getitem__)
    return cut(lines, way.batch)


def cut(lines: Sequence[int], size: int) -> list[list[int]]:
    """Groups of that size, the last perhaps smaller."""
    return [list(lines[at : at + size]) for at in range(0, len(lines), size)]


def waste(lengths: Sequence[int], together: Sequence[Sequence[int]]) -> float:
    """How much padding there is for one that is none."""
    share = padding(lengths, together)
    return share / (1 - share)


def speak(folder: str, lines: Sequence[str], way: Way) -> Spoken:
    """Load the model and speak the lines in one way; for a process of its own."""
    import torch

    from worker.engines.transformers import ONLY_VOICE, TransformersEngine

    def speak_all(together: Sequence[Sequence[int]]) -> dict[int, int]:
        samples: dict[int, int] = {}
        for group in together:
            spoken = engine.speak([lines[line] for line in group], ONLY_VOICE, SynthesisOptions())
            samples |= zip(group, map(len, spoken), strict=True)
        return samples

    options = {"max_batch": way.batch, "autocast": way.autocast, "compile": way.compile}
    engine, began = TransformersEngine(), time.perf_counter()
    has = engine.load({"model_path": folder, **options})
    loaded = time.perf_counter()
    together = groups(way, list(map(len, lines)), has.max_batch)
    speak_all(together if way.compile else together[:1])
    warm = time.perf_counter()
    samples = speak_all(together)
    seconds = time.perf_counter() - warm
    on_device = engine.device_bytes()
    return Spoken(
        device=torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        groups=together,
        samples=[samples[line] for line in range(len(lines))],
        load_seconds=loaded - began,
        warm_seconds=warm - loaded,
        seconds=seconds,
        rss_mb=peak_bytes([os.getpid()]) / MEBIBYTE,
        device_mb=None if on_device is None else on_device / MEBIBYTE,
    )


def row(rounds: Sequence[Spoken], ones: Sequence[Spoken], tokens: Sequence[int]) -> Row:
    """The figures of a way by its rounds, those of line by line, and the tokens of each line."""
    ratios = [
        this.times_real_time / one.times_real_time for this, one in zip(rounds, ones, strict=False)
    ]
    last = rounds[-1]
    return Row(
        times_real_time=round(statistics.median(one.times_real_time for one in rounds), 2),
        texts_per_second=round(statistics.median(len(tokens) / one.seconds for one in rounds), 2),
        against_one=round(statistics.median(ratios), 2) if ratios else None,
        padded_tokens=round(waste(tokens, last.groups), 3),
        padded_samples=round(waste(last.samples, last.groups), 3),
        load_seconds=round(statistics.median(one.load_seconds for one in rounds), 2),
        warm_seconds=round(statistics.median(one.warm_seconds for one in rounds), 2),
        rss_mb=round(max(one.rss_mb for one in rounds)),
        device_mb=None if last.device_mb is None else round(last.device_mb),
    )


def cells(way: Way, figures: Row) -> list[str]:
    """A line of the table."""
    return [
        way.name,
        shown(figures.times_real_time),
        shown(figures.texts_per_second),
        shown(figures.against_one, 2),
        shown(figures.padded_tokens, 2),
        shown(figures.padded_samples, 2),
        shown(figures.load_seconds),
        shown(figures.warm_seconds),
        shown(figures.rss_mb, 0),
        shown(figures.device_mb, 0),
    ]


def count_tokens(folder: str, lines: Sequence[str]) -> list[int]:
    """Tokens of each line; for a process of its own."""
    from transformers import VitsTokenizer

    tokenizer = VitsTokenizer.from_pretrained(folder)
    return [len(tokenizer(line).input_ids) for line in lines]


def measure(
    chosen: Sequence[Way], lines: Sequence[str], rounds: int, shape: Mapping[str, Any]
) -> tuple[dict[Way, Row], dict[Way, str], str]:
    """The figures of each way, what failed and why, and the device."""
    found: dict[Way, list[Spoken]] = {way: [] for way in chosen}
    failed: dict[Way, str] = {}
    with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as folder:
        alone(make, folder, shape)
        tokens = alone(count_tokens, folder, lines)
        for number in range(rounds):
            for way in chosen:
                if way in failed:
                    continue
                try:
                    one = alone(speak, folder, lines, way, seconds=WAY_SECONDS)
                except (VoicemillError, ProcessLostError) as error:
                    failed[way] = str(error)
                    continue
                found[way].append(one)
                print(f"round {number + 1}, {way.name}: {one.seconds:.2f} s", flush=True)
    ones = found[chosen[0]]
    figures = {way: row(found[way], ones, tokens) for way in chosen if way not in failed}
    return figures, failed, ones[0].device if ones else NO_DEVICE


def make(folder: str, shape: Mapping[str, Any]) -> None:
    """Make the model; for a process of its own."""
    make_vits(Path(folder), **shape)


def main() -> int:
    """Run and print; 0 when all figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a narrow model; a minute or two")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.name}")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES, metavar="N")
    parser.add_argument("--autocast", choices=("float16", "bfloat16"), help="also with that")
    parser.add_argument("--compile", action="store_true", help="also by torch.compile")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--rounds", type=int)
    asked = parser.parse_args()
    if not find_spec("torch") or not find_spec("transformers"):
        print("Left out: torch and transformers are not installed; make venv-all brings them.")
        return 0
    print_machine("torch", "transformers", "numpy")
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lines = mixed_lines(asked.lines)
    chosen = ways(asked.batches, asked.autocast, asked.compile)
    rounds = asked.rounds or (1 if asked.quick else FULL_ROUNDS)
    figures, failed, device = measure(chosen, lines, rounds, NARROW if asked.quick else LIKE_MMS)
    print(f"\n{len(lines)} lines, {rounds} rounds, on {device}")
    rows = [cells(way, one) for way, one in figures.items()]
    show("padded", HEAD, rows, PAGE if asked.docs else None)
    for way, why in failed.items():
        print(f"\n{way.name} failed: {why}")
    if asked.json:
        told = {way.name: asdict(one) for way, one in figures.items()}
        errors = {way.name: why for way, why in failed.items()}
        print(json.dumps({"device": device, "ways": told, "failed": errors}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

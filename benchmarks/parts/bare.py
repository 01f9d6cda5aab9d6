"""An engine alone, in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.parts.alone import peak_bytes
from voicemill.errors import SettingsError, SynthesisError
from voicemill.health import MEBIBYTE
from worker.engines import load_engine
from worker.engines.base import (
    Engine,
    HasProcesses,
    ReportsDeviceMemory,
    Samples,
    Segment,
    SynthesisOptions,
)
from worker.environment import visible_devices
from worker.gpu import read_devices
from worker.nvml import Driver
from worker.remote.engine import RemoteEngine

LANGUAGE = "en"
WARM_UP = "Warm up with one sentence."


@dataclass(frozen=True, slots=True)
class Bare:
    """What the engine alone takes."""

    voice: str
    licences: tuple[str | None, ...]
    """Of the engine, its model and the voice."""
    load_seconds: float
    warm_seconds: float
    """Its first line after that."""
    times_real_time: float
    memory_mb: float
    device_mb: float | None
    audio: tuple[str, ...]
    """Files, one for each line."""


def speak_bare(
    name: str,
    options: Mapping[str, Any],
    python: Path | None,
    lines: Sequence[str],
    folder: Path,
) -> Bare:
    """Load, and speak all lines into a folder; for a process of its own.

    Raises what the engine does, also for one line of them.
    """
    engine: Engine = load_engine(name) if python is None else RemoteEngine(name, python)
    began = time.perf_counter()
    has = engine.load(options)
    loaded = time.perf_counter()
    if not has.voices:
        raise SettingsError(f"{name} has no voice to be measured with; enrol or name one.")
    voice = has.voices[0]
    chosen = SynthesisOptions(language=LANGUAGE if LANGUAGE in has.languages else None)
    speak(engine, [WARM_UP], voice.name, chosen)
    warm = time.perf_counter()
    spoken = [
        one
        for call in calls(lines, has.max_batch)
        for one in speak(engine, call, voice.name, chosen)
    ]
    seconds = time.perf_counter() - warm
    paths = [f"{folder}/{number}.wav" for number in range(len(spoken))]
    for path, samples in zip(paths, spoken, strict=True):
        soundfile.write(path, np.asarray(samples), has.sample_rate)
    others = engine.pids() if isinstance(engine, HasProcesses) else frozenset()
    memory = peak_bytes([os.getpid(), *others])
    on_device = device_bytes(engine, others)
    engine.unload()
    return Bare(
        voice=voice.name,
        licences=(has.engine_licence, has.model_licence, voice.licence),
        load_seconds=loaded - began,
        warm_seconds=warm - loaded,
        times_real_time=sum(map(len, spoken)) / has.sample_rate / seconds,
        memory_mb=memory / MEBIBYTE,
        device_mb=None if on_device is None else on_device / MEBIBYTE,
        audio=tuple(paths),
    )


def speak(
    engine: Engine, lines: Sequence[str], voice: str, options: SynthesisOptions
) -> list[Samples]:
    """One call; raises the error that a line met."""
    spoken = []
    for one in engine.synthesize([Segment(line) for line in lines], voice, options):
        if isinstance(one, SynthesisError):
            raise one
        spoken.append(one)
    return spoken


def calls(lines: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """As many lines as the engine takes at once."""
    return (lines[at : at + size] for at in range(0, len(lines), size))


def device_bytes(engine: Engine, others: frozenset[int]) -> int | None:
    """What it holds of its devices, as far as that is known; nothing where it holds nothing."""
    own = engine.device_bytes() if isinstance(engine, ReportsDeviceMemory) else None
    known = [
        one.own_bytes
        for one in read_devices(Driver(visible_devices()), own, others).devices
        if one.own_bytes
    ]
    return sum(known) if known else None

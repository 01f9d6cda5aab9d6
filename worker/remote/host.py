"""Holds the engine in its own process and does what the child asks, one call after another.

A call is a frame ``{"call": NAME, ...}``. Its answer has ``result`` or ``error``, samples in the
body (float32, little-endian, one segment after another), and under ``memory`` what the engine says
of the device.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from voicemill.errors import (
    InvalidAudioError,
    SettingsError,
    SynthesisError,
    VoicemillError,
)
from worker.engines import load_engine
from worker.engines.base import (
    CachesDeviceMemory,
    ClonesVoices,
    Engine,
    Prompt,
    ReportsDeviceMemory,
    Samples,
    Segment,
    SparesMemory,
    SynthesisOptions,
)
from worker.remote.faults import record_of
from worker.remote.wire import Wire, WireError

Answer = tuple[Any, list[Samples]]


def serve(end: int, trace: int) -> None:
    """Answer calls until the child has no more of them."""
    os.set_inheritable(end, False)
    os.set_inheritable(trace, False)
    faulthandler.enable(trace)
    with socket.socket(fileno=end) as own_end:
        wire = Wire(own_end)
        wire.send({"pid": os.getpid()})
        host = Host()
        while True:
            try:
                call, _ = wire.receive()
            except EOFError:
                return
            answer(wire, host, call)


def answer(wire: Wire, host: Host, call: Mapping[str, Any]) -> None:
    """Carry out one call and send what came of it."""
    samples: list[Samples] = []
    try:
        result, samples = host.calls[call["call"]](call)
        head = {"result": result}
    # An engine may raise anything, and the child is told of it by name.
    except (Exception, CancelledError) as error:  # noqa: BLE001
        head = host.failure(call["call"], error)
    head["memory"] = host.memory()
    try:
        wire.send(head, [one.data for one in samples])
    except WireError as error:
        told = record_of(SynthesisError(f"The engine gave more than can be sent: {error}."))
        wire.send({"error": told, "memory": host.memory()})


class Host:
    """An engine that is called by frames."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self.calls: Mapping[str, Callable[[Mapping[str, Any]], Answer]] = {
            "load": self.load,
            "synthesize": self.synthesize,
            "enrol": self.enrol,
            "forget": self.forget,
            "after_batch": self.after_batch,
            "unload": self.unload,
        }

    @property
    def engine(self) -> Engine:
        """The one that was loaded."""
        if self._engine is None:
            raise RuntimeError("No engine was loaded.")
        return self._engine

    @property
    def cloner(self) -> ClonesVoices:
        """The same, where it clones voices."""
        if not isinstance(self.engine, ClonesVoices):
            raise TypeError("The engine clones no voices.")
        return self.engine

    def load(self, call: Mapping[str, Any]) -> Answer:
        """Find the engine in this Python and load it; gives what it is able to do."""
        engine = find_engine(call["engine"])
        able = engine.load(call["options"])
        self._engine = engine
        clones = isinstance(engine, ClonesVoices)
        return {"capabilities": able.to_record(), "clones": clones}, []

    def synthesize(self, call: Mapping[str, Any]) -> Answer:
        """Speak segments; gives for each the number of its samples, or its error."""
        batch = [Segment(**one) for one in call["batch"]]
        spoken = self.engine.synthesize(batch, call["voice"], SynthesisOptions(**call["options"]))
        checked = [sound_of(one) for one in spoken]
        return (
            [record_of(one) if isinstance(one, VoicemillError) else len(one) for one in checked],
            [one for one in checked if not isinstance(one, VoicemillError)],
        )

    def enrol(self, call: Mapping[str, Any]) -> Answer:
        """Have the engine take a voice in; its clip is read here, by its path."""
        prompt = {**call["prompt"]}
        for name in ("audio", "features"):
            prompt[name] = prompt[name] and Path(prompt[name])
        self.cloner.enrol(call["voice"], Prompt(**prompt))
        return None, []

    def forget(self, call: Mapping[str, Any]) -> Answer:
        """Have the engine forget a voice."""
        self.cloner.forget(call["voice"])
        return None, []

    def after_batch(self, _call: Mapping[str, Any]) -> Answer:
        """Have the engine give back what it can."""
        self.engine.after_batch()
        return None, []

    def unload(self, _call: Mapping[str, Any]) -> Answer:
        """Have the engine give back all; this process ends after it."""
        engine, self._engine = self.engine, None
        engine.unload()
        return None, []

    def memory(self) -> dict[str, Any]:
        """Device memory as the engine tells it while it is loaded."""
        engine = self._engine
        failures = engine.memory_failures() if isinstance(engine, SparesMemory) else 0
        cached = engine.cached_memory() if isinstance(engine, CachesDeviceMemory) else None
        return {
            "held": engine.device_bytes() if isinstance(engine, ReportsDeviceMemory) else None,
            "cached": None if cached is None else asdict(cached),
            "failures": failures,
        }

    def failure(self, call: str, error: BaseException) -> dict[str, Any]:
        """How a call failed: what was raised and where, but no text that was to be spoken."""
        if isinstance(error, VoicemillError):
            return {"error": record_of(error)}
        where = "".join(traceback.format_tb(error.__traceback__))
        told = record_of(error)
        if call == "load":
            told["message"] = f"{type(error).__name__} was raised while it was loaded: {error}"
        return {"error": told, "where": where}


def find_engine(name: str) -> Engine:
    """The engine as this Python has it; raises ``SettingsError`` as ``load_engine`` does."""
    try:
        return load_engine(name)
    except SettingsError as error:
        missing = error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            raise
        raise SettingsError(
            f"The engine {name} needs {missing.name}, which VOICEMILL_ENGINE_PYTHON does not have. "
            f"Install it with: {sys.executable} -m pip install ..."
        ) from error


def sound_of(spoken: Samples | SynthesisError) -> Samples | SynthesisError:
    """Samples as the wire carries them."""
    if isinstance(spoken, VoicemillError):
        return spoken
    samples = np.asarray(spoken)
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        return InvalidAudioError(
            f"The engine gave an array of {samples.dtype} with shape {samples.shape}, "
            "not one row of floats."
        )
    return np.ascontiguousarray(samples, dtype="<f4")

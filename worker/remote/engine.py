"""An engine that lives in a process of another Python, and is asked over a socket."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from voicemill.errors import EngineLostError, SettingsError, SynthesisError, VoicemillError
from voicemill.voices import Capabilities
from worker.cached_memory import CachedMemory
from worker.engines.base import Prompt, Samples, Segment, SynthesisOptions
from worker.environment import environment_of_another
from worker.remote.faults import error_of
from worker.remote.wire import Wire, WireError

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
START = """
import sys
sys.path.insert(0, sys.argv[1])
from worker.remote.keeper import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""
"""What the other Python runs, cut off (``-I``) from all that it was not given here."""
FAREWELL_SECONDS = 5.0
"""What an engine that has been unloaded may take to end."""
LONGEST_LINE = 2000
"""Characters of the engine's process that the log takes at once."""
BY_SIGNAL = 128


class RemoteEngine:
    """Drives the engine ``name`` in a process of the interpreter ``python``.

    That process, and all it starts, is there from ``load`` to ``unload``, and never longer than
    this one. ``enrol`` and ``forget`` are there once an engine is loaded that clones voices.
    """

    enrol: Callable[[str, Prompt], None]
    forget: Callable[[str], None]

    def __init__(self, name: str, python: Path) -> None:
        self._name = name
        self._python = python
        self._process: EngineProcess | None = None

    def is_lost(self) -> bool:
        """Whether its process has ended though nobody asked it to."""
        process = self._process
        return process is not None and not process.is_there

    def pids(self) -> frozenset[int]:
        """Every process that it consists of, apart from this one."""
        process = self._process
        return frozenset() if process is None else process.pids()

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Start the process and load the engine there."""
        if self._process is None:
            self._process = EngineProcess(self._python)
        try:
            result, _ = self._process.ask("load", engine=self._name, options=options)
        except VoicemillError:
            self._process.end()
            self._process = None
            raise
        if result["clones"]:
            self.enrol, self.forget = self._enrol, self._forget
        return Capabilities.from_record(result["capabilities"])

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Have the segments spoken there.

        Raises ``EngineLostError`` where the process ends or says what can't be understood.
        """
        process = self._at_work()
        results, body = process.ask(
            "synthesize",
            batch=[record(segment) for segment in batch],
            voice=voice,
            options=record(options),
        )
        try:
            return sounds(results, body)
        except (KeyError, TypeError, ValueError) as error:
            raise process.lost("gave results that can't be understood") from error

    def _enrol(self, voice: str, prompt: Prompt) -> None:
        self._at_work().ask("enrol", voice=voice, prompt=record(prompt))

    def _forget(self, voice: str) -> None:
        self._at_work().ask("forget", voice=voice)

    def after_batch(self) -> None:
        """Have it give back what it can."""
        self._at_work().ask("after_batch")

    def unload(self) -> None:
        """Have it unload, and end its process: nothing of its memory is left."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            process.ask("unload")
        finally:
            process.end()

    def device_bytes(self) -> int | None:
        """Device memory that it said it holds after its last call."""
        return None if self._process is None else self._process.memory.get("held")

    def cached_memory(self) -> CachedMemory | None:
        """What it said that its allocator holds after its last call."""
        cached = None if self._process is None else self._process.memory.get("cached")
        return None if cached is None else CachedMemory(**cached)

    def memory_failures(self) -> int:
        """How often it has been short of memory, as it said after its last call."""
        return 0 if self._process is None else self._process.memory.get("failures", 0)

    def _at_work(self) -> EngineProcess:
        if self._process is None:
            raise SynthesisError("The engine is not loaded.")
        return self._process


class EngineProcess:
    """A process of another Python that holds an engine, its keeper beside it."""

    def __init__(self, python: Path) -> None:
        self.memory: Mapping[str, Any] = {}
        """What the engine says of device memory."""
        self._knows_texts = False
        self._end, theirs = socket.socketpair()
        trace = os.dup(2)
        try:
            self._keeper = subprocess.Popen(
                [python, "-I", "-u", "-c", START, ROOT, str(theirs.fileno()), str(trace)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(), trace),
                env=environment_of_another(python),
                start_new_session=True,
            )
        except OSError as error:
            self._end.close()
            raise SettingsError(
                f"VOICEMILL_ENGINE_PYTHON={str(python)!r} could not be started: {error.strerror}."
            ) from error
        finally:
            theirs.close()
            os.close(trace)
        self._wire = Wire(self._end)
        self._log = threading.Thread(target=self._pass_on, name="engine-log", daemon=True)
        self._log.start()
        self._pid = self._receive()[0]["pid"]

    @property
    def is_there(self) -> bool:
        """Whether it runs."""
        return self._keeper.poll() is None

    def pids(self) -> frozenset[int]:
        """Its own, its keeper's, and those of all that it has started."""
        try:
            keeper = psutil.Process(self._keeper.pid)
            return frozenset({keeper.pid, *(one.pid for one in keeper.children(recursive=True))})
        except psutil.NoSuchProcess:
            return frozenset()

    def ask(self, call: str, **arguments: Any) -> tuple[Any, bytearray]:
        """Have it carry out a call; gives the result and the bytes that came with it.

        Raises what the engine raised there, and ``EngineLostError``.
        """
        self._knows_texts |= call in ("synthesize", "enrol")
        try:
            self._wire.send({"call": call, **arguments})
        except OSError as error:
            raise self.lost() from error
        except WireError as error:
            raise SynthesisError(f"The engine can't be asked for so much: {error}.") from error
        head, body = self._receive()
        self.memory = head.get("memory") or {}
        if "error" not in head:
            return head.get("result"), body
        if "where" in head:
            logger.error("the engine failed\n%s%s", head["where"], head["error"]["message"])
        raise error_of(head["error"])

    def lost(self, why: str | None = None) -> EngineLostError:
        """End what is left of it, and say why, or how it went."""
        self._end.close()
        ending = self._ended()
        logger.error("the engine's process %d %s", self._keeper.pid, why or ending)
        return EngineLostError(f"The engine's process {why or ending}.")

    def end(self) -> None:
        """Let it come to its end, and end it where it does not."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_WR)
        try:
            self._keeper.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("the engine's process does not end, and is killed")
        self._end.close()
        self._ended()

    def _receive(self) -> tuple[dict[str, Any], bytearray]:
        try:
            return self._wire.receive()
        except (EOFError, OSError) as error:
            raise self.lost() from error
        except WireError as error:
            raise self.lost(f"sent what can't be read: {error}") from error

    def _ended(self) -> str:
        """Wait for the keeper, which ends all that the engine started; says how it went."""
        status = self._keeper.wait()
        if status < 0:
            # Nobody keeps the processes that are left but this one.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
            return f"lost its keeper to signal {-status}"
        self._log.join(FAREWELL_SECONDS)
        if status > BY_SIGNAL:
            return f"ended by signal {status - BY_SIGNAL}"
        return f"ended with status {status}"

    def _pass_on(self) -> None:
        """Write to the log what the process prints; once it knows texts, they may be in it."""
        printed: IO[bytes] | None = self._keeper.stdout
        assert printed is not None
        with printed:
            for line in iter(lambda: printed.readline(LONGEST_LINE), b""):
                level = logging.DEBUG if self._knows_texts else logging.INFO
                text = line.decode("utf-8", "replace").rstrip()
                logger.log(level, "engine process %d: %s", self._keeper.pid, text)


def record(one: Segment | SynthesisOptions | Prompt) -> dict[str, Any]:
    """A segment, options or a prompt, by the names of their fields."""
    return {name.name: getattr(one, name.name) for name in fields(one)}


def sounds(results: Sequence[Any], body: bytearray) -> list[Samples | SynthesisError]:
    """What the results and the samples of a frame tell of each segment.

    Raises ``ValueError`` where there are more samples or less than the results say.
    """
    samples = np.frombuffer(body, "<f4")
    lengths = [one if isinstance(one, int) else 0 for one in results]
    if min(lengths, default=0) < 0 or sum(lengths) != len(samples):
        raise ValueError("the samples are not those of the results")
    spoken: list[Any] = []
    at = 0
    for result, length in zip(results, lengths, strict=True):
        spoken.append(samples[at : at + length] if isinstance(result, int) else error_of(result))
        at += length
    return spoken

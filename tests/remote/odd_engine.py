"""An engine for another Python that does what the texts say, to its process and to the protocol."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from voicemill.errors import OutOfMemoryError, SettingsError, SynthesisError
from voicemill.voices import Capabilities
from worker.cached_memory import CachedMemory
from worker.engines.base import Prompt, Samples, Segment, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.environment import thread_share
from worker.remote.wire import LENGTHS, MAGIC

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]
LEAVES_ITS_GROUP = f"""
import os, subprocess, sys
os.setsid()
print(subprocess.Popen({SLEEPS!r}, stdout=subprocess.DEVNULL).pid, flush=True)
"""


class LampError(OutOfMemoryError):
    """An error that only this engine knows."""

    code = "lamp_out"
    title = "The lamp is out"
    retryable = False


class OddEngine(ToneEngine):
    """Does nothing odd until it is told to; knows of its memory while it is loaded."""

    memory: CachedMemory | None

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """What is printed here is no user's."""
        print("printed as it loads")
        if options.get("raise") == "memory":
            raise SettingsError("It was told so.") from RuntimeError("CUDA error: out of memory")
        if "raise" in options:
            raise ImportError("libodd.so is not there")
        able = super().load(options)
        self.memory = None
        return able

    def unload(self) -> None:
        """Know nothing any more."""
        super().unload()
        del self.memory

    def cached_memory(self) -> CachedMemory | None:
        """What it was made to know."""
        return self.memory

    def enrol(self, voice: str, prompt: Prompt) -> None:
        """Print what it is told, as engines do, and have the voice."""
        print(prompt.text)
        super().enrol(voice, prompt)

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Obey the first text."""
        word, _, rest = (batch[0].text if batch else "").partition(" ")
        told = getattr(self, f"do_{word}", None)
        result = None if told is None else told(rest)
        return super().synthesize(batch, voice, options) if result is None else result

    def do_print(self, text: str) -> None:
        """To all that may be mistaken for a way out."""
        print(text)
        print(text, file=sys.stderr)
        os.write(1, text.encode() + b"\n")
        logging.getLogger("odd").error(text)

    def do_family(self, path: str) -> None:
        """Start processes: of its group, of a session of its own, and one by multiprocessing."""
        child = subprocess.Popen(SLEEPS)
        orphan = subprocess.run(
            [sys.executable, "-c", LEAVES_ITS_GROUP], stdout=subprocess.PIPE, check=True
        )
        spawned = multiprocessing.get_context("spawn").Process(target=sleep, daemon=True)
        spawned.start()
        told = {"own": os.getpid(), "others": [child.pid, int(orphan.stdout), spawned.pid]}
        Path(path).write_text(json.dumps(told))

    def do_garble(self, _: str) -> None:
        """Write into the protocol."""
        os.write(socket_of_the_protocol(), b"This is no frame, however long you look at it.")

    def do_boast(self, _: str) -> None:
        """Announce more than a frame may hold."""
        os.write(socket_of_the_protocol(), LENGTHS.pack(MAGIC, 2, 2**40))

    def do_raise(self, text: str) -> None:
        """Raise what nobody knows, the text in its message."""
        raise LookupError(text)

    def do_cancel(self, _: str) -> None:
        """Raise what is no ``Exception``, and ends no process."""
        raise CancelledError

    def do_lamp(self, _: str) -> None:
        """Raise an error of its own."""
        raise LampError("The lamp is out.")

    def do_square(self, _: str) -> list[Any]:
        """Samples of another shape."""
        return [np.zeros((2, 3), np.float32)]

    def do_double(self, _: str) -> list[Any]:
        """Samples of another type, none of them next to another."""
        return [np.linspace(-1, 1, 9)[::2]]

    def do_lie(self, _: str) -> list[Any]:
        """Results for more segments than there are."""
        return [np.ones(3, np.float32), np.ones(2, np.float32)]

    def do_where(self, path: str) -> None:
        """Tell where it is."""
        told = {
            "python": sys.executable,
            "path": sys.path,
            "environment": dict(os.environ),
            "modules": sorted(sys.modules),
            "threads": thread_share(),
            "standard input": os.readlink("/proc/self/fd/0"),
        }
        Path(path).write_text(json.dumps(told))


class PlainEngine:
    """Speaks as tones do, and clones nothing."""

    def __init__(self) -> None:
        self._tones = ToneEngine()
        self.synthesize = self._tones.synthesize
        self.after_batch = self._tones.after_batch
        self.unload = self._tones.unload

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """As the tones, but for what it can't do."""
        return replace(self._tones.load(options), cloning=False)


def sleep() -> None:
    """What a spawned process does."""
    subprocess.run(SLEEPS, check=False)


def socket_of_the_protocol() -> int:
    """The only socket of this process."""
    (found,) = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if Path(f"/proc/self/fd/{name}").is_symlink()
        and os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    ]
    return found

"""Loads an engine in a process of its own and writes down what it does to that process.

``python probe.py REQUEST REPORT``: both are JSON files. There is no network for this process: the
kernel ends it when it asks for a socket of the internet, whoever asks, Python or a library.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from worker.engines import load_engine
from worker.engines.base import Engine, Segment, SynthesisOptions

CALLS = 200
WARM_CALLS = 9
LEAST_SECONDS = 0.5

SOCKET_CALL = {"x86_64": 41, "aarch64": 198}
INTERNET = (2, 10)
"""AF_INET and AF_INET6."""
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, TRAP = 0x7FFF0000, 0x00030000
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16


class Program(ctypes.Structure):
    """The kernel's ``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def cut_off() -> None:
    """Have the kernel end this process when it makes a socket of the internet."""
    steps = [
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_EQUAL, 0, 4, SOCKET_CALL[os.uname().machine]),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (JUMP_IF_EQUAL, 1, 0, INTERNET[0]),
        (JUMP_IF_EQUAL, 0, 1, INTERNET[1]),
        (RETURN, 0, 0, TRAP),
        (RETURN, 0, 0, ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    program = Program(len(steps), ctypes.cast(ctypes.create_string_buffer(code), ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        (SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        (SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "the network could not be cut off")


def refuse(event: str, _arguments: Any) -> None:
    """An audit hook that says where Python asked for the network, before the kernel is asked."""
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise RuntimeError(f"The engine asked for the network: {event}.")


def globals_of_the_process() -> dict[str, str]:
    """What an engine has to leave as it is."""
    root = logging.getLogger()
    kept = {
        "logging": f"{root.level} {root.handlers} {root.filters} {logging.root.manager.disable} "
        f"{logging.getLoggerClass()}",
        "signal handlers": str([signal.getsignal(one) for one in signal.valid_signals()]),
        "random": str(random.getstate()),
        "numpy's random": str(np.random.get_state()),
        "working directory": str(Path.cwd()),
    }
    if "torch" in sys.modules:
        state = sys.modules["torch"].random.get_rng_state()
        kept["torch's random"] = state.numpy().tobytes().hex()
    return kept


def changed(before: dict[str, str]) -> list[str]:
    """Names of what is not as it was."""
    after = globals_of_the_process()
    return [name for name in before if before[name] != after[name]]


def resident() -> int:
    """Bytes of memory, once all that is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def threads() -> int:
    """Threads of this process, those of libraries among them."""
    return len(list(Path("/proc/self/task").iterdir()))


def cores_used(speak: Any) -> float:
    """CPU time over wall time of calls."""
    wall, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < LEAST_SECONDS:
        speak()
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def look_at(engine: Engine, request: dict[str, Any]) -> dict[str, Any]:
    """What the engine does to this process."""
    before_torch = globals_of_the_process()
    if request["uses_torch"]:
        __import__("torch")
    before = {**globals_of_the_process(), **before_torch}
    threads_before = threads()
    able = engine.load(request["options"])
    voice = able.voices[0].name
    told = SynthesisOptions(language=request["language"], named=request["still"])

    def speak(text: str, seed: int | None = None) -> Any:
        (spoken,) = engine.synthesize([Segment(text, seed)], voice, told)
        return spoken

    changed_by_load = changed(before)
    for seed in (None, 7):
        speak(request["texts"][0], seed if able.seed else None)
    report = {
        "changed by load": changed_by_load,
        "changed by speaking": changed(before),
        "cores": cores_used(lambda: speak(request["texts"][0])),
        "threads": threads() - threads_before,
    }
    texts = request["short_texts"]
    for number in range(WARM_CALLS):
        speak(texts[number % len(texts)])
    warm = resident()
    began, calls = time.process_time(), 0
    while calls < CALLS and time.process_time() - began < request["most_seconds"]:
        speak(texts[calls % len(texts)])
        calls += 1
    report["calls"] = calls
    report["growth"] = resident() - warm
    first = speak(texts[0], 7 if able.seed else None)
    engine.unload()
    unloaded = resident()
    again = engine.load(request["options"])
    report["is_able_again"] = again == able
    second = speak(texts[0], 7 if able.seed else None)
    report["sounds_the_same"] = bool(np.array_equal(first, second))
    report["taken"] = resident() - unloaded
    engine.unload()
    report["kept"] = resident() - unloaded
    report["changed"] = changed(before)
    return report


def main() -> None:
    """Read the request, write the report."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    sys.addaudithook(refuse)
    faulthandler.register(signal.SIGSYS, chain=True)
    cut_off()
    report = look_at(load_engine(request["name"]), request)
    Path(sys.argv[2]).write_text(json.dumps(report), "utf-8")


if __name__ == "__main__":
    main()

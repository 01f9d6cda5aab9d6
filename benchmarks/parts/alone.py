"""A function in a process of its own: what it loads and takes is no one else's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from voicemill.errors import VoicemillError

Result = TypeVar("Result")

LONGEST_SECONDS = 1800.0
KIBIBYTE = 1024


class ProcessLostError(Exception):
    """The process took too long, or ended without a result."""


def alone(
    function: Callable[..., Result], *arguments: Any, seconds: float = LONGEST_SECONDS
) -> Result:
    """What a function gives in a fresh process, which is gone when this returns.

    Raises what it raises of our errors and of imports that fail, and ``ProcessLostError``.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise ProcessLostError(f"took longer than {seconds:g} s")
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise ProcessLostError(f"ended with status {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if error is not None:
        raise error
    return result


def answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """What runs there."""
    try:
        told = (function(*arguments), None)
    except (VoicemillError, ModuleNotFoundError) as error:
        told = (None, error)
    sender.send(told)


def peak_bytes(pids: Iterable[int]) -> int:
    """The most that each of these processes has had resident so far, together."""
    return sum(peak_of(Path(f"/proc/{pid}/status").read_text()) for pid in pids)


def peak_of(status: str) -> int:
    """Bytes by the kernel's text about a process."""
    words = status.partition("VmHWM:")[2].split()
    return int(words[0]) * KIBIBYTE

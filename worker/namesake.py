"""One worker per node name: a second would take the work of the first for lost."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from voicemill.errors import SettingsError
from voicemill.store import Store
from voicemill.workers import Claim

BEATS_SECONDS = 3.0
"""A worker that lives is heard of within this time."""
POLL_SECONDS = 0.1
START_FIELD = 18
"""Of /proc/PID/stat behind the state: ticks from the machine's start to the process's (proc(5))."""


def this_machine() -> str:
    """What a process id is unique in: one boot of one machine, and there one pid namespace.

    Where processes can't be looked at, each is a machine of its own.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} {os.getpid()}"


def claim_name(store: Store, node: str, mine: Claim, lease_seconds: float) -> None:
    """Take the node name, or keep it for another lease.

    Raises ``SettingsError`` while another worker that lives has it.
    """

    def ask(stale: Claim | None = None) -> tuple[Claim, float]:
        return store.claim_name(node, mine, lease_seconds, instead_of=stale)

    held, seconds = ask()
    while held != mine:
        is_here = held.machine == mine.machine
        if born_at(held.pid) == held.born if is_here else is_heard_again(ask, held, seconds):
            raise SettingsError(
                f"A worker named {node} runs already, as process {held.pid}. Give this one another "
                "name (celery worker -n NAME@%h), or stop that one first."
            )
        held, seconds = ask(held)


def born_at(pid: int) -> float | None:
    """When a process of this machine began, by a clock that nobody sets; nothing for a dead one."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state == "Z" else float(rest[START_FIELD])


def is_heard_again(ask: Callable[[], tuple[Claim, float]], held: Claim, seconds: float) -> bool:
    """Whether a worker that we can't look at renews its claim, which has ``seconds`` left."""
    deadline = time.monotonic() + BEATS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        now_held, left = ask()
        if now_held != held or left > seconds:
            return now_held == held
        seconds = left
    return False

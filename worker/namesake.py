"""One worker per node name: a second would take the work of the first for lost."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from voicemill.errors import SettingsError
from voicemill.store import Store
from voicemill.workers import Claim

BEATS_SECONDS = 3.0
"""A worker that lives is heard of within this time."""
POLL_SECONDS = 0.1
CLOCK_SLACK_SECONDS = 5.0
"""By how much the kernel's account of a process's start may be off."""


def this_machine() -> str:
    """What a process id is unique in: one boot of one machine, and there one pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def claim_name(store: Store, node: str, mine: Claim, lease_seconds: float) -> None:
    """Take the node name, or keep it for another lease.

    Raises ``SettingsError`` while another worker that lives has it.
    """

    def ask(stale: Claim | None = None) -> tuple[Claim, float]:
        return store.claim_name(node, mine, lease_seconds, instead_of=stale)

    held, seconds = ask()
    while held != mine:
        is_here = held.machine == mine.machine
        if is_running(held) if is_here else is_heard_again(ask, held, seconds):
            raise SettingsError(
                f"A worker named {node} runs already, as process {held.pid}. Give this one another "
                "name (celery worker -n NAME@%h), or stop that one first."
            )
        held, seconds = ask(held)


def is_running(held: Claim) -> bool:
    """Whether the process of a worker of this machine is there, and is no later one of its pid."""
    try:
        process = psutil.Process(held.pid)
        born = process.create_time() - CLOCK_SLACK_SECONDS
        is_it = process.pid != os.getpid() and born <= held.started_at
        return is_it and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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

"""One worker per node name: a second would take the work of the first for lost."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import psutil

from voicemill.errors import SettingsError
from voicemill.store import Store
from voicemill.workers import WorkerRecord

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


def refuse_namesake(store: Store, node: str) -> None:
    """Raise ``SettingsError`` while another worker of this node name is alive."""
    heard = store.worker(node)
    if heard is None:
        return
    record, until = heard
    if record.machine == this_machine():
        lives = is_running(record)
    else:
        lives = is_heard_again(store, node, until)
    if lives:
        raise SettingsError(
            f"A worker named {node} runs already, as process {record.pid}. Give this one another "
            "name (celery worker -n NAME@%h), or stop that one first."
        )


def is_running(record: WorkerRecord) -> bool:
    """Whether the process of a worker of this machine is there, and is no later one of its pid."""
    try:
        process = psutil.Process(record.pid)
        born = process.create_time() - CLOCK_SLACK_SECONDS
        is_it = process.pid != os.getpid() and born <= record.started_at
        return is_it and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_heard_again(store: Store, node: str, until: float) -> bool:
    """Whether a worker that we can't look at goes on to say that it lives."""
    deadline = time.monotonic() + BEATS_SECONDS
    while time.monotonic() < deadline:
        heard = store.worker(node)
        if heard is None:
            return False
        if heard[1] > until:
            return True
        time.sleep(POLL_SECONDS)
    return False

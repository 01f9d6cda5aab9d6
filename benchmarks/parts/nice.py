"""Children that load at a lower priority: what a throttle would give back, tried from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from benchmarks.parts.stack import Stack

LOW = 10
PAUSE_SECONDS = 0.05


@contextmanager
def loading_is_nice(stack: Stack) -> Iterator[None]:
    """New children run at nice 10 until they are ready. Raising it again needs root."""
    is_over = threading.Event()
    watch = threading.Thread(target=keep_nice, args=(stack, is_over))
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


def keep_nice(stack: Stack, is_over: threading.Event) -> None:
    """Lower those that load, raise those that are loaded."""
    parent = psutil.Process(stack.pid)
    lowered = {child.pid for child in parent.children()}
    while not is_over.wait(PAUSE_SECONDS):
        for child in parent.children():
            with suppress(psutil.NoSuchProcess):
                if child.pid not in lowered:
                    lowered.add(child.pid)
                    child.nice(LOW)
                elif child.nice() == LOW and is_ready(stack, child.pid):
                    child.nice(0)


def is_ready(stack: Stack, pid: int) -> bool:
    """Whether a child has loaded."""
    return any(child.pid == pid for child in stack.store.fleet().children.values())

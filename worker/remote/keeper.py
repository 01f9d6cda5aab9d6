"""Starts an engine's process and sees to it that nothing of it is left when either side ends.

The first process of the other side. It divides before anything is loaded: one half becomes the
engine's process, the other does nothing but watch. It ends all that came of the engine, whatever
its group or session, when the child is gone (the kernel closes the child's end of the socket,
however the child died) or when the engine's process is. Linux alone has what it takes.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36
PAUSE_SECONDS = 0.005
BY_SIGNAL = 128
"""Added to the number of the signal that ended the engine's process, as shells do."""


def main(end: int, trace: int) -> None:
    """Be the engine's process, or its keeper; ``end`` and ``trace`` are open descriptors."""
    control_process(SET_CHILD_SUBREAPER, 1)
    keeper = os.getpid()
    bell, rings = os.pipe()
    os.set_blocking(rings, False)
    signal.signal(signal.SIGCHLD, ring)
    signal.set_wakeup_fd(rings)
    engine = os.fork()
    if not engine:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(bell)
        os.close(rings)
        be_engine(keeper, end, trace)
    os.close(trace)
    # The log is at its end when nobody is left who could write to it, and this process does not.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    status = watch(engine, end, bell)
    end_all(status)


def be_engine(keeper: int, end: int, trace: int) -> None:
    """Load and speak until the child has no more to ask; does not return."""
    control_process(SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:
        os._exit(BY_SIGNAL + signal.SIGKILL)
    os.setpgid(0, 0)
    from worker.remote.host import serve

    serve(end, trace)
    sys.exit(0)


def watch(engine: int, end: int, bell: int) -> int | None:
    """Wait until the child or the engine's process is gone; gives the status of the latter."""
    poll = select.poll()
    # A hang-up is told of whatever is asked for; what is written is none of the keeper's business.
    poll.register(end, 0)
    poll.register(bell, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if bell in ready:
            os.read(bell, 4096)
        status = reaped(engine)
        if status is not None or end in ready:
            return status


def reaped(engine: int) -> int | None:
    """The status of the engine's process once it has ended; orphans are cleared away."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        if pid == engine:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else BY_SIGNAL - code


def end_all(status: int | None) -> None:
    """Kill until nothing is left; orphans come to this process, so none is missed."""
    while True:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            os._exit(BY_SIGNAL + signal.SIGKILL if status is None else status)
        time.sleep(PAUSE_SECONDS)


def descendants(root: int) -> Iterator[int]:
    """Pids of all that came of a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = parent_of(name)
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            waiting.append(pid)
            yield pid


def parent_of(pid: str) -> int | None:
    """Who a process came of; nothing for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def ring(_signal: int, _frame: object) -> None:
    """That it is handled at all makes Python write to the wake-up descriptor."""


def control_process(option: int, value: int) -> None:
    """prctl(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")

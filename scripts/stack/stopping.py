"""For those who run a whole stack as a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess

STOP_SECONDS = 60.0


def stop(stack: subprocess.Popen[bytes]) -> None:
    """Stop a stack in its own order; by force where that takes over ``STOP_SECONDS``.

    It leads a session of its own; its standard output, where that is a pipe, is closed.
    """
    stack.terminate()
    try:
        stack.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(stack.pid, signal.SIGKILL)
        stack.wait()
    finally:
        if stack.stdout:
            stack.stdout.close()

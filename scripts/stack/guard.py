"""Ends the parts of a supervisor that was killed. Started by it, as a process of its own.

Reads lines ``+PID`` and ``-PID`` (a part began, ended) from standard input. The end of input
means the supervisor is gone. The kernel has then sent TERM to the parts; what is still there
after a while is killed with all it started. Until then the guard holds the lock of the home, so
that no second Redis can open the same files.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.05


def parts_left(lines: Iterable[str]) -> set[int]:
    """The parts that had begun and not ended when the input stopped."""
    parts: set[int] = set()
    for line in lines:
        pid = int(line[1:])
        if line[0] == "+":
            parts.add(pid)
        else:
            parts.discard(pid)
    return parts


def signal_group(leader: int, number: int) -> bool:
    """Signal a part and what it started; False when nothing of it is left."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Wait for the end of the supervisor, then for the end of its parts."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parts = parts_left(sys.stdin)
    give_up = time.monotonic() + GRACE_SECONDS
    while parts and time.monotonic() < give_up:
        parts = {part for part in parts if signal_group(part, 0)}
        time.sleep(POLL_SECONDS)
    for part in parts:
        signal_group(part, signal.SIGKILL)


if __name__ == "__main__":
    main()

"""One part as a process: started in a session of its own, ended with all that it started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from scripts.stack.guard import signal_group
from scripts.stack.parts import ROOT, Part

PR_SET_PDEATHSIG = 1
GUARD = Path(__file__).with_name("guard.py")

_libc = ctypes.CDLL(None, use_errno=True)


class PartProcess:
    """A running part."""

    def __init__(self, part: Part, log: Path) -> None:
        self.part = part
        supervisor = os.getpid()

        def die_with_supervisor() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != supervisor:
                os._exit(1)

        with log.open("ab") as output:
            self._process = subprocess.Popen(
                part.argv,
                env=part.env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches the supervisor alone.
                start_new_session=True,
                preexec_fn=die_with_supervisor,
            )
        self.pid = self._process.pid

    def ended(self) -> bool:
        """True once it ended. It is not reaped, so that its pid still names its group."""
        if self._process.returncode is not None:
            return True
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def signal(self, number: signal.Signals) -> None:
        """Signal the part itself, not what it started."""
        self._process.send_signal(number)

    def clear(self) -> int:
        """Kill what is left of it and of what it started; gives its status as ``Popen`` does."""
        signal_group(self.pid, signal.SIGKILL)
        return self._process.wait()


class Guard:
    """The process that ends the parts if this one is killed."""

    def __init__(self, lock: int) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-I", str(GUARD)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lock,),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin

    def began(self, pid: int) -> None:
        """A part began."""
        self._tell(f"+{pid}\n")

    def ended(self, pid: int) -> None:
        """A part ended, and nothing of it is left."""
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        """End the guard."""
        with suppress(BrokenPipeError):
            self._input.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        # Without a guard the parts have lost one of two nets, and run as before.
        with suppress(BrokenPipeError):
            self._input.write(line.encode())
            self._input.flush()


def describe_status(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def written_since(log: Path, start: int) -> str:
    """What a log got since it was ``start`` bytes long."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")

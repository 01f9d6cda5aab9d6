"""Starts parts, starts them again when they die, and stops them in the reverse order."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from scripts.stack.errors import CannotStartError, StackError, StopRequested
from scripts.stack.home import Home
from scripts.stack.parts import Part
from scripts.stack.process import Guard, PartProcess, describe_status, written_since
from scripts.stack.signals import Signals

logger = logging.getLogger("up")

LONGEST_SLEEP_SECONDS = 60.0
LOG_LINES_SHOWN = 20
COMPLAINT = re.compile(r"CRITICAL.*?\] (.+)")
"""As Celery writes it: level and process in brackets, then the message."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How a part that dies is started again."""

    first_seconds: float = 0.5
    most_seconds: float = 30.0
    healthy_seconds: float = 60.0
    """A part that ran for so long has no deaths behind it."""
    deaths_before_ready: int = 5
    """With so many in a row before the stack is ready it never will be."""

    def pause(self, deaths: int) -> float:
        """Seconds to wait after this many deaths in a row."""
        return min(self.most_seconds, self.first_seconds * 2.0 ** min(deaths - 1, 30))


@dataclass(slots=True)
class Watched:
    """A part and what became of it."""

    part: Part
    log_start: int
    """Bytes its log had before this run."""
    process: PartProcess | None = None
    began_at: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0


class Supervisor:
    """Owns the processes of a stack; leaving its context stops them all."""

    def __init__(
        self, home: Home, signals: Signals, lock: int, policy: RestartPolicy | None = None
    ) -> None:
        self.ready = False
        """Set by the owner: from then on no number of deaths ends the stack."""
        self._home = home
        self._signals = signals
        self._policy = policy or RestartPolicy()
        self._watched: list[Watched] = []
        self._guard = Guard(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, part: Part) -> None:
        """Start a part and watch over it."""
        log = self._home.log(part.name)
        watched = Watched(part, log.stat().st_size if log.exists() else 0)
        self._watched.append(watched)
        self._begin(watched)

    def pid(self, name: str) -> int | None:
        """The process of a part now, unless it is between two."""
        return self._pids().get(name)

    def wait_for(self, holds: Callable[[], bool], seconds: float, poll: float = 0.1) -> bool:
        """Watch over the parts until ``holds()``; False when it does not within ``seconds``.

        Raises ``StopRequested``, or ``StackError`` for a part that does not stay up.
        """
        give_up = time.monotonic() + seconds
        while True:
            self.tend()
            if holds():
                return True
            if time.monotonic() > give_up:
                return False
            self._signals.wait(poll)

    def watch(self) -> None:
        """Watch over the parts for good; ends by the errors of ``wait_for``."""
        while True:
            self.tend()
            now = time.monotonic()
            pauses = [one.restart_at - now for one in self._watched if one.process is None]
            self._signals.wait(min([LONGEST_SLEEP_SECONDS, *pauses]))

    def tend(self) -> None:
        """Look after each part once."""
        if self._signals.stop:
            raise StopRequested
        for watched in self._watched:
            if watched.process is not None and watched.process.ended():
                self._bury(watched, watched.process)
            if watched.process is None and time.monotonic() >= watched.restart_at:
                self._begin(watched)

    def stop(self) -> None:
        """Stop every part, the last started first; nothing they started is left."""
        for watched in reversed(self._watched):
            if watched.process is not None:
                self._end(watched, watched.process)
        self._watched.clear()
        self._guard.close()
        self._home.forget_run()

    def _begin(self, watched: Watched) -> None:
        try:
            process = PartProcess(watched.part, self._home.log(watched.part.name))
        except OSError as error:
            watched.began_at = time.monotonic()
            self._note_death(watched, f"could not be started: {error}")
            return
        self._guard.began(process.pid)
        watched.process, watched.began_at = process, time.monotonic()
        self._home.write_pids(self._pids())
        logger.info("%s started (pid %d)", watched.part.name, process.pid)

    def _bury(self, watched: Watched, process: PartProcess) -> None:
        """Clear a dead part away and say when it comes back."""
        status = self._clear(watched, process)
        if not self.ready and status == watched.part.misconfigured_status:
            raise CannotStartError(self._complaint(watched))
        hopeless = status == watched.part.hopeless_status
        self._note_death(watched, describe_status(status), hopeless=hopeless)

    def _note_death(self, watched: Watched, how: str, *, hopeless: bool = False) -> None:
        name, policy = watched.part.name, self._policy
        lived = time.monotonic() - watched.began_at
        watched.deaths = 1 if lived >= policy.healthy_seconds else watched.deaths + 1
        if not self.ready and (hopeless or watched.deaths >= policy.deaths_before_ready):
            raise StackError(self._obituary(watched, how))
        pause = policy.pause(watched.deaths)
        watched.restart_at = time.monotonic() + pause
        logger.warning("%s died (%s); again in %g s", name, how, pause)

    def _complaint(self, watched: Watched) -> str:
        """The first line by which a part said why it can't start."""
        log = self._home.log(watched.part.name)
        found = COMPLAINT.search(written_since(log, watched.log_start))
        return found[1] if found else f"{watched.part.name} refuses its settings; see {log}."

    def _obituary(self, watched: Watched, how: str) -> str:
        log = self._home.log(watched.part.name)
        lines = written_since(log, watched.log_start).splitlines()
        return "\n".join(
            (
                f"{watched.part.name} does not stay up ({how}, {watched.deaths} in a row). "
                f"The end of {log}:",
                *lines[-LOG_LINES_SHOWN:],
            )
        )

    def _end(self, watched: Watched, process: PartProcess) -> None:
        """Stop a part: its stop signal, then KILL."""
        part = watched.part
        if not process.ended():
            process.signal(part.stop_signal)
        give_up = time.monotonic() + part.stop_seconds
        while not process.ended() and (left := give_up - time.monotonic()) > 0:
            self._signals.wait(left)
        if not process.ended():
            logger.warning("%s did not stop in time; killed", part.name)
        status = self._clear(watched, process)
        logger.info("%s stopped (%s)", part.name, describe_status(status))

    def _clear(self, watched: Watched, process: PartProcess) -> int:
        status = process.clear()
        self._guard.ended(process.pid)
        watched.process = None
        self._home.write_pids(self._pids())
        return status

    def _pids(self) -> dict[str, int]:
        return {one.part.name: one.process.pid for one in self._watched if one.process is not None}

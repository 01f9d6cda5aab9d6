"""Showing a person how far a run is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LINE_EVERY_SECONDS = 5.0


@dataclass(slots=True)
class Tally:
    """How far a run is."""

    total_rows: int
    total_characters: int
    clock: Callable[[], float] = time.monotonic
    rows: int = 0
    characters: int = 0
    failed: int = 0
    audio_seconds: float = 0.0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, *, characters: int, audio_seconds: float | None) -> None:
        """Count one row that has ended; no ``audio_seconds`` means it failed."""
        self.rows += 1
        self.characters += characters
        if audio_seconds is None:
            self.failed += 1
        else:
            self.audio_seconds += audio_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Wall time since the start."""
        return max(self.clock() - self.started, 1e-6)

    @property
    def times_real_time(self) -> float:
        """Seconds of audio made in a second."""
        return self.audio_seconds / self.elapsed_seconds

    @property
    def remaining_seconds(self) -> float | None:
        """Wall time still to go if characters go on at the same pace; unknown at first."""
        if self.rows == self.total_rows:
            return 0.0
        if not self.characters:
            return None
        left = self.total_characters - self.characters
        return self.elapsed_seconds * left / self.characters

    def __str__(self) -> str:
        failed = f" ({self.failed} failed)" if self.failed else ""
        remaining = self.remaining_seconds
        eta = "?" if remaining is None else clock_time(remaining)
        return (
            f"{self.rows}/{self.total_rows} rows{failed}, {self.audio_seconds:.1f} s of audio, "
            f"{self.times_real_time:.1f} x real time, ETA {eta}"
        )


class Display(Protocol):
    """Where progress is shown."""

    def show(self, tally: Tally) -> None:
        """Show how far the run is."""

    def note(self, text: str) -> None:
        """Tell of something that happened on the way."""

    def close(self) -> None:
        """Leave what was shown last."""


class Silence:
    """Shows nothing."""

    def show(self, tally: Tally) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A plain line every few seconds, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = 0.0
        self._rows_shown = -1

    def show(self, tally: Tally) -> None:
        """Write a line if there is news and it is due, or the run is over."""
        now = tally.clock()
        due = now >= self._next or tally.rows == tally.total_rows
        if due and tally.rows != self._rows_shown:
            self._next, self._rows_shown = now + LINE_EVERY_SECONDS, tally.rows
            self.note(str(tally))

    def note(self, text: str) -> None:
        """Write a line."""
        say(self._stream, text)

    def close(self) -> None:
        """Nothing is left to do."""


class Bar:
    """A bar that stays in its place on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        self._progress = Progress(
            *columns, console=Console(file=stream), refresh_per_second=4, redirect_stdout=False
        )
        self._task = self._progress.add_task("", total=None)

    def show(self, tally: Tally) -> None:
        """Move the bar, drawing it the first time."""
        self._progress.update(
            self._task,
            total=tally.total_characters,
            completed=tally.characters,
            description=str(tally),
        )
        self._progress.start()

    def note(self, text: str) -> None:
        """Write a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Draw the bar a last time and let go of the terminal."""
        self._progress.stop()


def display_on(stream: TextIO, *, quiet: bool = False) -> Display:
    """The display that fits a stream."""
    if quiet:
        return Silence()
    return Bar(stream) if stream.isatty() else Lines(stream)


def clock_time(seconds: float) -> str:
    """Seconds as 0:07, 12:30 or 1:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def say(stream: TextIO, *lines: str) -> None:
    """Write lines to a stream; once nobody takes them there, they lead nowhere."""
    try:
        print(*lines, sep="\n", file=stream, flush=True)
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())

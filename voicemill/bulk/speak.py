"""A CSV to speech in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from voicemill.bulk.errors import FolderError, place
from voicemill.bulk.folder import OutputFolder
from voicemill.bulk.manifest import Manifest, RowEnd
from voicemill.bulk.plan import make_change, make_plan
from voicemill.bulk.progress import Display
from voicemill.bulk.report import fault_of, write_reports
from voicemill.bulk.rows import Row, RowFault
from voicemill.bulk.runner import BulkRun
from voicemill.bulk.table import STANDARD_INPUT, Table, read_table
from voicemill.client import Client

FIRST_CONTACT_SECONDS = 3.0
"""Patience before anything was sent: a wrong URL should not keep a person waiting."""
FAILURES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to."""

    folder: Path
    rows: int
    spoken_before: int
    """Rows that an earlier run had finished."""
    failures: tuple[tuple[Row, RowFault], ...]
    audio_seconds: float
    """Made in this run."""
    wall_seconds: float

    def lines(self) -> Iterator[str]:
        """The summary for a person."""
        if not self.rows:
            yield "The table has a header and no rows: nothing to speak."
            return
        before = f", {self.spoken_before} of them by an earlier run" if self.spoken_before else ""
        yield f"{self.rows - len(self.failures)} of {self.rows} rows spoken{before}."
        codes = Counter(fault.code for _, fault in self.failures)
        for code, count in codes.most_common():
            yield f"{count} failed: {code}"
        for row, fault in self.failures[:FAILURES_SHOWN]:
            yield f"  {place(row.line, row.record)}{row.id[:80]}: {fault.message}"
        if len(self.failures) > FAILURES_SHOWN:
            yield f"  and {len(self.failures) - FAILURES_SHOWN} more, all in errors.csv"
        if self.audio_seconds:
            yield (
                f"{self.audio_seconds:.1f} s of audio in {self.wall_seconds:.1f} s: "
                f"{self.audio_seconds / self.wall_seconds:.1f} x real time."
            )
        for name in ("results.csv", "errors.csv", "audio"):
            yield f"{name + ':':<12} {self.folder / name}"


def speak_csv(
    source: Path,
    out: Path,
    url: str,
    display: Display,
    *,
    api_key: str | None = None,
    delimiter: str = ",",
    in_place: bool = False,
) -> Summary:
    """Have every row of a CSV spoken into a folder, going on where an earlier run stopped.

    However it ends, ``results.csv`` and ``errors.csv`` say what was done so far.
    Raises ``BulkError`` when the file or the folder can't be used and
    ``ClientError`` when the server can't.
    """
    table = read_table(source, delimiter=delimiter)
    with OutputFolder(out) as folder, Manifest(folder.manifest_path) as manifest:
        take_over(folder, manifest, table, display)
        plan = make_plan(table, manifest.history, folder.holds)
        if plan.pending or plan.awaited:
            greet(url, api_key)
        with Client(url, api_key=api_key) as client:
            run = BulkRun(client, folder, manifest, plan, display, in_place=in_place)
            try:
                run.run()
            finally:
                display.close()
                write_reports(folder, table, manifest.history.ends)
        return Summary(
            folder=folder.path,
            rows=len(table.rows),
            spoken_before=len(plan.done),
            failures=failures(table, manifest.history.ends),
            audio_seconds=run.tally.audio_seconds,
            wall_seconds=run.tally.elapsed_seconds,
        )


def take_over(folder: OutputFolder, manifest: Manifest, table: Table, display: Display) -> None:
    """Let the table's results stand in the folder, where they drop none of another's.

    Raises ``FolderError`` where they would. A table that was edited may drop its
    own, unless it has none of the finished rows left; the display is told.
    """
    change = make_change(table, manifest.history)
    finished = change.kept + change.changed + change.gone
    former = manifest.history.table
    edited = table.source == former != STANDARD_INPUT and change.gone < finished
    if finished > change.kept and not edited:
        raise FolderError(
            f"{folder.path} holds {finished} spoken rows of {former or 'an earlier table'}; "
            f"{finished - change.kept} of them are not in {table.source} as they were, and their "
            "results would be dropped. Give another --out, or run the former table again to "
            "retry what failed."
        )
    if change.changed:
        display.note(f"Edited since they were spoken, to be spoken again: {change.changed}.")
    if change.gone:
        display.note(
            f"Spoken, and taken out of the table since: {change.gone}. "
            "Their audio stays, results.csv leaves them out."
        )
    manifest.add_table(table.source)


def greet(url: str, api_key: str | None) -> None:
    """Raise ``ClientError`` soon unless a Voicemill server answers."""
    with Client(url, api_key=api_key, patience_seconds=FIRST_CONTACT_SECONDS) as client:
        client.models()


def failures(table: Table, ends: Mapping[str, RowEnd]) -> tuple[tuple[Row, RowFault], ...]:
    """The rows without audio, and why."""
    faults = ((row, fault_of(row, ends)) for row in table.rows)
    return tuple((row, fault) for row, fault in faults if fault)

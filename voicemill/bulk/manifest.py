"""The manifest: an append-only record, one JSON line each, of what a bulk run has done.

Three kinds of line, all with ``schema: 1``. A table line, written before the
first row of another table than before: ``{"table"}``. A job line, written when
the server has accepted the job: ``{"job", "rows": {id: fingerprint}}``. A row
line, written when a row has ended: ``{"id", "fingerprint", "job", "status", …}``.
The last line of a row holds. Lines of another schema are left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self

from voicemill.bulk.errors import ManifestError
from voicemill.bulk.rows import RowFault

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class SpokenAudio:
    """The audio of a row that succeeded."""

    path: str
    """Relative to the output folder, so that the folder can be moved."""
    sha256: str
    size_bytes: int
    duration_seconds: float
    sample_rate: int
    """Hz."""


@dataclass(frozen=True, slots=True)
class RowEnd:
    """How a row ended."""

    id: str
    fingerprint: str
    """Of what was asked (``Row.fingerprint``)."""
    job: str | None
    """The job it was an item of; none when the server refused it at the door."""
    attempts: int
    audio: SpokenAudio | None = None
    fault: RowFault | None = None

    @property
    def status(self) -> Literal["succeeded", "failed"]:
        """``succeeded`` when there is audio."""
        return "succeeded" if self.audio else "failed"

    def to_record(self) -> dict[str, Any]:
        """The manifest's line."""
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "id": self.id,
            "fingerprint": self.fingerprint,
            "job": self.job,
            "status": self.status,
            "attempts": self.attempts,
        }
        if self.audio:
            record |= asdict(self.audio)
        if self.fault:
            record["error"] = asdict(self.fault)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> RowEnd:
        """The end that a line tells of."""
        audio = fault = None
        if record["status"] == "succeeded":
            audio = SpokenAudio(
                path=record["path"],
                sha256=record["sha256"],
                size_bytes=record["size_bytes"],
                duration_seconds=record["duration_seconds"],
                sample_rate=record["sample_rate"],
            )
        else:
            error = record["error"]
            fault = RowFault(error["code"], error["message"], error["retryable"])
        return cls(
            id=record["id"],
            fingerprint=record["fingerprint"],
            job=record["job"],
            attempts=record["attempts"],
            audio=audio,
            fault=fault,
        )


@dataclass(slots=True)
class History:
    """What a manifest tells."""

    table: str | None = None
    """Where the rows come from (``Table.source``); none before the first run."""
    ends: dict[str, RowEnd] = field(default_factory=dict)
    """The last end of each row, by id."""
    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Jobs not fully collected: job id → the fingerprints of the rows still awaited, by row id."""

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in one line."""
        if record["schema"] != SCHEMA:
            return
        if "table" in record:
            self.table = str(record["table"])
            return
        if "rows" in record:
            self.jobs[record["job"]] = dict(record["rows"])
            return
        end = RowEnd.from_record(record)
        self.ends[end.id] = end
        awaited = self.jobs.get(end.job or "")
        if awaited is not None:
            awaited.pop(end.id, None)
            if not awaited:
                del self.jobs[end.job or ""]


class Manifest:
    """The manifest of an output folder, open for appending; one process at a time."""

    def __init__(self, path: Path) -> None:
        """Open it, making it if need be, and drop a last line that a crash left torn.

        Raises ``ManifestError`` for a whole line that can't be understood.
        """
        self.history = History()
        self._file: BinaryIO = path.open("a+b")
        try:
            self._file.truncate(self._take_in(path))
        # Ctrl-C too must close the file: nobody else can close what was never made.
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add_table(self, source: str) -> None:
        """Record which table the rows that follow come from."""
        if source != self.history.table:
            self._append([{"schema": SCHEMA, "table": source}])

    def add_job(self, job: str, rows: Mapping[str, str]) -> None:
        """Record a job that the server has accepted, with the fingerprints of its rows by id."""
        self._append([{"schema": SCHEMA, "job": job, "rows": dict(rows)}])

    def add_ends(self, ends: Iterable[RowEnd]) -> None:
        """Record rows that have ended."""
        self._append([end.to_record() for end in ends])

    def _append(self, records: list[dict[str, Any]]) -> None:
        # First, so that Ctrl-C in the middle finds nothing in the file that is not known here.
        for record in records:
            self.history.add(record)
        lines = "".join(json.dumps(record) + "\n" for record in records)
        self._file.write(lines.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def _take_in(self, path: Path) -> int:
        """Read all whole lines; gives where the last of them ends."""
        end = 0
        for number, line in self._whole_lines():
            try:
                self.history.add(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ManifestError(
                    f"{path}: line {number} can't be understood. Use another folder, or move "
                    "this file away to begin anew."
                ) from error
            end += len(line)
        return end

    def _whole_lines(self) -> Iterator[tuple[int, bytes]]:
        self._file.seek(0)
        for number, line in enumerate(self._file, start=1):
            if line.endswith(b"\n"):
                yield number, line

"""The two CSVs a run leaves: every row of the input is in exactly one of them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from voicemill.bulk.folder import OutputFolder
from voicemill.bulk.manifest import RowEnd
from voicemill.bulk.rows import Row, RowFault
from voicemill.bulk.table import Table

RESULT_COLUMNS = (
    "tts_status",
    "tts_path",
    "tts_sha256",
    "tts_duration_seconds",
    "tts_sample_rate",
    "tts_attempts",
)
ERROR_COLUMNS = (
    "tts_line",
    "tts_error_code",
    "tts_error_message",
    "tts_retryable",
    "tts_attempts",
)
NOT_SPOKEN = RowFault("not_spoken", "The run ended before this row was spoken.", retryable=True)


def write_reports(folder: OutputFolder, table: Table, ends: Mapping[str, RowEnd]) -> None:
    """Write ``results.csv`` and ``errors.csv``, in the order of the input."""
    results = ((*table.columns, *RESULT_COLUMNS), *result_lines(folder, table, ends))
    errors = ((*table.columns, *ERROR_COLUMNS), *error_lines(table, ends))
    write_csv(folder.results_path, results, table.delimiter)
    write_csv(folder.errors_path, errors, table.delimiter)


def end_of(row: Row, ends: Mapping[str, RowEnd]) -> RowEnd | None:
    """How a row ended, unless that was with another text or voice."""
    end = ends.get(row.id)
    if end is None or row.fault or end.fingerprint != row.fingerprint:
        return None
    return end


def fault_of(row: Row, ends: Mapping[str, RowEnd]) -> RowFault | None:
    """Why a row has no audio; nothing when it has."""
    if row.fault:
        return row.fault
    end = end_of(row, ends)
    return end.fault if end else NOT_SPOKEN


def result_lines(
    folder: OutputFolder, table: Table, ends: Mapping[str, RowEnd]
) -> Iterator[Sequence[object]]:
    """The lines of ``results.csv``."""
    for row in table.rows:
        end = end_of(row, ends)
        if end and end.audio:
            audio = end.audio
            yield (
                *row.cells,
                end.status,
                folder.path / audio.path,
                audio.sha256,
                f"{audio.duration_seconds:.3f}",
                audio.sample_rate,
                end.attempts,
            )


def error_lines(table: Table, ends: Mapping[str, RowEnd]) -> Iterator[Sequence[object]]:
    """The lines of ``errors.csv``."""
    for row in table.rows:
        fault = fault_of(row, ends)
        if fault:
            end = end_of(row, ends)
            yield (
                *row.cells,
                row.line,
                fault.code,
                fault.message,
                "true" if fault.retryable else "false",
                end.attempts if end else 0,
            )


def write_csv(path: Path, lines: Iterable[Sequence[object]], delimiter: str) -> None:
    """Write a CSV whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    # A server's message may quote half a character, which no UTF-8 file can hold.
    try:
        with part.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(lines)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)

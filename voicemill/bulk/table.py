"""Reading a CSV file whole, and saying everything that is wrong with it before anything is sent."""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from voicemill.bulk.errors import TableError, TableFault
from voicemill.bulk.prompts import with_prompts
from voicemill.bulk.rows import Row, RowFault, read_row
from voicemill.errors import DuplicateCustomIdError

KNOWN_COLUMNS = (
    "text",
    "id",
    "voice",
    "model",
    "language",
    "speed",
    "seed",
    "instructions",
    "response_format",
    "prompt_audio",
    "prompt_text",
    "prompt_language",
)
OWN_PREFIX = "tts_"
"""Columns that a run adds; dropped on reading, so that an errors.csv can be fed back."""
LARGEST_CELL = 2**31 - 1
STANDARD_INPUT = "standard input"
OTHER_ENCODINGS = {
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


@dataclass(frozen=True, slots=True)
class Table:
    """A file that can be run, though some of its rows may have faults."""

    columns: tuple[str, ...]
    """Its columns as they are written there, less our own ``tts_`` ones; ``id`` added if absent."""
    rows: tuple[Row, ...]
    delimiter: str = ","
    """What separates its cells; the results are written alike."""
    source: str = STANDARD_INPUT
    """The absolute path of its file."""


@dataclass(frozen=True, slots=True)
class Record:
    """One parsed record with its place in the file."""

    cells: list[str]
    line: int


class BrokenRecordError(Exception):
    """The file can't be read on from here."""

    def __init__(self, fault: TableFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def read_table(path: Path, *, delimiter: str = ",") -> Table:
    """Read and check the whole of a CSV file; ``-`` is the standard input.

    Raises ``TableError`` with every fault that makes the file unusable. A fault
    of a row alone (``Row.fault``) does not.
    """
    piped = path == Path("-")
    name, source = (STANDARD_INPUT,) * 2 if piped else (path.name, str(path.resolve()))
    try:
        text = (sys.stdin.buffer.read() if piped else path.read_bytes()).decode()
    except OSError as error:
        raise TableError(name, [TableFault(f"can't be read: {error.strerror}.")]) from error
    except UnicodeDecodeError as error:
        raise TableError(name, [encoding_fault(error)]) from error
    with unlimited_cells():
        file = io.StringIO(text.removeprefix(codecs.BOM_UTF8.decode()), newline="")
        table = parse_table(name, file, delimiter)
    folder = Path() if piped else path.parent
    return replace(table, source=source, rows=tuple(with_prompts(table.rows, folder)))


def parse_table(name: str, file: TextIO, delimiter: str = ",") -> Table:
    """``read_table`` on an open text file."""
    records = read_records(file, delimiter)
    try:
        header = next(records, None)
        if header is None:
            raise TableError(name, [TableFault("is empty; its first line must name the columns.")])
        columns = [cell.strip() for cell in header.cells]
        if faults := list(header_faults(columns, header.line, delimiter)):
            raise TableError(name, faults)
        body = list(records)
    except BrokenRecordError as error:
        raise TableError(name, [error.fault]) from error
    if faults := list(ragged_faults(body, len(columns))):
        raise TableError(name, faults)
    rows = read_rows(columns, body)
    if faults := list(duplicate_faults(rows)):
        raise TableError(name, faults)
    return Table(kept_columns(columns), tuple(without_case_clashes(rows)), delimiter)


@contextmanager
def unlimited_cells() -> Iterator[None]:
    """Lift the csv module's limit of 131,072 characters a cell, which is the process's own."""
    limit = csv.field_size_limit(LARGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def read_records(file: TextIO, delimiter: str) -> Iterator[Record]:
    """The records that are not blank; raises ``BrokenRecordError`` where reading must end."""
    reader = csv.reader(lines_without_nul(file), strict=True, delimiter=delimiter)
    number = 0
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except NulError as error:
            detail = "holds a NUL character; is this a text file?"
            raise broken(detail, error.line, number) from error
        except csv.Error as error:
            raise broken(quote_detail(error, line, reader.line_num), line, number) from error
        if cells:
            yield Record(cells, line)
            number += 1


class NulError(Exception):
    """A line holds a NUL."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def lines_without_nul(file: TextIO) -> Iterator[str]:
    """The physical lines; raises ``NulError`` at a NUL, which the csv module lets through."""
    for number, line in enumerate(file, start=1):
        if "\0" in line:
            raise NulError(number)
        yield line


def broken(detail: str, line: int, record: int) -> BrokenRecordError:
    """The end of reading, in the data record of this number; 0 is the header."""
    return BrokenRecordError(TableFault(detail, line, record or None))


def quote_detail(error: csv.Error, start: int, last: int) -> str:
    """What the csv module found, in words that help to find the place."""
    if "unexpected end of data" in str(error):
        return "a quote opened in this record is never closed."
    where = "" if last == start else f" in this record, which runs on to line {last}"
    return f'a quote inside a quoted cell must be doubled (""){where}; the reader says: {error}.'


def header_faults(columns: list[str], line: int, delimiter: str) -> Iterator[TableFault]:
    """What is wrong with the column names."""
    for number, column in enumerate(columns, start=1):
        if not column:
            yield TableFault(f"column {number} has no name.", line=line)
    for column, count in Counter(column.casefold() for column in columns if column).items():
        if count > 1:
            yield TableFault(f"column {column!r} is there {count} times.", line=line)
    if "text" not in (column.casefold() for column in columns):
        found = delimiter.join(columns)[:200]
        yield TableFault(f"column 'text' not found; found {found!r}.{hint(columns)}", line=line)


def hint(columns: list[str]) -> str:
    """What may be the matter when a header is a single column."""
    if len(columns) == 1:
        for delimiter, name in ((";", "';'"), ("\t", "tab"), ("|", "'|'")):
            if delimiter in columns[0]:
                return f" The cells seem to be separated by {name}: use --delimiter {name}."
    return ""


def ragged_faults(records: list[Record], width: int) -> Iterator[TableFault]:
    """The records whose cells can't be told apart by column."""
    for number, record in enumerate(records, start=1):
        count = len(record.cells)
        if count != width:
            yield TableFault(
                f"has {count} cells where the header has {width}; "
                "put a cell that holds the delimiter in quotes.",
                line=record.line,
                record=number,
            )


def duplicate_faults(rows: list[Row]) -> Iterator[TableFault]:
    """The ids that more than one row has; each would overwrite the other's audio."""
    first: dict[str, Row] = {}
    for row in rows:
        other = first.setdefault(row.id, row)
        if other is not row:
            yield TableFault(
                f"duplicate id {row.id[:80]}, lines {other.line} and {row.line}.",
                line=row.line,
                record=row.record,
            )


def without_case_clashes(rows: list[Row]) -> Iterator[Row]:
    """The rows, with a fault on each whose id differs from an earlier one only by case."""
    first: dict[str, Row] = {}
    for row in rows:
        other = row if row.fault else first.setdefault(row.id.casefold(), row)
        if other is row:
            yield row
            continue
        error = DuplicateCustomIdError(
            f"id {row.id} and id {other.id} on line {other.line} differ only by case, "
            "and would share one file on some systems."
        )
        yield replace(row, request={}, fault=RowFault.of(error))


def read_rows(columns: list[str], records: list[Record]) -> list[Row]:
    """The rows; the ``id`` cell of one that has none is filled with its default."""
    names = [column.casefold() for column in columns]
    kept = [index for index, name in enumerate(names) if not name.startswith(OWN_PREFIX)]
    known = [(index, name) for index, name in enumerate(names) if name in KNOWN_COLUMNS]
    rows = []
    for number, record in enumerate(records, start=1):
        named = {name: record.cells[index] for index, name in known}
        row = read_row(named, line=record.line, record=number, cells=())
        cells = [row.id if names[index] == "id" else record.cells[index] for index in kept]
        if "id" not in names:
            cells.insert(0, row.id)
        rows.append(replace(row, cells=tuple(cells)))
    return rows


def kept_columns(columns: list[str]) -> tuple[str, ...]:
    """The columns that results carry on."""
    kept = [column for column in columns if not column.casefold().startswith(OWN_PREFIX)]
    if "id" not in (column.casefold() for column in columns):
        kept.insert(0, "id")
    return tuple(kept)


def encoding_fault(error: UnicodeDecodeError) -> TableFault:
    """Why a file is not UTF-8, with the offset of the first byte that is not."""
    data, start = error.object, error.start
    if encoding := OTHER_ENCODINGS.get(data[:2]):
        return TableFault(f"is {encoding}; save it as UTF-8.")
    return TableFault(
        f"is not UTF-8: byte 0x{data[start]:02x} at offset {start}; save it as UTF-8.",
        line=data.count(b"\n", 0, start) + 1,
    )

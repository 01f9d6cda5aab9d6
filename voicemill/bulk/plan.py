"""What a run still has to do, from the table and what the manifest remembers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from voicemill.bulk.manifest import History, SpokenAudio
from voicemill.bulk.rows import Row
from voicemill.bulk.table import Table

CHUNK_ROWS = 1000
CHUNK_BYTES = 6_000_000
"""Under the server's 8 MB for a body, by an estimate that text with many escapes can beat."""
ROW_BYTES = 300
"""What a row costs in a body besides its texts, at most."""
UTF8_BYTES = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """Every row without a fault of its own is in one of the three."""

    done: tuple[Row, ...]
    """Spoken by an earlier run, and the file is there and whole."""
    awaited: dict[str, tuple[Row, ...]]
    """Asked for by an earlier run, and not here or not whole: job id → rows."""
    pending: tuple[Row, ...]
    """To be asked for."""


def make_plan(table: Table, history: History, holds: Callable[[SpokenAudio], bool]) -> Plan:
    """Sort the rows; ``holds`` says whether audio is still what was put there."""
    job_of = {
        (id, fingerprint): job
        for job, fingerprints in history.jobs.items()
        for id, fingerprint in fingerprints.items()
    }
    done: list[Row] = []
    pending: list[Row] = []
    awaited: defaultdict[str, list[Row]] = defaultdict(list)
    for row in table.rows:
        if row.fault:
            continue
        key = (row.id, row.fingerprint)
        end = history.ends.get(row.id)
        spoken = end if end and end.audio and end.fingerprint == row.fingerprint else None
        if spoken and spoken.audio and holds(spoken.audio):
            done.append(row)
        elif job := job_of.get(key) or (spoken and spoken.job):
            awaited[job].append(row)
        else:
            pending.append(row)
    jobs = {job: tuple(rows) for job, rows in awaited.items()}
    return Plan(tuple(done), jobs, tuple(pending))


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of finished rows when a table is run into their folder."""

    kept: int
    changed: int
    """The table has their ids, and asks for something else."""
    gone: int
    """The table does not have their ids."""


def make_change(table: Table, history: History) -> Change:
    """Compare the finished rows with the table's."""
    asked = {row.id: row.fingerprint for row in table.rows}
    finished = [end for end in history.ends.values() if end.audio]
    kept = sum(asked.get(end.id) == end.fingerprint for end in finished)
    gone = sum(end.id not in asked for end in finished)
    return Change(kept, len(finished) - kept - gone, gone)


def chunks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows in pieces that one request can carry, in order."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        row_size = body_bytes(row)
        if chunk and (len(chunk) == CHUNK_ROWS or size + row_size > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row_size
    if chunk:
        yield chunk


def body_bytes(row: Row) -> int:
    """About how many bytes a row takes in a request's body."""
    texts = (value for value in row.request.values() if isinstance(value, str))
    return ROW_BYTES + UTF8_BYTES * sum(map(len, texts))

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
    """Spoken by an earlier run, and the file is there."""
    awaited: dict[str, tuple[Row, ...]]
    """Asked for by an earlier run that did not live to collect them: job id → rows."""
    pending: tuple[Row, ...]
    """To be asked for."""


def make_plan(table: Table, history: History, holds: Callable[[SpokenAudio], bool]) -> Plan:
    """Sort the rows; ``holds`` says whether audio is still where it was put."""
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
        if end and end.audio and end.fingerprint == key[1] and holds(end.audio):
            done.append(row)
        elif key in job_of:
            awaited[job_of[key]].append(row)
        else:
            pending.append(row)
    jobs = {job: tuple(rows) for job, rows in awaited.items()}
    return Plan(tuple(done), jobs, tuple(pending))


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

"""Every change of state that a server wrote to its append-only file, against the state machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

ITEM_STATES = re.compile(rb"voicemill:job:([^:]+):states")
JOB = re.compile(rb"voicemill:job:([^:]+)")

ITEM_MOVES = {
    "queued": {"in_progress", "cancelled", "expired"},
    "in_progress": {"queued", "succeeded", "failed", "cancelled", "expired"},
}
ENDED = {"completed", "failed", "cancelled", "expired"}
JOB_MOVES = {
    "validating": {"queued", "failed", "cancelled"},
    "queued": {"in_progress", "cancelling"},
    "in_progress": {"finalizing", "cancelling"},
    "finalizing": {"completed", "failed"},
    "cancelling": {"cancelled", "failed", "expired"},
}


@dataclass(frozen=True, slots=True)
class ItemState:
    """What is written of an item."""

    status: str = "queued"
    attempts: int = 0
    run: int = 1
    task: str = ""


@dataclass(slots=True)
class Trace:
    """What a file told."""

    moves: int = 0
    most_attempts: int = 0
    joined: int = 0
    """Files that jobs got of all their audio."""


def commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """The commands of an append-only file; a torn one at its end is none.

    The form is that of requests: https://valkey.io/topics/protocol
    """
    while head := file.readline():
        words = []
        for _ in range(number(head)):
            size = number(file.readline())
            word = file.read(size + 2)
            if len(word) < size + 2:
                return
            words.append(word[:-2])
        if head.endswith(b"\n"):
            yield words


def number(line: bytes) -> int:
    """What follows the first byte of a whole line."""
    return int(line[1:]) if line.endswith(b"\n") else 0


def check(folder: Path) -> Trace:
    """Follow every item and job of the server whose files these are; raises ``AssertionError``."""
    trace = Trace()
    items: dict[tuple[bytes, bytes], ItemState] = {}
    jobs: dict[bytes, str] = {}
    for path in sorted(folder.glob("appendonlydir/*.incr.aof")):
        with path.open("rb") as file:
            for words in commands(file):
                if words[0].upper() == b"HSET":
                    follow(words[1], words[2:], items, jobs, trace)
    return trace


def follow(
    name: bytes,
    pairs: list[bytes],
    items: dict[tuple[bytes, bytes], ItemState],
    jobs: dict[bytes, str],
    trace: Trace,
) -> None:
    """One write."""
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if found := ITEM_STATES.fullmatch(name):
        for index, record in fields.items():
            state = json.loads(record)
            after = ItemState(
                state["status"], state["attempts"], state["run"], state.get("task_id", "")
            )
            before = items.get((found[1], index), ItemState())
            assert may_follow(before, after), f"{found[1]!r} {index!r}: {before} became {after}"
            items[found[1], index] = after
            trace.moves += 1
            trace.most_attempts = max(trace.most_attempts, after.attempts)
    elif (found := JOB.fullmatch(name)) and b"concatenation" in fields:
        assert jobs[found[1]] == "finalizing", f"{found[1]!r} was joined as {jobs[found[1]]}"
        trace.joined += 1
    elif (found := JOB.fullmatch(name)) and b"status" in fields:
        after_job = fields[b"status"].decode()
        before_job = jobs.get(found[1])
        moves = {"queued"} if before_job in ENDED else JOB_MOVES.get(before_job or "", set())
        is_new = before_job is None and after_job == "validating"
        assert is_new or after_job in moves, f"{found[1]!r}: {before_job} became {after_job}"
        jobs[found[1]] = after_job
        trace.moves += 1


def may_follow(before: ItemState, after: ItemState) -> bool:
    """Whether an item may go from one to the other; what failed may, when its job runs again."""
    is_again = before.status == "failed" and after.run == before.run + 1
    status = "queued" if is_again else before.status
    tried = after.attempts - before.attempts
    if after.status == "in_progress":
        return status == "queued" and tried == 1
    if after.status == "queued":
        # What is given back for want of room was not tried.
        return status == "in_progress" and tried in {0, -1}
    return after.status in ITEM_MOVES.get(status, set()) and tried == 0

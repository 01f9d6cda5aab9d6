"""What is taken away, and from which folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import redis

from voicemill.jobs import SCHEMA
from voicemill.store.connection import Connection, key, translated
from voicemill.store.records import PAGE_ITEMS, packed, unpacked

REWRITE_SECONDS = 3600.0
"""How long deleted texts may stay in the append-only file."""


class Outputs(Enum):
    """What is to become of the audio of a job."""

    KEPT = "kept"
    REMOVED = "removed"
    """The job was deleted and has ended, or its audio has expired: all that still comes goes."""
    UNKNOWN = "unknown"
    """The job is none of this store, or will be removed once it has ended."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """How far an item is, or the one file of a job."""

    attempts: int = 0
    is_running: bool = False
    file_name: str | None = None
    """Of the audio that it has."""


class RemovalStore(Connection):
    """Tells what is to be removed, and forgets what is."""

    def removals(self, *, limit: int = 10) -> list[str]:
        """Deleted jobs that have ended and of which something may be left."""
        return [job.decode() for job in self.run("removals", limit)]

    def purge(self, job_id: str) -> None:
        """Forget a deleted job whose files are gone."""
        self.run("purge_job", job_id, REWRITE_SECONDS)

    def expired_outputs(self, *, limit: int = 10) -> list[str]:
        """Jobs whose audio and texts are to be removed; they read as removed from now on."""
        return [job.decode() for job in self.run("expired_outputs", limit)]

    def remove_texts(self, job_id: str) -> None:
        """Blank what the items of a job were to say; all else about them stays."""
        with translated():
            total = int(self._redis.hget(key("job", job_id), "total") or 0)
            for page in range(-(-total // PAGE_ITEMS)):
                body = self._redis.hget(key("job", job_id, "pages"), page)
                if body is not None:
                    blank = [{**one, "text": "", "instructions": None} for one in unpacked(body)]
                    self.run("replace_page", job_id, page, packed(blank))

    def outputs_removed(self, job_id: str) -> None:
        """The audio and the texts of a job are gone."""
        self.run("outputs_removed", job_id, REWRITE_SECONDS)

    def was_removed(self, job_id: str) -> bool:
        """True for a job that was deleted here, not too long ago."""
        with translated():
            return self._redis.zscore(key("removed"), job_id) is not None

    def outputs(self, job_id: str) -> Outputs:
        """What is to become of the audio of a job."""
        if self.was_removed(job_id):
            return Outputs.REMOVED
        with translated():
            record = self._redis.hmget(key("job", job_id), "schema", "deleted", "data_removed")
        schema, deleted, data_removed = record
        if schema != str(SCHEMA).encode() or (deleted and not data_removed):
            return Outputs.UNKNOWN
        return Outputs.REMOVED if data_removed else Outputs.KEPT

    def attempted(self, job_id: str, indexes: Sequence[int]) -> list[Attempted]:
        """How far items are, in the order of ``indexes``."""
        if not indexes:
            return []
        with translated():
            states = self._redis.hmget(key("job", job_id, "states"), [str(i) for i in indexes])
        return [read_attempted(state) for state in states]

    def joined(self, job_id: str) -> Attempted:
        """How far the one file of a job is."""
        with translated():
            fields = ("status", "joins", "concatenation")
            status, joins, body = self._redis.hmget(key("job", job_id), *fields)
        audio = json.loads(body or "{}").get("audio")
        return Attempted(int(joins or 0), status == b"finalizing", file_name_of(audio))

    def swept(self) -> str | None:
        """The folder that the sweep had done last when it stopped half-way."""
        with translated():
            last = self._redis.get(key("swept"))
        return None if last is None else str(last.decode())

    def note_swept(self, folder: str | None) -> None:
        """A folder is done; nothing when all are."""
        with translated():
            if folder is None:
                self._redis.delete(key("swept"))
            else:
                self._redis.set(key("swept"), folder)

    def output_marker(self, folder: str) -> str | None:
        """What marks the output folder at this path; nothing before audio was written there."""
        with translated():
            marker = self._redis.hget(key("outputs"), folder)
        return None if marker is None else str(marker.decode())

    def keep_output_marker(self, folder: str, marker: str) -> str:
        """Keep what marks an output folder; gives what was kept first."""
        with translated():
            self._redis.hsetnx(key("outputs"), folder, marker)
        return self.output_marker(folder) or marker

    def rewrite_append_only_file(self) -> bool:
        """Have Redis write its file anew, without what was deleted, when that is due.

        False: not due, or not possible now; then it stays due.
        """
        if not self.run("rewrite_due"):
            return False
        with translated():
            try:
                self._redis.bgrewriteaof()
            # A rewrite that runs already, or a server that does not let us ask.
            except redis.exceptions.ResponseError:
                return False
            self._redis.delete(key("rewrite_owed"))
        return True


def read_attempted(state: bytes | None) -> Attempted:
    """What the state of an item says; one that has none was never begun."""
    if state is None:
        return Attempted()
    record = json.loads(state)
    return Attempted(
        record["attempts"], record["status"] == "in_progress", file_name_of(record.get("audio"))
    )


def file_name_of(audio: Mapping[str, Any] | None) -> str | None:
    """Of a record of audio, if there is one."""
    return str(audio["audio_path"]).rpartition("/")[2] if audio else None

"""What is taken away, and from which folder."""

from __future__ import annotations

import redis

from voicemill.store.connection import Connection, key, translated

REWRITE_SECONDS = 3600.0
"""How long deleted texts may stay in the append-only file."""


class RemovalStore(Connection):
    """Tells what is to be removed, and forgets what is."""

    def removals(self, *, limit: int = 10) -> list[str]:
        """Deleted jobs that have ended and of which something may be left."""
        return [job.decode() for job in self.run("removals", limit)]

    def purge(self, job_id: str) -> None:
        """Forget a deleted job whose files are gone."""
        self.run("purge_job", job_id, REWRITE_SECONDS)

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
        """Have Redis write its file anew, without what was deleted, when that is due."""
        if not self.run("rewrite_due"):
            return False
        with translated():
            try:
                self._redis.bgrewriteaof()
            # A rewrite that runs already, or a server that does not let us ask.
            except redis.exceptions.ResponseError:
                return False
        return True

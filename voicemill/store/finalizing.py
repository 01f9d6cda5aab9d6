"""Jobs whose items have all ended and that ask for one file of their audio."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from voicemill.jobs import ItemError, JobAudio
from voicemill.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Join:
    """A job that is ours to finalise until another takes it."""

    job_id: str
    number: int
    """Counts the joins of a job from 1; only the last may publish."""
    lost: int
    """Joins before it, in this run of the job, of which nothing came."""
    waits: int = 0
    """How often it was given back because of trouble."""


class FinalizingStore(Connection):
    """Hands jobs out to be finalised, and ends them."""

    def take_finalizing(self, lease_seconds: float) -> Join | None:
        """Take the job that has been due longest of the tenant that was served longest ago.

        Nothing when no job is due.
        """
        taken = self.run("take_finalizing", lease_seconds)
        return None if taken is None else Join(taken[0].decode(), *map(int, taken[1:]))

    def keep_finalizing(self, join: Join, lease_seconds: float) -> bool:
        """Keep a job, which nothing hinders now; False: another has it, or it was deleted."""
        return bool(self.run("keep_finalizing", join.job_id, join.number, lease_seconds))

    def return_finalizing(
        self, join: Join, pause_seconds: float, *, trouble: str = "", is_lost: bool = False
    ) -> bool:
        """Give a job back, to be taken again after a pause; ``trouble`` is what it waits for."""
        given = (pause_seconds, trouble, int(is_lost))
        return bool(self.run("return_finalizing", join.job_id, join.number, *given))

    def end_finalizing(self, join: Join, ending: JobAudio | ItemError) -> bool:
        """Publish a job's audio, or why it has none, and end the job.

        False: refused, the file must go.
        """
        name = "audio" if isinstance(ending, JobAudio) else "error"
        body = json.dumps({name: asdict(ending)})
        return bool(self.run("end_finalizing", join.job_id, join.number, body))

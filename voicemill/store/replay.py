"""Failed items: those who look at them, and another run of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis

from voicemill.errors import DataRemovedError, JobActiveError, JobNotFoundError
from voicemill.jobs import Item, Job
from voicemill.store.connection import key, translated
from voicemill.store.jobs import JobStore, refusal_of


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that failed for good, and its place in the list."""

    id: str
    item: Item


class ReplayStore(JobStore):
    """Runs failed items again, and deletes jobs."""

    def retry(self, job_id: str, *, run: int | None = None) -> Job:
        """Run the failed items of a job that has ended once more.

        With the ``run`` whose failures are meant, a call that is repeated counts once.
        Raises ``JobActiveError``, ``DataRemovedError`` and ``QuotaExceededError``.
        """
        self._on_ended("retry_job", job_id, "" if run is None else run)
        return self.job(job_id)

    def delete(self, job_id: str, *, cancel: bool = False) -> None:
        """Hide a job for good; the clerk removes its files, texts and record.

        Raises ``JobActiveError`` for one that has not ended and is not to be cancelled.
        """
        if cancel:
            self.cancel(job_id)
        self._on_ended("delete_job", job_id, int(cancel))

    def dead_letters(
        self, tenant: str, *, after: str | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Items of a tenant that failed for good, of its newest job first, following ``after``.

        Raises ``JobNotFoundError`` when ``after`` is no place in the list.
        """
        listed = key("dead", tenant)
        start, position = 0, 0
        with translated():
            if after is not None:
                job_id, _, place = after.rpartition(".")
                rank = self._redis.zrevrank(listed, job_id)
                if rank is None or not place.isdecimal():
                    raise JobNotFoundError(f"There is no item {after[:80]} to continue after.")
                start, position = int(rank), int(place) + 1
            ids = self._redis.zrevrange(listed, start, start + limit)
        found: list[DeadLetter] = []
        for job_id in ids:
            job = self.job(job_id.decode())
            indexes = self._failed(job)[position : position + limit - len(found)]
            found += [
                DeadLetter(f"{job.id}.{place}", item)
                for place, item in enumerate(self._read_items(job, indexes), position)
            ]
            position = 0
            if len(found) == limit:
                break
        return found

    def _failed(self, job: Job) -> Sequence[int]:
        entries: list[bytes] = []
        with translated():
            for engine in job.engines:
                entries += self._redis.lrange(key("job", job.id, "failed", engine), 0, -1)
        return [int(entry.partition(b"\t")[0]) for entry in entries]

    def _on_ended(self, script: str, job_id: str, *args: int | str) -> None:
        try:
            self.run(script, job_id, *args)
        except redis.exceptions.ResponseError as error:
            if "JOBACTIVE" in str(error):
                raise JobActiveError(f"The job {job_id} has not ended; cancel it first.") from error
            if "DATAREMOVED" in str(error):
                raise DataRemovedError(f"The texts of {job_id} are gone; submit them.") from error
            raise refusal_of(error) or error from error

"""Failed items: those who look at them, and another run of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import redis

from voicemill.errors import DataRemovedError, JobActiveError, JobNotFoundError
from voicemill.jobs import Item, Job
from voicemill.store.connection import key, translated
from voicemill.store.jobs import JobStore, no_job, refusal_of
from voicemill.store.records import read_job


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An item that failed for good, and its place in the list."""

    id: str
    item: Item


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some of them."""

    letters: list[DeadLetter]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a failed item is listed: by its job, that one's run and engine, in order of failure."""

    job_id: str
    seq: int
    run: int
    engine: int
    position: int


class ReplayStore(JobStore):
    """Runs failed items again, and deletes jobs."""

    def retry(self, job_id: str, *, run: int | None = None) -> Job:
        """Run the failed items of a job that has ended once more.

        With the ``run`` whose failures are meant, a call that is repeated counts once.
        Raises ``JobNotFoundError``, ``JobActiveError``, ``DataRemovedError`` and
        ``QuotaExceededError``.
        """
        self._on_ended("retry_job", job_id, "" if run is None else run)
        return self.job(job_id)

    def delete(self, job_id: str, *, cancel: bool = False) -> None:
        """Hide a job for good; the clerk removes its files, texts and record.

        Raises ``JobNotFoundError``, and ``JobActiveError`` for one that has not ended and is not to
        be cancelled.
        """
        if cancel:
            self.cancel(job_id)
        self._on_ended("delete_job", job_id, int(cancel))

    def dead_letters(
        self, tenant: str, *, after: str | None = None, limit: int = 100
    ) -> DeadLetterPage:
        """Items of a tenant that failed for good, of its newest job first, following ``after``.

        A job that was retried since ``after`` was read begins anew: what failed again is shown.
        Raises ``JobNotFoundError`` when ``after`` is no place in the list.
        """
        begin = None if after is None else self._place_at(tenant, after)
        newest = "+inf" if begin is None else begin.seq
        letters: list[DeadLetter] = []
        has_more = False
        for job in self._failed_jobs(tenant, newest, limit + 1):
            follows = begin if begin and (begin.job_id, begin.run) == (job.id, job.run) else None
            places = self._failed(job, follows, limit + 1 - len(letters))
            has_more = len(letters) + len(places) > limit
            shown = places[: limit - len(letters)]
            items = self._read_items(job, [index for _, index in shown])
            letters += [
                DeadLetter(name, item) for (name, _), item in zip(shown, items, strict=True)
            ]
            if has_more:
                break
        return DeadLetterPage(letters, has_more)

    def _failed_jobs(self, tenant: str, newest: int | str, at_once: int) -> Iterator[Job]:
        """Jobs of a tenant that have failed items, from that place on, so many read at once."""
        while True:
            with translated():
                found = self._redis.zrevrangebyscore(
                    key("dead", tenant), newest, "-inf", 0, at_once, withscores=True
                )
                pipeline = self._redis.pipeline(transaction=False)
                for job_id, _ in found:
                    pipeline.hgetall(key("job", job_id.decode()))
                records = pipeline.execute()
            yield from (job for job in map(read_job, records) if job is not None)
            if len(found) < at_once:
                return
            newest = f"({found[-1][1]:.0f}"

    def _failed(self, job: Job, follows: Place | None, most: int) -> list[tuple[str, int]]:
        """Names and indexes of a job's failed items, so many, behind that place."""
        first, position = (follows.engine, follows.position + 1) if follows else (0, 0)
        found: list[tuple[str, int]] = []
        for number, engine in enumerate(job.engines[first:], first):
            listed, last = key("job", job.id, "failed", engine), position + most - len(found) - 1
            with translated():
                entries = self._redis.lrange(listed, position, last) if last >= position else []
            found += [
                (f"{job.id}.{job.run}.{number}.{place}", int(entry.partition(b"\t")[0]))
                for place, entry in enumerate(entries, position)
            ]
            position = 0
        return found

    def _place_at(self, tenant: str, name: str) -> Place:
        job_id, *numbers = name.split(".")
        with translated():
            owner, seq = self._redis.hmget(key("job", job_id), "tenant", "seq")
        is_theirs = owner is not None and owner.decode() == tenant
        if not is_theirs or len(numbers) != 3 or not all(map(str.isdecimal, numbers)):
            raise JobNotFoundError(f"There is no item {name[:80]} to continue after.")
        return Place(job_id, int(seq), *map(int, numbers))

    def _on_ended(self, script: str, job_id: str, *args: int | str) -> None:
        try:
            self.run(script, job_id, *args)
        except redis.exceptions.ResponseError as error:
            if "NOJOB" in str(error):
                raise no_job(job_id) from error
            if "JOBACTIVE" in str(error):
                raise JobActiveError(f"The job {job_id} has not ended; cancel it first.") from error
            if "DATAREMOVED" in str(error):
                raise DataRemovedError(f"The texts of {job_id} are gone; submit them.") from error
            raise refusal_of(error) or error from error

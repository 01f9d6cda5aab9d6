"""The run itself: jobs go out a few at a time, rows come back as they are spoken."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voicemill.answers import Item, Job
from voicemill.bulk.errors import FolderError
from voicemill.bulk.folder import OutputFolder, sha256_of
from voicemill.bulk.manifest import Manifest, RowEnd, SpokenAudio
from voicemill.bulk.plan import Plan, chunks
from voicemill.bulk.progress import Display, Tally
from voicemill.bulk.prompts import PromptVoices
from voicemill.bulk.rows import Row, RowFault
from voicemill.client import AudioMismatchError, Client, ServerProblemError
from voicemill.errors import JobNotFoundError, PayloadTooLargeError
from voicemill.jobs import ItemStatus, JobStatus, is_terminal

logger = logging.getLogger(__name__)

JOBS_IN_FLIGHT = 4
"""More keep the workers busy while rows are collected; each holds up to 1,000 rows."""
DOWNLOADS_AT_ONCE = 4
BULK: dict[str, Any] = {"class": "bulk"}
"""Nobody waits for a row by itself, not even for the last one."""
PAGE_ITEMS = 100
POLL_SECONDS = 1.0
IDLE_SECONDS = 0.1
"""Least time of a round that brought nothing, should a server not wait when asked to."""
TOO_LARGE = "The text is more than one request can carry; split it over several rows."

ENDED_JOB = frozenset(str(status) for status in JobStatus if is_terminal(status))
ENDED_ITEM = frozenset(str(status) for status in ItemStatus if is_terminal(status))
INPUT_POINTER = re.compile(r"/inputs/([0-9]+)(?:/|$)")


@dataclass(slots=True)
class Flight:
    """A job on the server whose rows are awaited here."""

    job_id: str
    rows: dict[str, Row]
    """Those still awaited, by id."""
    rejoined: bool = False
    """Sent by an earlier run."""
    cursor: str | None = None
    """The custom_id up to which every item has ended."""


class BulkRun:
    """One pass over a plan; every row that ends is in the manifest before the next is looked at."""

    def __init__(
        self,
        client: Client,
        folder: OutputFolder,
        manifest: Manifest,
        plan: Plan,
        display: Display,
        *,
        in_place: bool = False,
    ) -> None:
        rows = (*plan.pending, *(row for rows in plan.awaited.values() for row in rows))
        self.tally = Tally(len(rows), sum(characters(row) for row in rows))
        self._client = client
        self._folder = folder
        self._manifest = manifest
        self._plan = plan
        self._display = display
        self._in_place = in_place
        self._prompts = PromptVoices(client)
        self._pending: deque[list[Row]] = deque()
        self._flights: list[Flight] = []

    def run(self) -> None:
        """Have every row of the plan spoken, or its failure recorded.

        Raises ``ClientError`` when the server is gone for longer than the
        client's patience, ``FolderError`` when audio can't be written.
        """
        if not self.tally.total_rows:
            return
        self._display.show(self.tally)
        self._rejoin()
        pool = ThreadPoolExecutor(DOWNLOADS_AT_ONCE)
        try:
            while self._pending or self._flights:
                self._fill_window()
                self._collect_round(pool)
        # Whatever ends the run, downloads would else wait for a server that may be gone.
        except BaseException as error:
            self._client.give_up()
            pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
            raise
        pool.shutdown()

    def _rejoin(self) -> None:
        """Take up the jobs an earlier run left; rows of one that is gone are asked for again."""
        pending = list(self._plan.pending)
        for job_id, rows in self._plan.awaited.items():
            try:
                self._client.job(job_id)
            except ServerProblemError as problem:
                if problem.code != JobNotFoundError.code:
                    raise
                pending += rows
            else:
                self._flights.append(Flight(job_id, {row.id: row for row in rows}, rejoined=True))
        pending.sort(key=lambda row: row.record)
        self._pending.extend(chunks(pending))

    def _fill_window(self) -> None:
        while self._pending and len(self._flights) < JOBS_IN_FLIGHT:
            self._submit(self._pending.popleft())

    def _submit(self, rows: list[Row]) -> None:
        """Send rows as one job, less those the server names as unfit."""
        rows = self._without(rows, self._prompts.refused(rows))
        while rows:
            try:
                job = self._client.create_job([*map(self._prompts.input_of, rows)], **BULK)
            except ServerProblemError as problem:
                if problem.status == PayloadTooLargeError.http_status and len(rows) > 1:
                    half = len(rows) // 2
                    self._pending.extendleft((rows[half:], rows[:half]))
                    return
                rows = self._without_refused(rows, problem)
            else:
                self._manifest.add_job(job["id"], {row.id: row.fingerprint for row in rows})
                self._flights.append(Flight(job["id"], {row.id: row for row in rows}))
                return

    def _without_refused(self, rows: list[Row], problem: ServerProblemError) -> list[Row]:
        """The rows a problem does not point at; the others fail. Raises it if it points at none."""
        faults = refused(problem, rows)
        if not faults:
            raise problem
        return self._without(rows, faults)

    def _without(self, rows: list[Row], faults: Sequence[tuple[Row, RowFault]]) -> list[Row]:
        """The rows that have none of these faults; the others fail."""
        self._record([failed(row, None, fault) for row, fault in faults], rows)
        unfit = {row.id for row, _ in faults}
        return [row for row in rows if row.id not in unfit]

    def _collect_round(self, pool: ThreadPoolExecutor) -> None:
        """Look at each job in flight once, waiting a little on the first."""
        began, rows_before = time.monotonic(), self.tally.rows
        for flight in list(self._flights):
            wait_seconds = POLL_SECONDS if flight is self._flights[0] else 0.0
            self._collect(flight, pool, wait_seconds)
        if self.tally.rows == rows_before:
            time.sleep(max(0.0, began + IDLE_SECONDS - time.monotonic()))
        self._display.show(self.tally)

    def _collect(self, flight: Flight, pool: ThreadPoolExecutor, wait_seconds: float) -> None:
        """Bring home the rows of a job that have ended since the last look."""
        try:
            job = self._client.job(flight.job_id, wait_seconds=wait_seconds)
            for items in self._ended_items(flight, job):
                # Links cost nothing and need no threads, which downloads do.
                mapped = map if self._in_place else pool.map
                brought = list(mapped(lambda item: self._fetch(flight, item), items))
                ends = [end for end in brought if end]
                self._record(ends, [flight.rows.pop(end.id) for end in ends])
                lost = [row for item in items if (row := flight.rows.pop(item["custom_id"], None))]
                self._pending.extend(chunks(lost))
        except ServerProblemError as problem:
            if problem.code != JobNotFoundError.code:
                raise
            self._abandon(flight, RowFault(problem.code, problem.message, retryable=True))
            return
        if job["status"] in ENDED_JOB:
            reason = f"Job {flight.job_id} ended as {job['status']} without a result for this row."
            self._abandon(flight, RowFault("no_result", reason, retryable=True))

    def _abandon(self, flight: Flight, fault: RowFault) -> None:
        """Let a flight go; rows it still owes fail."""
        rows = list(flight.rows.values())
        self._record([failed(row, flight.job_id, fault) for row in rows], rows)
        self._flights.remove(flight)

    def _ended_items(self, flight: Flight, job: Job) -> Iterator[list[Item]]:
        """Pages of items that have ended and are still awaited."""
        after, unbroken = flight.cursor, True
        while True:
            page = self._client.item_page(flight.job_id, after=after, limit=PAGE_ITEMS)
            ended = [item for item in page.items if item["status"] in ENDED_ITEM]
            yield [item for item in ended if item["custom_id"] in flight.rows]
            for item in page.items:
                unbroken = unbroken and item["status"] in ENDED_ITEM
                if unbroken:
                    flight.cursor = item["custom_id"]
            # Items end about in order: past a page without an end, one would look in vain.
            if not page.has_more or not page.items or not (ended or job["status"] in ENDED_JOB):
                return
            after = page.items[-1]["custom_id"]

    def _fetch(self, flight: Flight, item: Item) -> RowEnd | None:
        """The end of a row, its audio brought into the folder if it has any.

        Nothing when a job of an earlier run no longer has it: a new one may.
        """
        row = flight.rows[item["custom_id"]]
        if item["status"] != ItemStatus.SUCCEEDED:
            return failed(row, flight.job_id, fault_of(item), item["attempts"])
        target = self._folder.audio_file(row)
        try:
            self._bring(flight, item, target)
        except (AudioMismatchError, ServerProblemError) as error:
            if isinstance(error, ServerProblemError) and error.retryable:
                raise
            if flight.rejoined:
                return None
            fault = RowFault(error.code, error.message, error.retryable)
            return failed(row, flight.job_id, fault, item["attempts"])
        except OSError as error:
            reason = f"{target} can't be written: {error.strerror}. When it can, run this again."
            raise FolderError(reason) from error
        return RowEnd(
            id=row.id,
            fingerprint=row.fingerprint,
            job=flight.job_id,
            attempts=item["attempts"],
            audio=SpokenAudio(
                path=self._folder.relative(target),
                sha256=item["sha256"] or "",
                size_bytes=target.stat().st_size,
                duration_seconds=item["duration_seconds"] or 0.0,
                sample_rate=item["sample_rate"] or 0,
            ),
        )

    def _bring(self, flight: Flight, item: Item, target: Path) -> None:
        if self._in_place and (source := self._readable(item)):
            self._folder.link(source, target)
        else:
            self._client.download(flight.job_id, item["custom_id"], target, sha256=item["sha256"])

    def _readable(self, item: Item) -> Path | None:
        """The server's own file, if it is one here too; else says so once and gives none."""
        source = Path(item["audio_path"] or "")
        try:
            sha256 = sha256_of(source)
        except OSError as error:
            self._in_place = False
            self._display.note(
                f"--in-place: {source} can't be read here ({error.strerror}); "
                "fetching audio over HTTP instead."
            )
            return None
        if sha256 != item["sha256"]:
            raise AudioMismatchError(
                f"{source} has sha256 {sha256}, the server recorded {item['sha256']}."
            )
        return source

    def _record(self, ends: Sequence[RowEnd], rows: Sequence[Row]) -> None:
        """Make ends lasting, then count them and drop the files they replace."""
        if not ends:
            return
        former = [self._manifest.history.ends.get(end.id) for end in ends]
        self._manifest.add_ends(ends)
        by_id = {row.id: row for row in rows}
        for end, before in zip(ends, former, strict=True):
            if end.audio and before and before.audio and before.audio.path != end.audio.path:
                (self._folder.path / before.audio.path).unlink(missing_ok=True)
            self.tally.add(
                characters=characters(by_id[end.id]),
                audio_seconds=end.audio.duration_seconds if end.audio else None,
            )
        self._display.show(self.tally)


def characters(row: Row) -> int:
    """How much text a row has."""
    return len(row.request["input"])


def failed(row: Row, job_id: str | None, fault: RowFault, attempts: int = 0) -> RowEnd:
    """The end of a row that got no audio."""
    return RowEnd(row.id, row.fingerprint, job_id, attempts, fault=fault)


def fault_of(item: Item) -> RowFault:
    """Why an item has no audio; one that was cancelled or has expired may be asked for again."""
    error = item["error"]
    if error is None:
        return RowFault(item["status"], f"The item was {item['status']}.", retryable=True)
    return RowFault(error["code"], error["message"], error["retryable"])


def refused(problem: ServerProblemError, rows: Sequence[Row]) -> list[tuple[Row, RowFault]]:
    """The rows a problem points at, each with the first fault of it."""
    if problem.status == PayloadTooLargeError.http_status and len(rows) == 1:
        return [(rows[0], RowFault(problem.code, TOO_LARGE))]
    first: dict[int, RowFault] = {}
    for fault in problem.faults:
        match = INPUT_POINTER.match(fault.pointer)
        if match and int(match[1]) < len(rows):
            first.setdefault(int(match[1]), RowFault(fault.code, fault.detail))
    return [(rows[index], fault) for index, fault in sorted(first.items())]

"""A worker alone under a load of its own, for tests of hand-overs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.e2e.stack import Worker
from tests.support import inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.jobs import Item, ItemStatus, JobStatus, is_terminal, new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import ProcessRecord, WorkerRecord, worker_from_record


def tone(**options: object) -> dict[str, str]:
    """The environment that gives `tone` these options."""
    return {"VOICEMILL_ENGINE_OPTIONS": json.dumps(options)}


def assert_each_spoken_once(items: list[Item]) -> None:
    """Every item succeeded at its first attempt, with a file of its own."""
    assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}
    paths = {item.audio.audio_path for item in items if item.audio is not None}
    assert len(paths) == len(items)
    assert all(Path(path).stat().st_size > 44 for path in paths)


class SoloWorker(Worker):
    """A worker that looks at itself at every turn, with the store and a clerk's part beside it."""

    def __init__(self, redis_url: str, folder: Path, *flags: str, **env: str) -> None:
        quick = {
            "VOICEMILL_MEMORY_CHECK_SECONDS": "0.001",
            "VOICEMILL_MIN_AGE_SECONDS": "0.001",
            "VOICEMILL_BATCH_SECONDS": "0.001",
        }
        super().__init__(redis_url, folder, *flags, **{**quick, **env})
        self.store = Store.connect(redis_url)
        mine = {"VOICEMILL_REDIS_URL": redis_url, "VOICEMILL_ENGINE": "tone"}
        self._settings = Settings.from_env({**mine, **quick, **env})
        self._dispatcher = Dispatcher(self.store, Queue(self._settings), self._settings)

    def __enter__(self) -> Self:
        super().__enter__()
        # The record of the parent lags behind its children by a second or so.
        self.wait_until("a child that is seen", lambda: self.processes("ready", "busy"))
        return self

    def submit(self, *texts: str) -> str:
        """A job of these texts; gives its id."""
        job_id = new_job_id()
        self.store.create_job(job_id, "default", inputs(*texts), {})
        self.tick()
        return job_id

    def tick(self) -> None:
        """What the clerk does each second."""
        try:
            self.store.reap(max_attempts=self._settings.max_attempts)
            self._dispatcher.recall()
            self._dispatcher.admit()
        except (StoreUnavailableError, StoreRefusedError):
            pass

    def has_ended(self, job_id: str) -> bool:
        """Whether the job is over; the clerk's part is done meanwhile."""
        self.tick()
        return self.look(lambda: is_terminal(self.store.job(job_id).status))

    def look(self, question: Callable[[], object]) -> bool:
        """An answer of the store; False while it is away."""
        try:
            return bool(question())
        except (StoreUnavailableError, StoreRefusedError):
            return False

    def wait_for(self, job_id: str, seconds: float = 60) -> list[Item]:
        """The items of a job once it has completed."""
        wait_until(lambda: self.has_ended(job_id), seconds, f"the end of the job\n{self.log}")
        assert self.store.job(job_id).status is JobStatus.COMPLETED
        return self.store.items(job_id, limit=1000)

    def wait_until(self, what: str, question: Callable[[], object], seconds: float = 30) -> None:
        """Poll while the clerk's part is done."""

        def holds() -> bool:
            self.tick()
            return self.look(question)

        wait_until(holds, seconds, f"{what}\n{self.log}")

    @property
    def record(self) -> WorkerRecord:
        """What the parent says of itself; empty before its first beat."""
        for record in self.store.snapshot().workers:
            if record["node"] == self.node:
                return worker_from_record(record)
        return WorkerRecord(self.node, 0, "tone", 0.0)

    def the_child(self) -> dict[str, Any]:
        """What the only child that takes work says of itself, once it is the only one."""

        def takers() -> list[dict[str, Any]]:
            return [one for one in self.store.snapshot().children if one["takes_work"]]

        self.wait_until("one child", lambda: len(takers()) == 1)
        (child,) = takers()
        return child

    def processes(self, *states: str) -> list[ProcessRecord]:
        """The children in these states, or all."""
        return [one for one in self.record.processes if not states or one.state in states]

    def recycles(self) -> dict[str, int]:
        """Recycles so far, by reason."""
        return self.counts("voicemill_recycles_total")

    def counts(self, family: str) -> dict[str, int]:
        """What a counter says, by reason."""
        return {
            labels["reason"]: int(value)
            for name, labels, value in self.store.metrics()
            if name == family
        }

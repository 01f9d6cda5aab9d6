"""Hundreds of hand-overs in a row under load lose nothing and leave nothing behind."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import psutil
import pytest

from tests.e2e.solo import SoloWorker
from voicemill.jobs import ItemStatus

logger = logging.getLogger(__name__)

RECYCLES = 50 if os.environ.get("CI") else 500
SETTLED = 10
"""Hand-overs after which the parent has all it ever needs."""
JOB_ITEMS = 40
SECONDS_EACH = 5.0
MORE_BYTES = 16 * 2**20
MORE_FILES = 4


class Parent:
    """What a worker's parent holds."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    @property
    def rss(self) -> int:
        """Its resident memory."""
        return int(self._process.memory_info().rss)

    @property
    def files(self) -> int:
        """Its open descriptors: pipes, sockets, files."""
        return int(self._process.num_fds())

    @property
    def semaphores(self) -> int:
        """Its named semaphores; each child has one that counts what was read of it."""
        maps = Path(f"/proc/{self._process.pid}/maps").read_text("utf-8")
        return maps.count("/dev/shm/sem.")

    @property
    def zombies(self) -> list[int]:
        """Children that ended and were not reaped."""
        return [
            child.pid
            for child in self._process.children()
            if child.status() == psutil.STATUS_ZOMBIE
        ]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_hundreds_of_recycles_lose_nothing_and_leave_nothing(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, VOICEMILL_MAX_TASKS_PER_CHILD="1") as worker:
        parent = Parent(worker.pid)
        jobs: list[str] = []

        def recycles() -> int:
            return worker.recycles().get("tasks", 0)

        def has_come_to(count: int) -> bool:
            if not jobs or worker.has_ended(jobs[-1]):
                jobs.append(worker.submit(*(f"Line {n}." for n in range(JOB_ITEMS))))
            return recycles() >= count

        worker.wait_until("settling", lambda: has_come_to(SETTLED), SETTLED * SECONDS_EACH)
        rss, files, semaphores = parent.rss, parent.files, parent.semaphores
        assert semaphores > 0
        for count in range(SETTLED, RECYCLES + 1, SETTLED):
            worker.wait_until(
                f"recycle {count}", lambda count=count: has_come_to(count), SETTLED * SECONDS_EACH
            )
            logger.warning(
                "%d recycles, %d jobs, %d MiB, %d files",
                count,
                len(jobs),
                parent.rss // 2**20,
                parent.files,
            )
        for job in jobs:
            items = worker.wait_for(job)
            assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}
        worker.wait_until("reaping", lambda: not parent.zombies)
        assert parent.rss - rss < MORE_BYTES
        assert parent.files - files <= MORE_FILES
        assert parent.semaphores - semaphores <= MORE_FILES
        assert worker.recycles().keys() == {"tasks"}
        assert worker.stop() == 0

"""What two tenants do with a stack, round after round, while it is hurt."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.client import Tenant
from tests.chaos.hands import Hands
from tests.chaos.plan import Burst, count
from tests.e2e.stack import Stack
from tests.e2e.watch import Watcher
from tests.support import Valkey, wait_until
from voicemill.errors import StoreUnavailableError
from voicemill.store import Store
from voicemill.tenants import Tenant as Account
from voicemill.tenants import new_api_key

logger = logging.getLogger(__name__)

RESERVE, NOW, STOPPED, SOUND, FAILING = 300, 10, 40, 17, 3
"""Items: that keep the stack at work when a round was quick; and of each round, those that somebody
waits for, those of a job that is cancelled, and of one that fails in part and is retried."""
SHARED, DROPPED = 15, 20
"""And of each round, texts that three jobs have, one of them of the other tenant and one that is
deleted once it has ended; and those of a job that is deleted while it runs."""
DELETED = SHARED + DROPPED
END_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done."""

    rounds: int
    faults: int
    """Of each round."""
    items: int
    """Of all rounds."""

    @property
    def plain(self) -> int:
        """Items of a round that all succeed."""
        others = NOW + STOPPED + SOUND + FAILING + 3 * SHARED + DROPPED
        return (self.items - RESERVE) // self.rounds - others

    @property
    def step(self) -> int:
        """Items that belong to one fault."""
        return self.plain // (self.faults + 2)


@dataclass(frozen=True, slots=True)
class Asked:
    """The jobs of a round that something is asked of while faults fall."""

    stopped: str
    """To cancel in the middle."""
    failing: str
    """To retry once it has ended."""
    gone: str
    """To delete once it has ended, though another job shares its audio."""
    dropped: str
    """To delete in the middle."""


class Run:
    """Jobs of two tenants under faults."""

    def __init__(self, size: Size, stack: Stack, server: Valkey, hands: Hands, log: Path) -> None:
        self.faults = 0
        """That fell while items ran."""
        self._size = size
        self._stack = stack
        self._server = server
        self._hands = hands
        self._store = Store.connect(server.url)
        """Tells how far things are, also while the API is away."""
        self._jobs: list[tuple[Tenant, str]] = []
        self._began = time.monotonic()
        self._ann, self._ben = self._tenant("ann", log), self._tenant("ben", log)
        reserve = [f"Reserve {n}." for n in range(RESERVE)]
        self._sound = [self._send(self._ben, (reserve, ("succeeded",)))]
        """Jobs of which nothing runs twice."""

    @property
    def tenants(self) -> list[Tenant]:
        """Whose jobs they are."""
        return [self._ann, self._ben]

    def round(self, number: int, bursts: Sequence[Burst]) -> None:
        """One round of jobs and faults; the stack is new after it."""
        asked_of = self._submit(number)
        watched = [job for job in self._sound if self._left([job])]
        with ThreadPoolExecutor(1) as client, Watcher(self._server.url, *watched) as watcher:
            asked = client.submit(self._ask, asked_of)
            self._fall(bursts)
            asked.result()
            seen = watcher.looks[-1]
        self._hands.rest()
        logger.warning(
            "round %d of %d: %d faults, %d endings watched, %d items left, %.0f s",
            *(number, self._size.rounds, count(bursts), seen, self._left()),
            time.monotonic() - self._began,
        )
        assert self._stack.stop() == 0
        self._stack.start()

    def end(self) -> None:
        """All comes to its end, and a new clerk looks at the cache at once."""
        for tenant, job in self._jobs:
            tenant.wait_for(job, END_SECONDS)
        assert self._stack.stop() == 0
        self._stack.start()
        self._store.close()

    def _tenant(self, name: str, log: Path) -> Tenant:
        api_key = new_api_key()
        assert self._store.create_tenant(Account(name), api_key)
        return Tenant(self._stack, name, api_key, log)

    def _submit(self, number: int) -> Asked:
        """The jobs of a round; gives those of which something will be asked."""

        def texts(word: str, size: int, different: int | None = None) -> list[str]:
            return [f"{word} {number}.{n % (different or size)}." for n in range(size)]

        shared = (texts("Shared", SHARED), ("succeeded",))
        gone = self._ann.send(shared, priority=2)
        stopped = self._send(
            self._ann, (texts("Stop", STOPPED), ("succeeded", "cancelled")), priority=1
        )
        again = self._send(self._ann, shared, priority=1)
        plain = self._send(self._ann, (texts("Line", self._size.plain), ("succeeded",)))
        self._sound += [stopped, again, plain]
        self._send(self._ben, shared, priority=1)
        self._send(
            self._ben, (texts("Now", NOW, NOW // 2), ("succeeded",)), **{"class": "interactive"}
        )
        failing = self._send(
            self._ben,
            (texts("Half", SOUND, SOUND // 2), ("succeeded",)),
            (texts("{tone:fail} Fails", FAILING), ("failed",)),
            priority=1,
            concatenate=True,
            concatenate_silence_ms=100,
        )
        dropped = self._ben.send((texts("Drop", DROPPED), ()), priority=1)
        return Asked(stopped, failing, gone, dropped)

    def _send(
        self, tenant: Tenant, *groups: tuple[Sequence[str], tuple[str, ...]], **fields: object
    ) -> str:
        job = tenant.send(*groups, **fields)
        self._jobs.append((tenant, job))
        return job

    def _ask(self, of: Asked) -> None:
        """What clients ask for while faults fall: to stop, to run again, to forget."""
        wait_for_first(self._ann, of.stopped)
        assert self._ann.request("POST", f"/v1/jobs/{of.stopped}/cancel").status_code == 200
        wait_for_first(self._ben, of.dropped)
        self._ben.delete(of.dropped, cancel=True)
        ended = self._ben.wait_for(of.failing, END_SECONDS)
        assert ended["request_counts"]["failed"] == FAILING
        again = self._ben.request("POST", f"/v1/jobs/{of.failing}/retry?run={ended['run']}")
        assert again.status_code == 202, again.text
        self._ann.wait_for(of.gone, END_SECONDS)
        self._ann.delete(of.gone)

    def _fall(self, bursts: Sequence[Burst]) -> None:
        """Let faults fall, each burst once enough has ended; they count while something is left."""
        whole, fallen = self._left(), 0
        for burst in bursts:
            self._wait_until_left(whole - max(1, fallen * self._size.step))
            logger.warning("  %s", ", ".join(map(str, burst.faults)))
            self._hands.do(burst)
            fallen += len(burst.faults)
            if self._left():
                self.faults += len(burst.faults)

    def _wait_until_left(self, most: int) -> None:
        wait_until(lambda: self._left() <= most, 120, f"the end of all but {most} items")

    def _left(self, jobs: Sequence[str] = ()) -> int:
        """Items of these jobs, or of all, that have not ended, as soon as the store tells."""
        ids = jobs or [job for _, job in self._jobs]
        counts: list[int] = []

        def look() -> bool:
            try:
                found = [self._store.job(job) for job in ids]
            except StoreUnavailableError:
                return False
            counts.extend(job.counts.queued + job.counts.in_progress for job in found)
            return True

        wait_until(look, 60, "an answer of the store")
        return sum(counts)


def wait_for_first(tenant: Tenant, job: str) -> None:
    """Wait until an item of a job has succeeded."""
    wait_until(
        lambda: tenant.job(job)["request_counts"]["completed"] > 0, END_SECONDS, f"a start of {job}"
    )

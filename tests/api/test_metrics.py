"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.metrics import FAMILIES
from tests.api.fleet import Fleet
from voicemill import __version__
from voicemill.costs import UNMEASURED
from voicemill.jobs import ItemError
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import SessionCounts

Post = Callable[..., dict[str, Any]]
Labels = frozenset[tuple[str, str]]

KINDS = {
    "items_total": "counter",
    "cached_items_total": "counter",
    "recycles_total": "counter",
    "handover_seconds": "summary",
    "handover_failures_total": "counter",
    "handover_breaks_total": "counter",
    "warmup_seconds": "summary",
    "wait_seconds": "summary",
    "synthesis_seconds": "summary",
    "audio_seconds_total": "counter",
    "device_seconds_total": "counter",
    "real_time_factor": "gauge",
    "queued_items": "gauge",
    "queued_seconds": "gauge",
    "slots": "gauge",
    "oldest_item_seconds": "gauge",
    "leases_reaped_total": "counter",
    "webhooks_pending": "gauge",
    "disk_free_bytes": "gauge",
    "gpu_memory_bytes": "gauge",
    "child_rss_bytes": "gauge",
    "sessions_open": "gauge",
    "sessions_total": "counter",
    "http_request_seconds": "histogram",
    "build_info": "gauge",
}
"""What the dashboards and alerts of a stack may count on."""
CLOCK = 0.001
"""The store tells its clock to the tenth of a millisecond."""


def scrape(client: FlaskClient) -> dict[tuple[str, Labels], float]:
    """Samples by name and labels."""
    response = client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def labels(**pairs: str) -> Labels:
    """Labels as ``scrape`` gives them."""
    return frozenset(pairs.items())


def test_every_family_has_its_type_before_there_is_a_sample(client: FlaskClient) -> None:
    text = client.get("/metrics").text

    kinds = {
        line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")
    }
    assert kinds == {f"voicemill_{name}": kind for name, kind in KINDS.items()}


def test_a_family_without_a_sample_is_none_of_those_that_are_true_now(client: FlaskClient) -> None:
    empty = {
        family.name
        for family in text_string_to_metric_families(client.get("/metrics").text)
        if not family.samples
    }

    assert {"voicemill_handover_seconds", "voicemill_webhooks_pending"} <= empty
    assert empty & {"voicemill_oldest_item_seconds", "voicemill_queued_seconds"} == set()


def test_what_items_came_to_is_counted(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    post("One.", "Two.", "Three.")
    fleet.end({0: b"a", 1: b"b", 2: ItemError("silent_audio", "It is silent.", True)})

    samples = scrape(client)

    ended = "voicemill_items_total"
    assert samples[ended, labels(engine="tone", outcome="succeeded", code="")] == 2
    assert samples[ended, labels(engine="tone", outcome="failed", code="silent_audio")] == 1
    assert samples["voicemill_audio_seconds_total", labels(engine="tone")] == 2.5
    assert samples["voicemill_device_seconds_total", labels(engine="tone")] == 1.0
    assert samples["voicemill_synthesis_seconds_count", labels(engine="tone")] == 2
    assert samples["voicemill_synthesis_seconds_sum", labels(engine="tone")] == 1.0


def test_what_is_true_now_is_measured(client: FlaskClient, post: Post, fleet: Fleet) -> None:
    post("One.", "Two.")
    fleet.live(rss_bytes=1000, sessions=SessionCounts(5, 3))

    samples = scrape(client)

    assert samples["voicemill_queued_items", labels(**{"class": "bulk"})] == 2
    assert samples["voicemill_slots", labels(engine="tone", state="free")] == 1
    assert samples["voicemill_slots", labels(engine="tone", state="busy")] == 0
    assert samples["voicemill_child_rss_bytes", labels(node="node", pid="42")] == 1000
    assert samples["voicemill_sessions_open", labels(node="node", pid="42")] == 2
    assert samples["voicemill_disk_free_bytes", labels()] > 0
    assert samples["voicemill_build_info", labels(version=__version__)] == 1


def test_a_device_that_two_children_share_is_measured_once(
    client: FlaskClient, fleet: Fleet
) -> None:
    for child, own in (("one", 300), ("two", None), ("three", 200)):
        device = {"uuid": "GPU-1", "total_bytes": 1000, "used_bytes": 600, "own_bytes": own}
        fleet.live(child, gpu={"devices": [device], "reason": None})

    samples = scrape(client)

    memory = "voicemill_gpu_memory_bytes"
    assert samples[memory, labels(device="GPU-1", kind="total")] == 1000
    assert samples[memory, labels(device="GPU-1", kind="used")] == 600
    assert samples[memory, labels(device="GPU-1", kind="own")] == 500


def test_what_waits_is_told_in_device_seconds_and_by_the_age_of_the_oldest(
    client: FlaskClient, post: Post, fleet: Fleet, store: Store
) -> None:
    seconds = "voicemill_queued_seconds", labels(**{"engine": "tone", "class": "bulk"})
    oldest = "voicemill_oldest_item_seconds", labels()
    assert (scrape(client)[seconds], scrape(client)[oldest]) == (0, 0)
    job = post("Four", "Sixteen letters.")
    came = store.job(job["id"]).created_at

    before = store.snapshot().at
    samples = scrape(client)
    after = store.snapshot().at

    waiting = 2 * UNMEASURED.base + 20 * UNMEASURED.per_character
    assert samples[seconds] == pytest.approx(waiting)
    assert before - came - CLOCK <= samples[oldest] <= after - came + CLOCK
    fleet.end({0: b"a", 1: b"b"})
    samples = scrape(client)
    assert (samples[seconds], samples[oldest]) == (0, 0)
    assert samples["voicemill_wait_seconds_count", labels(engine="tone")] == 2
    assert samples["voicemill_wait_seconds_sum", labels(engine="tone")] > 0


def test_what_was_cancelled_no_longer_waits(client: FlaskClient, post: Post) -> None:
    seconds = "voicemill_queued_seconds", labels(**{"engine": "tone", "class": "bulk"})
    kept = post("Kept.", **{"class": "bulk"})
    dropped = post("Dropped and", "dropped again.")

    client.post(dropped["urls"]["cancel"])

    one_item = UNMEASURED.base + len("Kept.") * UNMEASURED.per_character
    assert kept["request_counts"]["queued"] == 1
    assert scrape(client)[seconds] == pytest.approx(one_item)


def test_interactive_work_is_told_apart(client: FlaskClient, post: Post) -> None:
    post("Four", "Sixteen letters.")
    post("Now!")

    samples = scrape(client)

    for job_class, items, characters in (("interactive", 1, 4), ("bulk", 2, 20)):
        seconds = items * UNMEASURED.base + characters * UNMEASURED.per_character
        of_class = {"class": job_class}
        assert samples["voicemill_queued_items", labels(**of_class)] == items
        told = samples["voicemill_queued_seconds", labels(engine="tone", **of_class)]
        assert told == pytest.approx(seconds)


def test_answers_are_timed_by_endpoint_and_status(client: FlaskClient) -> None:
    for path in ("/healthz", "/healthz", "/nope", "/v1/jobs?limit=0"):
        client.get(path).close()

    samples = scrape(client)

    count = "voicemill_http_request_seconds_count"
    assert samples[count, labels(endpoint="health.alive", status="200")] == 2
    assert samples[count, labels(endpoint="", status="404")] == 1
    assert samples[count, labels(endpoint="jobs.index", status="422")] == 1


def test_a_folder_that_cannot_be_looked_at_leaves_the_other_families(
    settings: Settings, store: Store
) -> None:
    unseen = replace(settings, output_dir=settings.home / ("x" * 300))

    samples = scrape(create_app(unseen).test_client())

    assert ("voicemill_disk_free_bytes", labels()) not in samples
    assert samples["voicemill_build_info", labels(version=__version__)] == 1


def test_every_metric_is_documented_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    for name, family in FAMILIES.items():
        kind = family.kind.__name__.removesuffix("MetricFamily").lower()
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"| `{name}` | {kind} | {labels} | {family.help} |" in page
    assert "`voicemill_http_request_seconds`" in page

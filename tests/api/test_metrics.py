"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from api.metrics import FAMILIES
from tests.api.fleet import Fleet
from voicemill import __version__
from voicemill.jobs import ItemError

Post = Callable[..., dict[str, Any]]
Labels = frozenset[tuple[str, str]]


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
    assert set(kinds) == set(FAMILIES)
    assert kinds["voicemill_items_total"] == "counter"
    assert kinds["voicemill_synthesis_seconds"] == "summary"
    assert kinds["voicemill_queued_items"] == "gauge"


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
    fleet.live(rss_bytes=1000)

    samples = scrape(client)

    assert samples["voicemill_queued_items", labels(**{"class": "bulk"})] == 2
    assert samples["voicemill_slots", labels(engine="tone", state="free")] == 1
    assert samples["voicemill_slots", labels(engine="tone", state="busy")] == 0
    assert samples["voicemill_child_rss_bytes", labels(node="node", pid="42")] == 1000
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

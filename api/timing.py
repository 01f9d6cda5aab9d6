"""How long this process takes to answer, for ``/metrics``."""

from __future__ import annotations

import time
from typing import Final

from flask import Flask, Response, g, request
from prometheus_client import Histogram, disable_created_metrics

from api.context import context

BUCKETS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)

# They would stand in /metrics as families of their own.
disable_created_metrics()  # type: ignore[no-untyped-call]


def request_histogram() -> Histogram:
    """Time per answer, by endpoint (empty where nothing is served) and status."""
    return Histogram(
        "voicemill_http_request_seconds",
        "Time this process of the API took for an answer, waiting for a job included.",
        ("endpoint", "status"),
        registry=None,
        buckets=BUCKETS_SECONDS,
    )


def register(app: Flask) -> None:
    """Time every request of the app."""
    app.before_request(begin)
    app.after_request(note)


def begin() -> None:
    """Remember when the request came."""
    g.began = time.perf_counter()


def note(response: Response) -> Response:
    """Count the answer under the time it took."""
    histogram = context().request_seconds
    seconds = time.perf_counter() - g.began
    histogram.labels(request.endpoint or "", response.status_code).observe(seconds)
    return response

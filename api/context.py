"""What every route needs, made once per process by ``create_app``."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final, cast

from flask import current_app
from prometheus_client import Histogram

from voicemill.dispatch import Dispatcher
from voicemill.settings import Settings
from voicemill.store import Store

EXTENSION: Final = "voicemill"
MAX_WAITERS: Final = 16
"""Requests of one process that may wait for a job at once; each holds a thread."""


@dataclass(frozen=True, slots=True)
class Context:
    """The parts a request works with."""

    settings: Settings
    store: Store
    dispatcher: Dispatcher
    request_seconds: Histogram
    waiters: threading.Semaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MAX_WAITERS)
    )


def context() -> Context:
    """The context of the app that serves this request."""
    return cast(Context, current_app.extensions[EXTENSION])

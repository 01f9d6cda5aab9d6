"""Remote control commands that break a worker as Celery is known to break; loaded by ``-I``."""

from __future__ import annotations

import threading
from typing import Any

from celery.worker.control import control_command

MODULE = "tests.e2e.tampering"


@control_command()  # type: ignore[untyped-decorator]
def hang_the_loop(state: Any) -> None:
    """The event loop never goes round again; other threads go on."""
    threading.Event().wait()


@control_command()  # type: ignore[untyped-decorator]
def lose_the_subscription(state: Any) -> None:
    """The channel forgets its consumer, which believes that it is subscribed."""
    consumer = state.consumer.task_consumer
    for tag in consumer._active_tags.values():
        consumer.channel.basic_cancel(tag)


@control_command()  # type: ignore[untyped-decorator]
def ask_no_more(state: Any) -> None:
    """The channel is subscribed, and never sends BRPOP again."""
    state.consumer.task_consumer.channel._brpop_start = lambda timeout=None: None

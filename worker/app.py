"""The Celery app, and what happens when its processes start and stop."""

from __future__ import annotations

from typing import Any

from celery import Celery, signals
from celery.concurrency import get_implementation

from worker import process

app = Celery("voicemill")
app.config_from_object("celeryconfig")


@signals.celeryd_init.connect
def on_parent_made(sender: str, conf: Any, **_: Any) -> None:
    """Keep this worker's unacknowledged messages apart, so that its loss shows which are lost."""
    parent = process.make_parent(sender)
    conf.broker_transport_options = {
        **conf.broker_transport_options,
        "unacked_key": parent.heartbeat.incarnation,
        "unacked_index_key": f"{parent.heartbeat.incarnation}:index",
        "unacked_mutex_key": f"{parent.heartbeat.incarnation}:mutex",
    }


@signals.worker_init.connect
def on_parent_started(sender: Any, **_: Any) -> None:
    """Watch before the first child exists."""
    process.start_parent(get_implementation(sender.pool_cls))


@signals.worker_ready.connect
def on_consumer_started(sender: Any, **_: Any) -> None:
    """Take messages for those children that are there."""
    process.parent().intake.open(sender)


@signals.worker_shutting_down.connect
def on_stop_asked(how: str, **_: Any) -> None:
    """A warm stop lasts as long as the batches in hand, but not for ever."""
    if how == "Warm":
        process.parent().begin_stop()


@signals.worker_shutdown.connect
def on_parent_stopping(**_: Any) -> None:
    """Give back what is still held."""
    process.parent().stop()


@signals.worker_process_init.connect
def on_child_started(sender: str, **_: Any) -> None:
    """Load the engine before the child takes work."""
    process.start_child(sender)

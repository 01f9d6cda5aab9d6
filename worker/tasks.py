"""The one Celery task."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Ignore

from voicemill.queue import SYNTHESIZE
from worker import process
from worker.app import app


@app.task(name=SYNTHESIZE)
def synthesize(task_id: str) -> list[dict[str, Any]]:
    """Synthesize the batch that was admitted under this id; gives an outcome for each item.

    A second copy of the message is ignored: it must not store a result before the first does.
    """
    outcomes = process.current_child().run(task_id)
    if outcomes is None:
        raise Ignore
    return outcomes

"""How many messages the worker takes from the broker: no more than it has children for.

A message taken without a child to work on it would wait here for a model to load, or for ever
in a worker that is draining, while another worker is free.
"""

from __future__ import annotations

from typing import Any


class Intake:
    """The consumer of one Celery worker, opened and closed by the number of children."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._consumer: Any = None
        self._again = False

    def open(self, consumer: Any) -> None:
        """Celery's consumer is up; it makes a new channel whenever its connection was lost."""
        self._consumer = consumer

    def subscribe_again(self) -> None:
        """At the next turn of the loop; messages wait, and the consumer does not hear of them."""
        self._again = True

    def allow(self, children: int, held: int = 0) -> None:
        """Take one message per child, none without children.

        ``held`` are in the hands of others, who take no more.
        """
        channel = getattr(self._consumer, "task_consumer", None)
        if channel is None or self._consumer.qos is None:
            return
        if children == 0 or self._again:
            self._again = False
            channel.cancel_by_queue(self._queue)
        if children == 0:
            return
        # Celery's loop goes back to `value` whenever something else was set.
        self._consumer.qos.value = children + held
        self._consumer.qos.update()
        if not channel.consuming_from(self._queue):
            self._consumer.add_task_queue(self._queue)

"""The only seam to Celery: task and queue names, sending, and what the broker still holds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from voicemill.errors import StoreUnavailableError
from voicemill.fairness import JobClass
from voicemill.rollouts import engine_of
from voicemill.settings import Settings

SYNTHESIZE = "voicemill.synthesize"
LANE = "voicemill_lane"
"""The header that names the lane of a batch which waits for a revision."""
UNACKED_PREFIX = "voicemill-unacked:"
PRIORITY_SEPARATOR = "\x06\x16"
MESSAGE_PRIORITIES = {JobClass.BULK: 9, JobClass.INTERACTIVE: 0}
"""On Redis the lowest goes first: what is interactive passes the bulk batch that lies ready."""


def queue_name(engine: str) -> str:
    """The Celery queue of an engine."""
    return f"synthesis.{engine}"


def list_name(engine: str, priority: int) -> str:
    """The Redis list in which Kombu keeps an engine's messages of a priority."""
    name = queue_name(engine)
    return f"{name}{PRIORITY_SEPARATOR}{priority}" if priority else name


class Queue:
    """Sends tasks by name; task arguments are ids only."""

    def __init__(self, settings: Settings, *, timeout: float = 1.0) -> None:
        self._app = Celery("voicemill-sender", broker=settings.redis_url, set_as_current=False)
        self._app.conf.update(
            task_ignore_result=True,
            task_send_sent_event=True,
            task_serializer="json",
            accept_content=["json"],
            broker_transport_options={
                "socket_timeout": timeout,
                "socket_connect_timeout": timeout,
                "max_retries": 0,
            },
        )

    def send(
        self, lane: str, task_id: str, *, time_limit: int, job_class: JobClass = JobClass.BULK
    ) -> None:
        """Send one task; raises ``StoreUnavailableError`` when the broker does not answer."""
        engine = engine_of(lane)
        try:
            self._app.send_task(
                SYNTHESIZE,
                args=(task_id,),
                task_id=task_id,
                queue=queue_name(engine),
                time_limit=time_limit,
                priority=MESSAGE_PRIORITIES[job_class],
                retry=False,
                ignore_result=False,
                headers=None if lane == engine else {LANE: lane},
            )
        except (OperationalError, OSError) as error:
            raise StoreUnavailableError(f"The broker can't be reached: {error}.") from error

    def held(self, engine: str, nodes: Iterable[str]) -> set[str]:
        """Ids of the tasks that wait in an engine's queue or at a live worker.

        ``nodes`` are incarnations as ``Store.live_nodes`` gives them.
        """
        connection = self._app.connection_for_read()
        errors: tuple[type[BaseException], ...] = (OSError, OperationalError)
        errors += connection.connection_errors
        try:
            with connection:
                channel: Any = connection.default_channel
                client = channel.client
                ids: set[str] = set()
                for priority in MESSAGE_PRIORITIES.values():
                    waiting = client.lrange(list_name(engine, priority), 0, -1)
                    ids |= {task_id_of(raw) for raw in waiting}
                for node in nodes:
                    ids |= {task_id_of(raw) for raw in client.hvals(node)}
        except errors as error:
            raise StoreUnavailableError(f"The broker can't be reached: {error}.") from error
        return ids


def task_id_of(raw: bytes) -> str:
    """The task id in a message as Kombu keeps it in a queue's list or among the unacked.

    Empty for a message that is not one of ours.
    """
    try:
        message: Any = json.loads(raw)
    except ValueError:
        return ""
    if isinstance(message, list) and message:
        message = message[0]
    headers = message.get("headers") if isinstance(message, dict) else None
    return str(headers.get("id", "")) if isinstance(headers, dict) else ""

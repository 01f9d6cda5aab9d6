"""Whether a stack that was started can do its work."""

from __future__ import annotations

import http.client
import json
import logging
import os
from collections.abc import Callable
from typing import Any

from scripts.stack.parts import FLOWER_ADDRESS, host_for_url
from voicemill.errors import StoreUnavailableError
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger("up")

PROBE_SECONDS = 3.0


class Readiness:
    """True once a child of this very worker has spoken and API, clerk, Redis and Flower answer.

    A worker that drained when the stack stopped drains on until somebody resumes it. A store that
    outlived a crash still knows the children of that run for a while, so the API's word is believed
    only when one of its children is in our worker's process group.
    """

    def __init__(self, settings: Settings, worker_pid: Callable[[], int | None]) -> None:
        self.missing = ""
        """What it waits for, for a person."""
        self._settings = settings
        self._worker_pid = worker_pid

    def __call__(self) -> bool:
        missing = self._look()
        if missing and missing != self.missing:
            logger.info("waiting: %s", missing)
        self.missing = missing
        return not missing

    def _look(self) -> str:
        settings = self._settings
        status, body = get(host_for_url(settings.host), settings.port, "/health")
        if status is None:
            return "The API does not answer yet."
        worker = self._worker_pid()
        ours = [one for one in body.get("children", ()) if in_group(one["pid"], worker)]
        failed = failed_checks(body)
        if ours:
            failed.pop("children", None)
        if failed or not body:
            return " ".join(failed.values()) or f"The API answers {status}."
        if not ours:
            return "No child of this worker has loaded its engine yet."
        if get(FLOWER_ADDRESS, settings.flower_port, "/")[0] is None:
            return "Flower does not answer yet."
        return ""


def get(host: str, port: int, path: str) -> tuple[int | None, dict[str, Any]]:
    """Status and JSON object of an answer; None without one, and no members when not JSON."""
    connection = http.client.HTTPConnection(host.strip("[]"), port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException):
        return None, {}
    finally:
        connection.close()
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    return response.status, body if isinstance(body, dict) else {}


def failed_checks(body: dict[str, Any]) -> dict[str, str]:
    """The details of the checks that do not hold, by name."""
    return {one["name"]: one["detail"] for one in body.get("checks", ()) if not one["ok"]}


def in_group(pid: int, leader: int | None) -> bool:
    """True when a process lives in the group of ``leader``."""
    try:
        return leader is not None and os.getpgid(pid) == leader
    except ProcessLookupError:
        return False


def redis_answers(url: str) -> bool:
    """True once Redis takes commands, its files loaded."""
    store = Store.connect(url)
    try:
        store.ping()
    except StoreUnavailableError:
        return False
    finally:
        store.close()
    return True

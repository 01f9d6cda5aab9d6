"""Whether a stack that was started can do its work."""

from __future__ import annotations

import http.client
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scripts.stack.parts import FLOWER_ADDRESS, host_for_url, worker_name
from voicemill.errors import StoreUnavailableError
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger("up")

PROBE_SECONDS = 3.0


class Readiness:
    """True once a child of each of these very workers has spoken and all other parts answer.

    A worker that drained when the stack stopped drains on until somebody resumes it. A store that
    outlived a crash still knows the children of that run for a while, so the API's word is believed
    only when one of its children is in our worker's process group.
    """

    def __init__(self, settings: Settings, pid: Callable[[str], int | None]) -> None:
        """``pid`` gives the process of a part now."""
        self.missing = ""
        """What it waits for, for a person."""
        self._settings = settings
        self._pid = pid

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
        failed = failed_checks(body)
        lacking = self._lacking(body.get("children", ()))
        if not lacking:
            failed.pop("children", None)
        if failed or not body:
            return " ".join(failed.values()) or f"The API answers {status}."
        if lacking:
            return f"No child of {lacking} has loaded its engine yet."
        if get(FLOWER_ADDRESS, settings.flower_port, "/")[0] is None:
            return "Flower does not answer yet."
        return ""

    def _lacking(self, children: Iterable[Mapping[str, Any]]) -> str:
        """Workers of which no child has loaded its engine."""
        pids = [child["pid"] for child in children]
        names = [worker_name(self._settings, engine) for engine in self._settings.pools]
        leaders = {name: self._pid(name) for name in names}
        return ", ".join(
            name
            for name, leader in leaders.items()
            if not any(in_group(pid, leader) for pid in pids)
        )


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

"""A tenant that submits jobs and writes down what was accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.e2e.stack import Client, Stack


@dataclass(frozen=True, slots=True)
class Sent:
    """One item as its client wrote it down when the job was accepted."""

    tenant: str
    job: str
    index: int
    text: str
    may_end: tuple[str, ...]
    """The states it may end in."""


class Tenant(Client):
    """Everything that one tenant asks of a stack, and its own log of it."""

    def __init__(self, stack: Stack, name: str, api_key: str, log: Path) -> None:
        super().__init__(stack.url, {"Authorization": f"Bearer {api_key}"})
        self.name = name
        self._stack = stack
        self._log = log

    def logs(self) -> str:
        """Those of the stack."""
        return self._stack.logs()

    def send(self, *groups: tuple[Sequence[str], tuple[str, ...]], **fields: Any) -> str:
        """Submit one job of texts and the states that they may end in; gives its id."""
        items = [(text, may_end) for texts, may_end in groups for text in texts]
        job = self.submit([text for text, _ in items], **fields)
        with self._log.open("a", encoding="utf-8") as file:
            for index, (text, may_end) in enumerate(items):
                sent = Sent(self.name, job, index, text, may_end)
                file.write(json.dumps(asdict(sent)) + "\n")
        return job

    def jobs(self) -> list[str]:
        """The ids of all the jobs that it has."""
        ids: list[str] = []
        while True:
            after = f"&after={ids[-1]}" if ids else ""
            page = self.request("GET", f"/v1/jobs?limit=100{after}").json()
            ids += [job["id"] for job in page["data"]]
            if not page["has_more"]:
                return ids


def read_log(path: Path) -> list[Sent]:
    """All that was written down."""
    records = map(json.loads, path.read_text("utf-8").splitlines())
    return [Sent(**{**record, "may_end": tuple(record["may_end"])}) for record in records]

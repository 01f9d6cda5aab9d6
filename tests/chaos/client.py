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


@dataclass(frozen=True, slots=True)
class Log:
    """All that the clients of a run wrote down."""

    sent: tuple[Sent, ...]
    deleted: frozenset[str]
    """Ids of the jobs that they had removed."""


class Tenant(Client):
    """Everything that one tenant asks of a stack, and its own log of it."""

    def __init__(self, stack: Stack, name: str, api_key: str, log: Path) -> None:
        super().__init__(stack.url, {"Authorization": f"Bearer {api_key}"})
        self.name = name
        self._stack = stack
        self.log = log

    def logs(self) -> str:
        """Those of the stack."""
        return self._stack.logs()

    def send(self, *groups: tuple[Sequence[str], tuple[str, ...]], **fields: Any) -> str:
        """Submit one job of texts and the states that they may end in; gives its id."""
        items = [(text, may_end) for texts, may_end in groups for text in texts]
        job = self.submit([text for text, _ in items], **fields)
        sent = [Sent(self.name, job, n, text, end) for n, (text, end) in enumerate(items)]
        self._note(*map(asdict, sent))
        return job

    def delete(self, job: str, *, cancel: bool = False) -> None:
        """Have a job removed, one that goes on only with ``cancel``."""
        answer = self.request("DELETE", f"/v1/jobs/{job}" + ("?cancel=true" if cancel else ""))
        # It is not found where an answer was lost and this is the second try.
        assert answer.status_code in {204, 404}, answer.text
        self._note({"deleted": job})

    def jobs(self) -> list[str]:
        """The ids of all the jobs that it has."""
        ids: list[str] = []
        while True:
            after = f"&after={ids[-1]}" if ids else ""
            page = self.request("GET", f"/v1/jobs?limit=100{after}").json()
            ids += [job["id"] for job in page["data"]]
            if not page["has_more"]:
                return ids

    def _note(self, *records: dict[str, Any]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(lines)


def read_log(path: Path) -> Log:
    """All that was written down."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    sent = (
        Sent(**{**record, "may_end": tuple(record["may_end"])})
        for record in records
        if "text" in record
    )
    deleted = (record["deleted"] for record in records if "deleted" in record)
    return Log(tuple(sent), frozenset(deleted))

"""Rollouts: started, followed and moved on; every step is a compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import redis

from voicemill.errors import (
    InputError,
    RevisionNotFoundError,
    RolloutConflictError,
    RolloutNotFoundError,
    VoicemillError,
)
from voicemill.rollouts import (
    BASE,
    Canary,
    Figures,
    Revision,
    Rollout,
    RolloutStatus,
    Rule,
)
from voicemill.store.connection import Connection, key, translated
from voicemill.workers import ChildRecord

MOST_LISTED = 100
FAILED = "failed:"


@dataclass(frozen=True, slots=True)
class Measured:
    """A rollout and what the children of its two revisions did meanwhile."""

    rollout: Rollout
    old: Figures
    new: Figures


class RolloutStore(Connection):
    """Keeps the revisions of engines, and the changes from one to another."""

    def assign_revision(self, engine: str, place: str, seconds: float) -> Revision:
        """What a child at a place (a slot of a node) is to load, which takes so long at most."""
        name, options = self.run("assign_revision", engine, place, seconds)
        return Revision(name.decode(), json.loads(options))

    def revision_failed(
        self, engine: str, place: str, why: str, *, revision: str | None = None
    ) -> bool:
        """A child could not load. True where that has ended a rollout: the old revision stays.

        ``revision`` is the one it had, if that is known.
        """
        return bool(self.run("revision_failed", engine, place, revision or "", why))

    def claim_break(self, engine: str, place: str, child_id: str, seconds: float) -> bool:
        """Whether a child may leave for another revision before its successor is there.

        One place at a time, for so long at most; not where it would leave nobody who takes work.
        """
        return bool(self.run("claim_break", engine, place, child_id, seconds))

    def end_break(self, engine: str, place: str) -> None:
        """A place that was left so has a child again."""
        self.run("end_break", engine, place)

    def start_rollout(
        self,
        rollout_id: str,
        engine: str,
        revision: str,
        options: Mapping[str, Any] | None,
        canary: Canary,
        rule: Rule | None,
    ) -> None:
        """Let a revision replace the one in use; without ``options`` it is one that is known.

        Raises ``RolloutConflictError`` while another goes on, ``RevisionNotFoundError``, and
        ``InputError`` where this can't be begun.
        """
        try:
            self.run(
                "start_rollout",
                rollout_id,
                engine,
                revision,
                "" if options is None else json.dumps(dict(options), sort_keys=True),
                "" if canary.children is None else canary.children,
                "" if canary.percent is None else canary.percent,
                json.dumps(list(canary.tenants)),
                "" if rule is None else json.dumps(asdict(rule)),
            )
        except redis.exceptions.ResponseError as error:
            raise refusal_of(error, engine, revision) or error from error

    def move_rollout(
        self, rollout_id: str, action: Literal["promote", "roll_back", "end"], reason: str
    ) -> bool:
        """Move a rollout on; False where it is not so far, or further already."""
        return bool(self.run("move_rollout", rollout_id, action, reason))

    def rollouts(self, limit: int = MOST_LISTED) -> list[Measured]:
        """The last rollouts, newest first."""
        return [read_measured(*one) for one in self.run("rollouts", limit)]

    def rollout(self, rollout_id: str) -> Measured:
        """One rollout; raises ``RolloutNotFoundError``."""
        for one in self.rollouts():
            if one.rollout.id == rollout_id:
                return one
        raise RolloutNotFoundError(f"There is no rollout {rollout_id[:80]}.")

    def move_lanes(self, engine: str, *, limit: int = 100) -> int:
        """Have jobs of tenants that have no canaries now wait with all others; gives how many."""
        return int(self.run("move_lanes", engine, limit))

    def lanes(self) -> list[str]:
        """Where items may wait: every engine, and the revisions of it that jobs asked for."""
        return [lane.decode() for lane in self.run("lanes")]

    def trials(self, tenant: str) -> dict[str, str]:
        """By model, the revision that is tried with this tenant now, where a child has it."""
        return pairs(self.run("trials", tenant))

    def current_revision(self, engine: str) -> str:
        """Name of the revision in use."""
        with translated():
            name = self._redis.hget(key("deployment", engine), "current")
        return name.decode() if name else BASE

    def has_revision(self, engine: str, revision: str) -> bool:
        """Whether a revision was ever rolled out, or is what the workers' settings make."""
        with translated():
            return revision == BASE or self._redis.hexists(key("revisions", engine), revision)


def measured_with(one: Measured, children: Iterable[ChildRecord]) -> Measured:
    """The same with what the children that live now take."""
    mine = [child for child in children if child.engine == one.rollout.engine]
    old = [child for child in mine if child.revision == one.rollout.previous]
    new = [child for child in mine if child.revision == one.rollout.revision.name]
    return Measured(one.rollout, with_children(one.old, old), with_children(one.new, new))


def with_children(figures: Figures, children: Sequence[ChildRecord]) -> Figures:
    """Figures with the memory of the largest of these children."""
    on_devices = [
        device["own_bytes"]
        for child in children
        for device in child.gpu.get("devices", ())
        if device.get("own_bytes") is not None
    ]
    return replace(
        figures,
        children=len(children),
        host_bytes=max((child.rss_bytes for child in children), default=0),
        gpu_bytes=max(on_devices, default=None),
    )


def refusal_of(
    error: redis.exceptions.ResponseError, engine: str, revision: str
) -> VoicemillError | None:
    """Why a rollout was not begun, where that is what an error says."""
    match str(error).split():
        case ["GOESON", other, *_]:
            return RolloutConflictError(
                f"The rollout {other} of {engine} goes on; promote it or roll it back first."
            )
        case ["SAME", *_]:
            return RolloutConflictError(f"The revision {revision} of {engine} is in use already.")
        case ["KNOWN", *_]:
            return RolloutConflictError(
                f"The revision {revision} of {engine} is known with other options; give these "
                "another name, or leave them out."
            )
        case ["UNKNOWN", *_]:
            return RevisionNotFoundError(
                f"{engine} has no revision {revision[:80]!r}; give its options, {{}} for none."
            )
        case ["FEW", *_]:
            return InputError(
                f"canary.tenants: {engine} has fewer than two children, and one must stay for all "
                "other tenants."
            )
        case ["NOENGINE", *_]:
            return InputError(f"model: no worker has offered the model {engine[:80]!r}.")
    return None


def read_measured(rollout: Sequence[bytes], new: Sequence[bytes], old: Sequence[bytes]) -> Measured:
    """What ``rollouts.lua`` gives of one."""
    return Measured(
        read_rollout(pairs(rollout)), read_figures(pairs(old)), read_figures(pairs(new))
    )


def read_rollout(record: Mapping[str, str]) -> Rollout:
    """The rollout that a hash holds."""
    children, percent = record["children"], record["percent"]
    rule = record["rule"]
    return Rollout(
        id=record["id"],
        engine=record["engine"],
        revision=Revision(record["revision"], json.loads(record["options"])),
        previous=record["previous"],
        status=RolloutStatus(record["status"]),
        canary=Canary(
            int(children) if children else None,
            float(percent) if percent else None,
            tuple(json.loads(record["tenants"])),
        ),
        rule=Rule.from_record(json.loads(rule)) if rule else None,
        created_at=float(record["created_at"]),
        promoted_at=float(record["promoted_at"]) if "promoted_at" in record else None,
        ended_at=float(record["ended_at"]) if "ended_at" in record else None,
        reason=record.get("reason"),
    )


def read_figures(record: Mapping[str, str]) -> Figures:
    """What a revision did, from its hash."""
    failures = {
        name.removeprefix(FAILED): int(count)
        for name, count in record.items()
        if name.startswith(FAILED)
    }
    return Figures(
        attempts=int(record.get("attempts", 0)),
        failures=failures,
        audio_seconds=float(record.get("audio_seconds", 0)),
        device_seconds=float(record.get("device_seconds", 0)),
    )


def pairs(fields: Sequence[bytes]) -> dict[str, str]:
    """A hash, or pairs of another kind, as scripts give it."""
    texts = [one.decode() for one in fields]
    return dict(zip(texts[::2], texts[1::2], strict=True))

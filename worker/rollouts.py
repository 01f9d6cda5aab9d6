"""Moves rollouts on: judges canaries by their rule, and sees when all children have changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from voicemill.rollouts import ENDED, RolloutStatus, engine_of, judge
from voicemill.store import Measured, Store, measured_with
from voicemill.workers import ChildRecord

logger = logging.getLogger(__name__)

RULE = "by rule: "


class RolloutKeeper:
    """One round a second, at the clerk; any number may do it at once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def tick(self) -> None:
        """Move on what can be; raises what the store raises."""
        for engine in {engine_of(lane) for lane in self._store.lanes() if lane != engine_of(lane)}:
            self._store.move_lanes(engine)
        open_ones = [one for one in self._store.rollouts() if one.rollout.status not in ENDED]
        if not open_ones:
            return
        children = self._store.fleet().children.values()
        for one in open_ones:
            if one.rollout.status is RolloutStatus.CANARY:
                self._judge(measured_with(one, children))
            elif has_changed(one, children):
                self._end(one)

    def _judge(self, one: Measured) -> None:
        rule = one.rollout.rule
        verdict = None if rule is None else judge(rule, one.old, one.new)
        if verdict is None:
            return
        if self._store.move_rollout(one.rollout.id, verdict.action, RULE + verdict.reason):
            logger.warning("rollout %s: %s, %s", one.rollout.id, verdict.action, verdict.reason)

    def _end(self, one: Measured) -> None:
        if self._store.move_rollout(one.rollout.id, "end", one.rollout.reason or ""):
            logger.warning("rollout %s has ended", one.rollout.id)


def has_changed(one: Measured, children: Iterable[ChildRecord]) -> bool:
    """Whether no child has a revision that it is not to have.

    Those of a release that knows no rollouts say nothing of theirs, and are not waited for.
    """
    revisions = {child.revision for child in children if child.engine == one.rollout.engine}
    return revisions <= {None, one.rollout.wanted}

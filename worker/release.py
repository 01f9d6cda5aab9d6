"""Gives to others what children held that are gone, without waiting for their leases."""

from __future__ import annotations

import logging

from voicemill.errors import (
    StoreRefusedError,
    StoreUnavailableError,
    VoicemillError,
    WorkerLostError,
)
from voicemill.settings import Settings
from voicemill.store import Store

logger = logging.getLogger(__name__)


def release(store: Store, settings: Settings, child: str, error: VoicemillError) -> None:
    """What a child held goes on elsewhere; ``error`` is what its running item failed by."""
    try:
        held = store.release_child(
            child,
            settings.engine,
            max_attempts=settings.max_attempts,
            error=error,
            retry_seconds=settings.retry_seconds or 0.0,
        )
    except (StoreUnavailableError, StoreRefusedError) as trouble:
        logger.warning("child %s not released, its lease will run out: %s", child, trouble)
        return
    if held:
        logger.error("child %s died with work in hand. %s", child, error.message)


def release_all(store: Store, settings: Settings, node: str, message: str) -> None:
    """The same for every child of a node, none of which is left."""
    try:
        children = store.children_of(node)
    except (StoreUnavailableError, StoreRefusedError) as error:
        logger.warning("children not released, their leases will run out: %s", error)
        return
    for child in children:
        release(store, settings, child.id, WorkerLostError(message))

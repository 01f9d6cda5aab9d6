"""Which revision of its model a child loads, and what it means when it can't."""

from __future__ import annotations

import logging
from dataclasses import replace

from voicemill.errors import StoreRefusedError, StoreUnavailableError
from voicemill.rollouts import Revision
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.voices import Capabilities

logger = logging.getLogger(__name__)


def settings_of(settings: Settings, revision: Revision) -> Settings:
    """The settings of a child that has a revision: its options lie over those there are."""
    if not revision.options:
        return settings
    return replace(settings, engine_options={**settings.engine_options, **revision.options})


def named(capabilities: Capabilities, revision: Revision) -> Capabilities:
    """What an engine can do, under the name that records give to its model of a revision."""
    return replace(capabilities, model_revision=revision.of_model(capabilities.model_revision))


def note_revision_failed(
    store: Store, engine: str, place: str, why: str, *, revision: str | None = None
) -> bool:
    """A child did not come up. True where that was the fault of a rollout, which is taken back."""
    try:
        is_taken_back = store.revision_failed(engine, place, why, revision=revision)
    except (StoreUnavailableError, StoreRefusedError) as error:
        logger.warning("whether a rollout is at fault can't be said: %s", error)
        return False
    if is_taken_back:
        logger.error("the rollout of another revision of %s is taken back: %s", engine, why)
    return is_taken_back

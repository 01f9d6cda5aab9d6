"""Whether a Redis keeps what it is given: what a 202 stands on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import redis

from voicemill.errors import SettingsError
from voicemill.store.connection import Connection, translated

logger = logging.getLogger(__name__)


class DurabilityStore(Connection):
    """Asks the server how it is set up."""

    def forgetfulness(self) -> dict[str, str]:
        """What makes this server lose records, each with the setting that cures it."""
        with translated():
            try:
                info = self._redis.info("persistence") | self._redis.info("memory")
            except redis.exceptions.NoPermissionError:
                logger.warning("Redis does not let us see whether it keeps what it is given")
                return {}
        return faults_of(info)

    def refuse_forgetful(self) -> None:
        """Raise ``SettingsError`` for a server that may lose or throw away records."""
        faults = self.forgetfulness()
        if faults:
            wrong = "; ".join(faults)
            cures = " and ".join(f"`CONFIG SET {cure}`" for cure in faults.values())
            raise SettingsError(
                f"VOICEMILL_REDIS_URL names a Redis that loses jobs: {wrong}. Run {cures}, write "
                "the same in its configuration, and start again; or, to run on it anyway, set "
                "VOICEMILL_REDIS_CHECK=off."
            )


def faults_of(info: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with a server, and the setting that cures it."""
    faults = {}
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        faults[f"it throws records away when it is full ({policy})"] = "maxmemory-policy noeviction"
    if not info.get("aof_enabled", 1):
        faults["it has no append-only file, so a restart loses what came last"] = "appendonly yes"
    return faults

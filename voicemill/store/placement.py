"""Memory that engines were measured to take, and what of a device is promised to whom."""

from __future__ import annotations

import json
from dataclasses import asdict

from voicemill.store.connection import Connection, key, translated
from voicemill.workers import Footprint

SCHEMA = 1


class PlacementStore(Connection):
    """Lets workers share devices; a device is named by its UUID, which is the same everywhere."""

    def note_footprint(self, engine: str, revision: str, footprint: Footprint) -> None:
        """What a warm child of this model takes; the last measurement stays."""
        record = json.dumps({"schema": SCHEMA, **asdict(footprint)})
        with translated():
            self._redis.hset(key("footprints"), f"{engine}|{revision}", record)

    def footprint(self, engine: str, revision: str) -> Footprint | None:
        """What the last child of this model took that was measured; nothing before the first."""
        with translated():
            record = self._redis.hget(key("footprints"), f"{engine}|{revision}")
        if record is None:
            return None
        found = json.loads(record)
        return Footprint(found["host"], found["gpu"])

    def claim_room(
        self, device: str, who: str, needed: int, free: int, seconds: float, *, force: bool = False
    ) -> tuple[bool, int]:
        """Whether ``who`` may take so many bytes of a device, and the bytes others were promised.

        Others that were promised some and have not loaded yet come first, unless it is forced.
        """
        granted, others = self.run("claim_room", device, who, needed, free, seconds, int(force))
        return bool(granted), int(others)

    def release_room(self, device: str, who: str) -> None:
        """It has loaded, or it never will: what it takes shows by itself."""
        with translated():
            self._redis.hdel(key("room", device), who)

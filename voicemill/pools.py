"""The engines of a stack, each with its children: ``hibari:2,tone:1``. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pool:
    """An engine of a stack, with its number of children."""

    engine: str
    children: int | None = None
    """Nothing: as many as ``VOICEMILL_WORKERS``."""

    def __str__(self) -> str:
        return self.engine if self.children is None else f"{self.engine}:{self.children}"


def parse_pool(text: str) -> Pool:
    """An engine, maybe with a number of children: ``tone`` or ``tone:2``."""
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::([1-9][0-9]*))?", text)
    if match is None:
        raise ValueError("the name of an engine, or one with its children such as tone:2")
    return Pool(match[1], int(match[2]) if match[2] else None)


def parse_pools(text: str) -> tuple[Pool, ...]:
    """Engines behind commas, each once; ``off`` is none."""
    if text in {"off", "0"}:
        return ()
    pools = tuple(parse_pool(word.strip()) for word in text.split(","))
    if len({pool.engine for pool in pools}) < len(pools):
        raise ValueError("each engine once, such as hibari:2,tone:1")
    return pools

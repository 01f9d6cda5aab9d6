"""Before a stack is started: whether its engine lacks anything."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from scripts.diagnosis.checks import by_command
from scripts.diagnosis.probes import ProbeError, ask_worker
from scripts.stack.errors import CannotStartError
from voicemill.settings import Settings

logger = logging.getLogger("up")


def refuse_missing(engines: Iterable[Settings], environ: Mapping[str, str]) -> None:
    """Raise ``CannotStartError`` with all that the engines lack, and what brings it."""
    lists = [lacks(one.engine, found) for one in engines if (found := missing_of(one, environ))]
    if lists:
        raise CannotStartError("\n".join(lists))


def missing_of(settings: Settings, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """What one engine lacks, as far as it can be known."""
    try:
        missing: list[dict[str, str]] = ask_worker(settings, environ)["missing"]
    # The worker itself is the judge, and will say what is wrong with it.
    except ProbeError as error:
        logger.warning("it is not known whether %s has all it needs: %s", settings.engine, error)
        return []
    return missing


def lacks(engine: str, missing: Sequence[Mapping[str, str]]) -> str:
    """What is missing, for a person."""
    lines = [f"{engine} can't start; nothing was started. It lacks:"]
    for command, things in by_command(missing).items():
        lines += [f"  {thing}" for thing in things]
        lines += [f"    run: {command}"] if command else []
    return "\n".join(lines)

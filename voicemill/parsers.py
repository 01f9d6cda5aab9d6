"""What the text of a setting means; whatever can't be meant is told as what to give instead.

Each parser raises ``ValueError`` whose message ends the sentence "give …".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

OFF = frozenset({"off", "0"})
LEAST_SECONDS, MOST_SECONDS = 0.001, 1_000_000_000
LEAST_LEASE_SECONDS = 1
LEAST_STUCK_SECONDS = 5


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit on memory, absolute or relative."""

    kind: Literal["mebibytes", "share", "baseline"]
    value: float
    """MiB; a share of what there is (0.85); or a multiple of the child's warm baseline (1.6)."""

    def __str__(self) -> str:
        match self.kind:
            case "mebibytes":
                return f"{plain(self.value)}MiB"
            case "share":
                return f"{plain(self.value * 100)}%"
            case "baseline":
                return f"{plain(self.value)}x"


def plain(number: float) -> str:
    """A number without an exponent and without needless zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".")


def parse_text(text: str) -> str:
    """Any text."""
    return text


def parse_path(text: str) -> Path:
    """An absolute path; ``~`` is the user's home."""
    return at_home(text).resolve()


def at_home(text: str) -> Path:
    """The path that a text with ``~`` means; raises ``ValueError`` where nobody's home is meant."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("a path; there is no home folder to put for ~") from error


def parse_optional_path(text: str) -> Path | None:
    """An absolute path, or ``off``."""
    return None if text in OFF else parse_path(text)


def parse_optional_program(text: str) -> Path | None:
    """The absolute path of a program, or ``off``."""
    if text in OFF:
        return None
    path = at_home(text)
    # Not resolved: the Python of a virtual environment is one by the place of its link.
    if not path.is_absolute():
        raise ValueError("an absolute path such as /srv/cosyvoice/bin/python, or off")
    return path


def parse_count(text: str) -> int:
    """A whole number of one or more."""
    if not re.fullmatch(r"[1-9][0-9]*", text):
        raise ValueError("a whole number of 1 or more")
    return int(text)


def parse_port(text: str) -> int:
    """A TCP port; 0 takes a free one."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise ValueError("a port from 0 to 65535")
    return int(text)


def parse_optional_count(text: str) -> int | None:
    """A whole number, or ``off``."""
    return None if text in OFF else parse_count(text)


def parse_seconds(text: str) -> float:
    """Seconds: a millisecond or more, and no more than a clock can be set to."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ValueError(f"a number of seconds from {LEAST_SECONDS} to {MOST_SECONDS}")
    return seconds


def parse_lease(text: str) -> float:
    """Seconds, enough of them for a heartbeat to be late."""
    seconds = parse_seconds(text)
    if seconds < LEAST_LEASE_SECONDS:
        raise ValueError(f"{LEAST_LEASE_SECONDS} second or more")
    return seconds


def parse_optional_seconds(text: str) -> float | None:
    """Seconds, or ``off``."""
    return None if text in OFF else parse_seconds(text)


def parse_megabytes(text: str) -> int:
    """A whole number of MiB; ``off`` is none."""
    if text in OFF:
        return 0
    return parse_count(text)


def parse_memory_limit(text: str) -> MemoryLimit | None:
    """``10000MiB``, ``85%``, ``1.6x``, or ``off``."""
    if text in OFF:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(MiB|%|x)", text)
    if match is None or float(match[1]) == 0:
        raise ValueError("10000MiB, 85%, 1.6x or off")
    number, unit = float(match[1]), match[2]
    if unit == "%":
        if number > 100:
            raise ValueError("a share of 100% at most")
        return MemoryLimit("share", number / 100)
    if unit == "x":
        if number <= 1:
            raise ValueError("a multiple above 1x")
        return MemoryLimit("baseline", number)
    return MemoryLimit("mebibytes", number)


def parse_share(text: str) -> float | None:
    """``30%``, or ``off``."""
    if text in OFF:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", text)
    if match is None or not 0 < float(match[1]) <= 100:
        raise ValueError("a share such as 30%, or off")
    return float(match[1]) / 100


def parse_factor(text: str) -> float | None:
    """A number above 1, or ``off``."""
    if text in OFF:
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 < factor < float("inf"):
        raise ValueError("a number above 1, or off")
    return factor


def parse_stuck(text: str) -> float | None:
    """Seconds, enough of them for a busy loop to be late, or ``off``."""
    if text in OFF:
        return None
    seconds = parse_seconds(text)
    if seconds < LEAST_STUCK_SECONDS:
        raise ValueError(f"{LEAST_STUCK_SECONDS} seconds or more, or off")
    return seconds


def parse_optional_text(text: str) -> str | None:
    """Any text, or ``off``."""
    return None if text in OFF else text


def parse_switch(text: str) -> bool:
    """``on`` or ``off``."""
    if text in OFF:
        return False
    if text in {"on", "1"}:
        return True
    raise ValueError("on or off")


def parse_options(text: str) -> Mapping[str, Any]:
    """A JSON object."""
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ValueError('a JSON object such as {"load_seconds": 3}')
    return MappingProxyType(options)


def parse_without_workers(text: str) -> str:
    """``queue`` or ``refuse``."""
    if text not in {"queue", "refuse"}:
        raise ValueError("queue or refuse")
    return text


def parse_threads(text: str) -> int | None:
    """A whole number, or ``auto``."""
    if text == "auto":
        return None
    try:
        return parse_count(text)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from error


def parse_log_level(text: str) -> str:
    """One of logging's level names."""
    level = text.upper()
    if level not in {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}:
        raise ValueError("DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return level

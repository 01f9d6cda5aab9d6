"""The Range header (RFC 9110, section 14) as far as it is honoured: one part. Pure."""

from __future__ import annotations

import re
from typing import Final

UNIT: Final = "bytes="
# No file has a size of nineteen digits.
SPEC: Final = re.compile(r"([0-9]{0,18})-([0-9]{0,18})")


def honoured(header: str, size: int) -> str | None:
    """The header as the one range that it comes to; nothing where the whole is to be sent.

    That is so for another unit, for what can't be read, and for several parts. A range
    outside the ``size`` bytes stays one, to be refused.
    """
    if header[: len(UNIT)].lower() != UNIT:
        return None
    specs = [spec.strip() for spec in header[len(UNIT) :].split(",")]
    asked = [read_spec(spec, size) for spec in specs if spec]
    inside = [part for part in asked if part is not None and part[0] < min(part[1], size)]
    if not asked or None in asked or len(inside) > 1:
        return None
    start, stop = inside[0] if inside else (size, size + 1)
    return f"{UNIT}{start}-{stop - 1}"


def read_spec(spec: str, size: int) -> tuple[int, int] | None:
    """Start and stop of one part, maybe outside the bytes; nothing where it is malformed."""
    match = SPEC.fullmatch(spec)
    if match is None or spec == "-":
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    stop = int(last) + 1 if last else max(size, int(first) + 1)
    return None if stop <= int(first) else (int(first), stop)

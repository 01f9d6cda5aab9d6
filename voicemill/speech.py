"""Whether a text has anything to speak. Pure."""

from __future__ import annotations

import re
from typing import Final

SPEAKABLE: Final = re.compile(r"[^\W_]")
"""A letter or a number of any script."""


def has_speech(text: str) -> bool:
    """True when the text holds a letter or a digit of any script."""
    return SPEAKABLE.search(text) is not None

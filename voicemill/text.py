"""What text can be spoken. Pure."""

from __future__ import annotations

import re

from voicemill.errors import InvalidTextError, NoSpeakableTextError

SPEAKABLE = re.compile(r"[^\W_]")
"""A letter or a number of any script."""


def has_speech(text: str) -> bool:
    """True when the text holds a letter or a digit of any script."""
    return SPEAKABLE.search(text) is not None


def check_text(text: str) -> None:
    """Raise for text that holds nothing to speak or is not Unicode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidTextError(
            f"The text has a lone surrogate (half of a character) at position {error.start}."
        ) from error
    if not has_speech(text):
        raise NoSpeakableTextError("The text has no letter and no digit.")

"""Text in letters that a voice can say, or the error that names one it can't."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from voicemill.errors import UnsupportedCharactersError


def in_sayable_letters(text: str, voice: str, says: Callable[[str], bool]) -> str:
    """The text, each letter and digit that the voice can't say put in a plainer form.

    Engines leave out what they don't know, and a letter left out is a wrong reading: where the
    plain form can't be said either, this raises ``UnsupportedCharactersError``. ``says`` is asked
    once for each distinct character; marks, punctuation and symbols pass unasked.
    """
    readings = {character: sayable_form(character, says) for character in set(text)}
    missing = sorted(character for character, reading in readings.items() if reading is None)
    if missing:
        name = unicodedata.name(missing[0], f"U+{ord(missing[0]):04X}")
        raise UnsupportedCharactersError(
            f"The voice {voice} can't say {len(missing)} of the characters, "
            f"{missing[0]!r} ({name}) among them."
        )
    return "".join(readings[character] or "" for character in text)


def sayable_form(character: str, says: Callable[[str], bool]) -> str | None:
    """The character, else its plain form; nothing where neither can be said."""
    if unicodedata.category(character)[0] not in "LN" or says(character):
        return character
    plain = plain_form(character)
    return plain if plain and all(map(says, plain)) else None


def plain_form(character: str) -> str:
    """The letter without its marks, a ligature as its letters, a Roman numeral likewise."""
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(part for part in decomposed if not unicodedata.combining(part))

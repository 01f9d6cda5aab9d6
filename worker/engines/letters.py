"""Text in letters that a voice can say, or the error that names one it can't."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from voicemill.errors import UnsupportedCharactersError


def in_sayable_letters(text: str, voice: str, says: Callable[[str], bool]) -> str:
    """The text, with what the voice can't say put in a plainer form.

    Engines leave out what they don't know, and a letter or digit left out is a wrong reading:
    where its plain form can't be said either, this raises ``UnsupportedCharactersError``. Marks,
    punctuation and pictures pass. ``says`` is asked once for each distinct character.
    """
    readings = {character: reading_of(character, says) for character in set(text)}
    missing = sorted(character for character, reading in readings.items() if reading is None)
    if missing:
        name = unicodedata.name(missing[0], f"U+{ord(missing[0]):04X}")
        raise UnsupportedCharactersError(
            f"The voice {voice} can't say {len(missing)} of the characters, "
            f"{missing[0]!r} ({name}) among them."
        )
    return "".join(readings[character] or "" for character in text)


def reading_of(character: str, says: Callable[[str], bool]) -> str | None:
    """The character, else its plain form; nothing for a letter where neither can be said."""
    is_letter = is_letter_or_digit(character)
    plain = plain_form(character)
    if not (is_letter or any(map(is_letter_or_digit, plain))) or says(character):
        return character
    if plain and all(map(says, plain)):
        return plain
    return None if is_letter else character


def is_letter_or_digit(character: str) -> bool:
    """True for the letters and numbers of any script."""
    return unicodedata.category(character)[0] in "LN"


def plain_form(character: str) -> str:
    """A letter without its marks; ligatures, Roman numerals and units as their letters."""
    decomposed = unicodedata.normalize("NFKD", character)
    return "".join(part for part in decomposed if not unicodedata.combining(part))

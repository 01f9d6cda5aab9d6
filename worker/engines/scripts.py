"""Which letters a language is written in, for engines whose reader spells out all others."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from itertools import takewhile

LATIN = ("LATIN",)
SCRIPTS = {
    "am": ("ETHIOPIC",),
    "ar": ("ARABIC",),
    "be": ("CYRILLIC",),
    "bg": ("CYRILLIC",),
    "bn": ("BENGALI",),
    "el": ("GREEK",),
    "fa": ("ARABIC",),
    "gu": ("GUJARATI",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "hy": ("ARMENIAN",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ka": ("GEORGIAN",),
    "kk": ("CYRILLIC",),
    "kn": ("KANNADA",),
    "ko": ("HANGUL",),
    "mk": ("CYRILLIC",),
    "ml": ("MALAYALAM",),
    "mr": ("DEVANAGARI",),
    "ne": ("DEVANAGARI",),
    "pa": ("GURMUKHI",),
    "ru": ("CYRILLIC",),
    "sr": ("CYRILLIC", "LATIN"),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "th": ("THAI",),
    "uk": ("CYRILLIC",),
    "ur": ("ARABIC",),
    "zh": ("CJK",),
}
"""By language, as the Unicode names of letters begin; what is not here is written in Latin ones."""
COMPATIBILITY = "<"
FRACTION = "<fraction>"
UNKNOWN = ("\U00012000", "\ua000")
"""Letters that no reader knows, with different numbers."""


class Alphabet:
    """The letters that a reader (espeak-ng, say) reads as such in a text of one language.

    Of those it does not know it says "letter" and a number, in its language. ``read`` gives the
    phonemes of a text.
    """

    def __init__(self, language: str, read: Callable[[str], str]) -> None:
        self._language = language
        self._read = read
        pairs = zip(*map(read, UNKNOWN), strict=False)
        self._spelled = "".join(one for one, _ in takewhile(lambda two: two[0] == two[1], pairs))

    def has(self, character: str) -> bool:
        """Whether the character is read, and not spelled out or left out."""
        if not is_written(character, self._language):
            return False
        if character.isascii() or not character.isalpha():
            return True
        reading = self._read(character)
        return bool(reading) and not (self._spelled and reading.startswith(self._spelled))


def is_written(character: str, language: str) -> bool:
    """Whether a text of this language may have this letter or number as it is.

    Letters and digits of ASCII are read everywhere. One that stands for others (a ligature, a
    Roman numeral, a unit) is better read in its plain form.
    """
    if character.isascii():
        return True
    decomposition = unicodedata.decomposition(character)
    if decomposition.startswith(COMPATIBILITY):
        return decomposition.startswith(FRACTION)
    script = unicodedata.name(character, "").partition(" ")[0]
    return script in SCRIPTS.get(language.partition("-")[0].lower(), LATIN)

"""Text made plain, and cut into pieces that an engine takes at once. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

import sentencex  # type: ignore[import-untyped]

from voicemill.text import has_speech

PARAGRAPH_BREAK = "\n\n"

# The splitter's time grows with the square of a paragraph without spaces.
SPLITTER_WINDOW_CHARACTERS = 2000

# A run of letters longer than this has no word boundary worth looking for.
LONGEST_WORD_CHARACTERS = 64

LINE_BREAK = re.compile("\r\n|[\r\v\f\x85\u2028]")
HYPHENATED_LINE = re.compile("\u00ad[ \t]*\n[ \t]*")
BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")

# Joiners shape words of scripts from Arabic to Myanmar; anywhere else they are litter.
STRAY_JOINER = re.compile("(?<![\u0600-\u109f])[\u200c\u200d]|[\u200c\u200d](?![\u0600-\u109f])")
JOINERS = frozenset("\u200c\u200d")

# Blanks that Unicode counts as letters or symbols; hyphens that differ in looks only.
PLAIN = str.maketrans(
    dict.fromkeys("\u115f\u1160\u2800\u3164\uffa0", " ") | {"\u2010": "-", "\u2011": "-"}
)

# Western marks end a clause before a blank, the full-width ones of East Asia anywhere.
CLAUSE_END = re.compile(
    "[,;:)\\]}\u00bb\u201d\u2013\u2014\u2026]+\\s+"
    "|[\u3001\u3002\uff0c\uff1b\uff1a\uff01\uff1f\u2014\u2026]+(?!\\d)\\s*"
)
SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
NUMBER_MARKS = frozenset(" .,:/'\u2019-")


def clean(text: str) -> str:
    """The text with nothing in it that can't be heard.

    Composed (NFC), without control, zero-width and formatting characters; every run of blanks is
    one space, every blank line one paragraph break (``"\\n\\n"``), a single line break a space.
    """
    text = LINE_BREAK.sub("\n", text).replace("\u2029", PARAGRAPH_BREAK)
    text = HYPHENATED_LINE.sub("", text).translate(PLAIN)
    text = STRAY_JOINER.sub("", "".join(filter(is_audible, text)))
    paragraphs = BLANK_LINE.split(unicodedata.normalize("NFC", text))
    plain = (" ".join(paragraph.split()) for paragraph in paragraphs)
    return PARAGRAPH_BREAK.join(paragraph for paragraph in plain if paragraph)


def is_audible(character: str) -> bool:
    """False for a character that only formats, selects a glyph or controls."""
    if character.isspace() or character in JOINERS:
        return True
    return unicodedata.category(character) not in {"Cc", "Cf"} and not (
        "\ufe00" <= character <= "\ufe0f"
    )


def split(text: str, best: int, hard: int, *, language: str | None = None) -> list[str]:
    """Cut cleaned text into segments of up to ``best`` characters, and never more than ``hard``.

    Whole sentences where they fit; a sentence over ``hard`` is cut at a clause, else at a space,
    else between characters, and inside a number only where the number alone is over ``hard``.
    No segment spans a paragraph break, and each one holds a letter or a digit. Together they give
    the text back, but for blanks at the cuts and for punctuation that stands alone and fits
    nowhere. ``language`` (BCP 47) picks the abbreviations; without it, those of English.
    """
    tag = (language or "en").split("-")[0].lower()
    pieces: list[str] = []
    for paragraph in text.split(PARAGRAPH_BREAK):
        ends = shortened(paragraph, sentence_ends(paragraph, tag), hard)
        pieces += packed(paragraph, ends, min(best, hard))
    return spoken_only(pieces, hard)


def sentence_ends(text: str, language: str) -> Iterator[int]:
    """The offset behind each sentence, blanks included, the end of the text last."""
    start = 0
    while start + SPLITTER_WINDOW_CHARACTERS < len(text):
        window = text[start : start + SPLITTER_WINDOW_CHARACTERS]
        whole = sentencex.segment(language, window)[:-1]  # the last may go on behind the window
        for sentence in whole:
            start += len(sentence)
            if not is_inside_number(text, start):
                yield start
        if not whole:
            start += SPLITTER_WINDOW_CHARACTERS
    for sentence in sentencex.segment(language, text[start:]):
        start += len(sentence)
        if start < len(text) and not is_inside_number(text, start):
            yield start
    yield len(text)


def shortened(text: str, ends: Iterable[int], hard: int) -> Iterator[int]:
    """The same offsets, and more where two of them lie further apart than ``hard``."""
    start = 0
    for end in ends:
        while width(text, start, end) > hard:
            start = cut(text, start, end, hard)
            yield start
        yield end
        start = end


def packed(text: str, ends: Iterable[int], best: int) -> Iterator[str]:
    """Neighbours put together up to ``best`` characters."""
    start = last = 0
    for end in ends:
        if last > start and width(text, start, end) > best:
            yield text[start:last].strip()
            start = last
        last = end
    if text[start:last].strip():
        yield text[start:last].strip()


def width(text: str, start: int, end: int) -> int:
    """Characters between two offsets, without the blanks around them."""
    return len(text[start:end].strip())


def cut(text: str, start: int, end: int, hard: int) -> int:
    """Where to end the first piece of a sentence that is over ``hard``; pieces come out even."""
    stop = min(start + hard, end - 1)
    aim = start + round((end - start) / -((start - end) // hard))
    for breaks in (CLAUSE_END, SPACE):
        # One character further than may be taken, for the look-ahead to see it.
        found = (match.end() for match in breaks.finditer(text, start, min(stop + 1, len(text))))
        near = [offset for offset in found if start + hard // 4 <= offset <= stop]
        if near:
            return min(near, key=lambda offset: abs(offset - aim))
    around = sorted(range(start + 1, stop + 1), key=lambda offset: abs(offset - aim))
    for allows in (is_between_words, is_between_characters, is_blank, is_between_graphemes):
        for offset in around[:LONGEST_WORD_CHARACTERS] if allows is is_between_words else around:
            if allows(text, offset):
                return offset
    return stop


def is_between_words(text: str, offset: int) -> bool:
    """True where no word of an alphabet and no number goes on; wide characters are words alone."""
    left, right = text[offset - 1], text[offset]
    goes_on = left.isalnum() and right.isalnum() and not (is_wide(left) or is_wide(right))
    return not goes_on and is_between_characters(text, offset)


def is_between_characters(text: str, offset: int) -> bool:
    """True where neither a character as people see it nor a number goes on."""
    return is_between_graphemes(text, offset) and not is_inside_number(text, offset)


def is_blank(text: str, offset: int) -> bool:
    """True behind a blank."""
    return text[offset - 1].isspace()


def is_between_graphemes(text: str, offset: int) -> bool:
    """True unless the characters on both sides are drawn as one."""
    left, right = text[offset - 1], text[offset]
    joined = right in JOINERS or left in JOINERS or unicodedata.category(right)[0] == "M"
    virama = unicodedata.combining(left) == 9
    return not (joined or virama or "\U0001f3fb" <= right <= "\U0001f3ff")


def is_inside_number(text: str, offset: int) -> bool:
    """True between the digits of ``12``, ``1,234.5``, ``10:30`` or ``1 000``."""
    if not 0 < offset < len(text):
        return False
    left = text[offset - 1]
    right = text[offset]
    before = text[offset - 2] if offset > 1 else ""
    behind = text[offset + 1] if offset + 1 < len(text) else ""
    return (
        (left.isdigit() and right.isdigit())
        or (left.isdigit() and right in NUMBER_MARKS and behind.isdigit())
        or (before.isdigit() and left in NUMBER_MARKS and right.isdigit())
    )


def is_wide(character: str) -> bool:
    """True for the ideographs, kana and hangul of East Asia."""
    return unicodedata.east_asian_width(character) in "WF"


def spoken_only(pieces: list[str], hard: int) -> list[str]:
    """Pieces with something to speak; bare punctuation joins a neighbour, or goes."""
    kept: list[str] = []
    before = ""
    for piece in pieces:
        if has_speech(piece):
            whole = f"{before} {piece}".strip()
            kept.append(whole if len(whole) <= hard else piece)
            before = ""
        elif kept:
            whole = f"{kept[-1]} {piece}"
            kept[-1] = whole if len(whole) <= hard else kept[-1]
        else:
            before = f"{before} {piece}".strip()
    return kept

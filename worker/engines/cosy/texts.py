"""Text as CosyVoice may be given it: without its control tokens, and in short pieces. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from voicemill.errors import UnsupportedCharactersError
from voicemill.text import has_speech

MOST_CHARACTERS = 300
ATOM = re.compile(
    r"\[[^\[\]\s]{1,24}\]|</?\w{1,16}>|\d+(?:[.,:/]\d+)*|[^\W\d_\u2e80-\uffff]+|\s+|."
)
SENTENCE_END = frozenset(".!?;\u3002\uff01\uff1f\uff1b\u2026")
CLAUSE_END = frozenset(",:\uff0c\u3001\uff1a\u2014")
HIRAGANA_OR_IDEOGRAPH = re.compile("[\u3041-\u3096\u3400-\u4dbf\u4e00-\u9fff]")


class Markup:
    """The tokens of a model's tokenizer that control it."""

    def __init__(self, tokens: Iterable[str]) -> None:
        longest_first = sorted((one for one in tokens if len(one) > 2), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def disarmed(self, text: str, *, keep: bool = False) -> str:
        """The same words, with blanks in all that would be read as a control token.

        ``keep`` leaves those of delivery and pronunciation, such as ``[breath]``; never ``<|…|>``.
        """
        text = text.replace("<|", "< |").replace("|>", "| >")
        return text if keep else self._pattern.sub(spaced, text)


def spaced(token: re.Match[str]) -> str:
    """``[ breath ]`` for ``[breath]``: spoken, and no token any more."""
    return f"{token[0][0]} {token[0][1:-1]} {token[0][-1]}"


def refuse_japanese_script(text: str) -> None:
    """Raise ``UnsupportedCharactersError`` for Japanese in another script than katakana."""
    found = HIRAGANA_OR_IDEOGRAPH.search(text)
    if found:
        raise UnsupportedCharactersError(
            f"CosyVoice 3 reads Japanese in katakana only, and the text holds {found[0]!r}; "
            "write it as it is pronounced, with a blank between words."
        )


def pieces(text: str, count: Callable[[str], int], most: int) -> Iterator[str]:
    """Cut text into pieces of at most ``most`` tokens and ``MOST_CHARACTERS`` characters.

    Each is cut near its middle, behind a sentence where it can be, else a clause, else a blank,
    and never inside a tag, a word or a number unless that alone is too long. What holds nothing to
    speak goes with the blanks.
    """
    text = text.strip()
    if len(text) < 2 or (len(text) <= MOST_CHARACTERS and count(text) <= most):
        if has_speech(text):
            yield text
        return
    at = middle(text)
    yield from pieces(text[:at], count, most)
    yield from pieces(text[at:], count, most)


def middle(text: str) -> int:
    """The offset at which a text is best cut in two."""
    ends = [match.end() for match in ATOM.finditer(text)][:-1]
    half, quarter = len(text) / 2, len(text) / 4
    near = [end for end in ends if abs(end - half) <= quarter]
    if not near:
        return min(ends, key=lambda end: abs(end - half), default=len(text) // 2)
    return min(near, key=lambda end: (-strength(text, end), abs(end - half)))


def strength(text: str, offset: int) -> int:
    """How well a text may be cut here: 3 behind a sentence, 2 a clause, 1 a blank, else 0."""
    before = text[:offset].rstrip()[-1:]
    if before in SENTENCE_END:
        return 3
    if before in CLAUSE_END:
        return 2
    return int(text[offset - 1].isspace())

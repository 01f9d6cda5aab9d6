"""Texts for CosyVoice: control tokens are made harmless, long ones are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.errors import UnsupportedCharactersError
from worker.engines.cosy.texts import MOST_CHARACTERS, Markup, pieces, refuse_japanese_script

TOKENS = ("<|endofprompt|>", "[breath]", "<strong>", "</strong>", "[a]", "[AA0]", "[\u01d0]")
MARKUP = Markup(TOKENS)
FRAGMENTS = st.lists(st.sampled_from([*TOKENS, "<", "|", ">", "[", "]", "a", " ", "breath"]))


@given(FRAGMENTS)
def test_no_control_token_is_left_in_any_text(fragments: list[str]) -> None:
    text = "".join(fragments)
    disarmed = MARKUP.disarmed(text)
    assert not [token for token in TOKENS if token in disarmed]
    assert disarmed.replace(" ", "") == text.replace(" ", "")
    assert "<|" not in MARKUP.disarmed(text, keep=True)


def test_brackets_that_are_no_token_are_left_alone() -> None:
    assert MARKUP.disarmed("see [1] and <b>") == "see [1] and <b>"


def cut(text: str, most: int = 5) -> list[str]:
    """Pieces, where every word and every wide character is a token."""
    return list(pieces(text, lambda part: len(re.findall(r"[a-z]+|[^\sa-z]", part)), most))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", ["one two three"]),
        ("one two. three four five six", ["one two.", "three four five six"]),
        ("one two, three four five", ["one two,", "three four five"]),
        ("one two three four five six", ["one two three", "four five six"]),
        ("\u4eca\u5929\u3002\u5929\u6c14\u5f88", ["\u4eca\u5929\u3002", "\u5929\u6c14\u5f88"]),
        ("\u4eca\u5929\u5929\u6c14\u5f88\u597d", ["\u4eca\u5929\u5929", "\u6c14\u5f88\u597d"]),
        ("...", []),
    ],
)  # fmt: skip
def test_a_text_is_cut_where_it_may_be(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize("whole", ["1,234,567.5", "[laughter]", "10:30", "<strong>"])
def test_neither_numbers_nor_tags_are_cut(whole: str) -> None:
    found = list(pieces(f"\u4eca\u5929{whole}\u5929\u6c14", len, len(whole)))
    assert len(found) > 1
    assert [part for part in found if whole in part]


@given(st.text(alphabet="ab1. ,\u4eca\u5929\u3002", max_size=900), st.integers(1, 60))
def test_every_piece_fits_and_no_word_is_lost(text: str, most: int) -> None:
    found = list(pieces(text, len, most))
    assert all(len(piece) <= min(most, MOST_CHARACTERS) for piece in found)
    assert re.findall(r"\w", "".join(found)) == re.findall(r"\w", text)


def test_katakana_passes_and_other_japanese_is_named() -> None:
    refuse_japanese_script("\u30ec\u30ad\u30b7 \u30c6\u30ad, CD")
    with pytest.raises(UnsupportedCharactersError, match="'\u6b74'"):
        refuse_japanese_script("\u30ec\u30ad\u6b74")

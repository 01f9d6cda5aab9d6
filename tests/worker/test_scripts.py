"""Which letters a reader reads, and which it would spell out."""

from __future__ import annotations

import pytest

from worker.engines.scripts import Alphabet, is_written


@pytest.mark.parametrize(
    ("character", "language", "written"),
    [
        ("a", "ru", True),
        ("7", "ru", True),
        ("\u00e9", "en-US", True),
        ("\u0436", "en-US", False),
        ("\u0436", "ru", True),
        ("\u4f60", "zh-CN", True),
        ("\u4f60", "en", False),
        ("\u30ab", "ja", True),
        ("\u0663", "en", False),
        ("\u2167", "en", False),
        ("\ufb01", "en", False),
        ("\u00bd", "en", True),
    ],
)
def test_a_language_has_letters_of_its_own(character: str, language: str, written: bool) -> None:
    assert is_written(character, language) is written


def test_a_letter_that_the_reader_spells_is_none_of_its_alphabet() -> None:
    def read(text: str) -> str:
        if text == "\u00e9":
            return "e acute"
        return "" if text == "\u1e9f" else f"letter {ord(text):x}"

    alphabet = Alphabet("en", read)
    assert alphabet.has("\u00e9")
    assert not alphabet.has("\u1ec5")
    assert not alphabet.has("\u1e9f")
    assert not alphabet.has("\u4f60")

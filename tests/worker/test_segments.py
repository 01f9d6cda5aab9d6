"""Cleaning and cutting text."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.text import has_speech
from worker.segments import SPLITTER_WINDOW_CHARACTERS, clean, split

TEXTS = st.text(
    st.sampled_from(
        "abc XYZ 0123 .,;:!?-—…'\"()。，、！今天気 가 é\u0301\u00ad\u200b\u200d\ufeff\n\t😀👍🏽"
    )
    | st.characters(exclude_categories=["Cs"]),
    max_size=300,
)


def without_blanks(text: str) -> str:
    return "".join(text.split())


def speech(text: str) -> str:
    return "".join(one for one in text if unicodedata.category(one)[0] in "LN")


@pytest.mark.parametrize(
    ("dirty", "plain"),
    [
        ("The pre\u00adrequi\u00adsite infor\u200bma\u200dtion is\ufeff ready", None),
        ("The\u00a0prerequisite\tinformation\u2028is ready", None),
        ("\u202aThe prerequi\u00ad\nsite\x00 information\r\nis\u3000\u2009ready\u2069 ", None),
        ("one\r\n \t\r\ntwo\u2029three\rfour", "one\n\ntwo\n\nthree four"),
        ("cafe\u0301", "café"),
        ("twenty\u2011one", "twenty-one"),
        ("\u200b\ufeff\u00ad\u3164", ""),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_clean_leaves_only_what_can_be_heard(dirty: str, plain: str | None) -> None:
    assert clean(dirty) == (plain if plain is not None else "The prerequisite information is ready")


@given(TEXTS)
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_decimals_and_abbreviations_do_not_end_a_sentence() -> None:
    decimals = "The mast is 1,234.56 m tall (4,050.4 ft) and weighs 3.5 kg."
    assert split(decimals, best=1, hard=200) == [decimals]
    initials = "Dr. Ito met Mrs. Vane in the U.S. at 9 a.m. sharp, e.g. by the gate."
    version = "J. R. Ash left v2.0.1 at example.com."
    assert split(f"{initials} {version}", best=1, hard=200) == [initials, version]


def test_sentences_are_packed_up_to_the_best_length() -> None:
    text = "One two. Three four. Five six. Seven eight."
    assert split(text, best=22, hard=100) == ["One two. Three four.", "Five six. Seven eight."]
    assert split(text, best=100, hard=100) == [text]


def test_a_paragraph_ends_its_segment() -> None:
    assert split("A heading\n\nThen text.", best=100, hard=100) == ["A heading", "Then text."]


def test_the_language_picks_the_abbreviations() -> None:
    text = "Er kam am 3. Mai an. Dann ging er."
    assert split(text, 1, 100, language="de-DE") == ["Er kam am 3. Mai an.", "Dann ging er."]


def test_a_long_sentence_is_cut_evenly_at_its_clauses() -> None:
    text = "We rose before dawn, ate a little bread, and walked to the river; nobody spoke."
    assert split(text, best=50, hard=50) == [
        "We rose before dawn, ate a little bread,",
        "and walked to the river; nobody spoke.",
    ]


def test_a_clause_without_marks_is_cut_at_a_space() -> None:
    assert split("one two three four five six", 15, 15) == ["one two three", "four five six"]


@pytest.mark.parametrize("number", ["1,234,567.89", "12 000 000", "10:30:15", "3.141592653589"])
def test_a_number_is_never_cut(number: str) -> None:
    text = f"aaaa {number} bbbb {number} cccc {number} dddd"
    pieces = split(text, best=18, hard=18)
    assert sum(piece.count(number) for piece in pieces) == 3
    assert max(map(len, pieces)) <= 18


@pytest.mark.parametrize(
    "text", ["今天天气很好。我们去公园吧！" * 150, "今天天气很好我们去公园吧" * 150]
)
def test_text_without_spaces_is_cut_between_characters(text: str) -> None:
    pieces = split(text, best=100, hard=120)
    assert "".join(pieces) == text
    assert len(pieces) >= len(text) / 120
    assert max(map(len, pieces)) <= 120


def test_a_letter_keeps_its_marks() -> None:
    pieces = split("q\u0301" * 40, best=7, hard=7)
    assert {len(piece) for piece in pieces} == {6, 4} or {len(piece) for piece in pieces} == {6, 2}
    assert all(piece.startswith("q") for piece in pieces)


def test_punctuation_alone_joins_a_neighbour_or_goes() -> None:
    assert split("* * *\n\nHello.\n\n- - -", best=50, hard=50) == ["* * * Hello. - - -"]
    assert split("!" * 500, best=50, hard=100) == []
    assert split("", best=50, hard=100) == []


@given(TEXTS, st.integers(1, 80), st.integers(1, 80))
def test_segments_give_the_text_back(text: str, best: int, hard: int) -> None:
    plain = clean(text)
    pieces = split(plain, best, hard)
    assert all(len(piece) <= hard and has_speech(piece) for piece in pieces)
    assert all(piece == piece.strip() and "\n" not in piece for piece in pieces)
    assert speech("".join(pieces)) == speech(plain)


@given(st.text("abc 12,.;!?—今天。", max_size=300), st.integers(1, 80))
def test_only_blanks_are_lost_where_every_piece_speaks(text: str, hard: int) -> None:
    plain = clean(text)
    pieces = split(plain, hard, hard)
    if hard >= len(plain) and has_speech(plain):
        assert without_blanks("".join(pieces)) == without_blanks(plain)
    kept = iter(without_blanks(plain))
    assert all(one in kept for one in without_blanks("".join(pieces)))


def calls_of(text: str) -> Counter[str]:
    """How often each function is called to clean and cut a text, by name."""
    calls: Counter[str] = Counter()

    def count(_: FrameType, event: str, called: Any) -> None:
        if event == "call":
            calls["python"] += 1
        elif event == "c_call":
            calls[called.__name__] += 1

    sys.setprofile(count)
    try:
        split(clean(text), best=300, hard=400)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("text", ["word ", "a", "1.2,", "今天天气很好。", "na\u0301"])
def test_work_grows_with_the_length_of_a_text_and_not_faster(text: str) -> None:
    half = text * (20_000 // len(text))
    calls = calls_of(half + half)
    assert calls.total() < 2.1 * calls_of(half).total()
    plain = clean(half + half)
    assert calls["segment"] >= len(plain) / SPLITTER_WINDOW_CHARACTERS
    pieces = split(plain, best=300, hard=400)
    assert len(plain) / 400 <= len(pieces) <= len(plain) / 200
    assert max(map(len, pieces)) <= 400

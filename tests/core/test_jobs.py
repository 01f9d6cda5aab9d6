"""Jobs and items: what may follow what, and what a client may send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import inputs
from voicemill.errors import (
    InvalidCustomIdError,
    InvalidTextError,
    NoSpeakableTextError,
)
from voicemill.jobs import (
    ITEM_TRANSITIONS,
    JOB_TRANSITIONS,
    Counts,
    ItemInput,
    ItemStatus,
    JobStatus,
    check_custom_id,
    default_custom_id,
    is_terminal,
    new_job_id,
)
from voicemill.text import check_text

# --- the tables ---------------------------------------------------------------


def reachable(table: Mapping[str, frozenset[str]], start: str) -> set[str]:
    found = {start}
    while more := {after for status in found for after in table[status]} - found:
        found |= more
    return found


def test_every_status_has_a_row_and_can_be_reached() -> None:
    assert reachable(JOB_TRANSITIONS, JobStatus.VALIDATING) == set(JobStatus)
    assert reachable(ITEM_TRANSITIONS, ItemStatus.QUEUED) == set(ItemStatus)


def test_the_terminal_ones_are_those_that_end_something() -> None:
    assert {status for status in JobStatus if is_terminal(status)} == {
        JobStatus.COMPLETED,
        JobStatus.FAILED,
        JobStatus.CANCELLED,
        JobStatus.EXPIRED,
    }
    assert {status for status in ItemStatus if is_terminal(status)} == {
        ItemStatus.SUCCEEDED,
        ItemStatus.FAILED,
        ItemStatus.CANCELLED,
        ItemStatus.EXPIRED,
    }


def test_every_job_can_still_end() -> None:
    for status in JobStatus:
        assert any(is_terminal(after) for after in reachable(JOB_TRANSITIONS, status)), status


# --- records ------------------------------------------------------------------


def test_job_ids_are_all_different() -> None:
    assert len({new_job_id() for _ in range(100)}) == 100


def test_an_input_comes_back_the_same_from_its_record() -> None:
    item = ItemInput(3, "a", "hé", "tone", "low", "en", 1.5, 7, "softly", "mp3", {"k": "v"})
    assert ItemInput.from_record(item.to_record()) == item


def test_only_items_of_one_model_and_voice_are_spoken_together() -> None:
    low, high = inputs("a")[0], inputs("a", voice="high")[0]
    assert low.batch_key != high.batch_key
    assert low.batch_key == inputs("another")[0].batch_key


def test_items_of_other_enrolled_voices_are_not_spoken_together_and_marks_have_an_end() -> None:
    low = inputs("a")[0]
    one, other = (replace(low, voice="ann", voice_revision=digit * 32) for digit in "ab")
    assert len({low.batch_key, one.batch_key, other.batch_key}) == 3
    marks = {replace(one, voice_revision=f"{n:032x}").batch_key for n in range(2000)}
    assert len(marks) == 256


def test_items_with_other_options_are_not_spoken_together() -> None:
    plain = inputs("a")[0]
    one, same, other = (
        replace(plain, options=options)
        for options in ({"mood": "glad", "pace": 2}, {"pace": 2, "mood": "glad"}, {"mood": "sad"})
    )
    assert one.batch_key == same.batch_key
    assert len({plain.batch_key, one.batch_key, other.batch_key}) == 3
    marks = {replace(plain, options={"pace": n / 7}).batch_key for n in range(6000)}
    assert len(marks) == 256, "costs are kept for each, so there is an end to them"
    mixes = {replace(plain, voice=f"low:{n}+high").batch_key for n in range(1, 6000)}
    assert len(mixes) == 256
    assert {key.rpartition("/")[0] for key in mixes} == {"tone/low"}


def test_an_item_without_options_is_recorded_without_them() -> None:
    item = inputs("a")[0]
    assert "options" not in item.to_record()
    spoken = replace(item, options={"pace": 1.5, "hush": True})
    assert ItemInput.from_record(json.loads(json.dumps(spoken.to_record()))) == spoken


def test_counts_say_completed_for_items_that_succeeded() -> None:
    counts = Counts(total=9, queued=1, in_progress=1, succeeded=3, failed=2, cancelled=1, expired=1)
    assert counts.to_wire() == {
        "total": 9,
        "queued": 1,
        "in_progress": 1,
        "completed": 3,
        "failed": 2,
        "cancelled": 1,
        "expired": 1,
        "cached": 0,
    }


# --- what a client may send -----------------------------------------------------


@pytest.mark.parametrize("custom_id", ["a", "row-000001", "_x", "-", "A.b-c_9", "x" * 64])
def test_an_id_that_can_be_part_of_a_file_name_is_taken(custom_id: str) -> None:
    check_custom_id(custom_id)


@pytest.mark.parametrize(
    "custom_id",
    ["", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a b", "é", "a\n", "a\0", "x" * 65, "a:b"],
)
def test_an_id_that_cannot_is_refused(custom_id: str) -> None:
    with pytest.raises(InvalidCustomIdError, match="can't be used: give 1 to 64 of"):
        check_custom_id(custom_id)


@given(index=st.integers(0, 10**7))
def test_the_default_id_of_every_input_can_be_used(index: int) -> None:
    check_custom_id(default_custom_id(index))
    assert default_custom_id(0) == "row-000001"


@pytest.mark.parametrize("text", ["A", "7", "Ok.", "…and so?", "日本", "٣", "½", "Ⅻ", "e\u0301"])
def test_a_letter_or_a_number_of_any_script_can_be_spoken(text: str) -> None:
    check_text(text)


@pytest.mark.parametrize(
    "text",
    ["", " \t\r\n\u3000\u00a0", "...", "！？。，、……——", "\u200b\ufeff\u00ad", "🎉", "\u0301"],
)
def test_text_without_letter_and_number_is_nothing_to_speak(text: str) -> None:
    with pytest.raises(NoSpeakableTextError):
        check_text(text)


@pytest.mark.parametrize(("text", "position"), [("Hi \ud83d there", 3), ("\udc00", 0)])
def test_half_a_character_is_refused_with_its_place(text: str, position: int) -> None:
    with pytest.raises(InvalidTextError, match=f"at position {position}"):
        check_text(text)


def test_a_whole_pair_is_a_character_like_any_other() -> None:
    check_text("Hi \U0001f600 there")

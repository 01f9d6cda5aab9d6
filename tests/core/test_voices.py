"""What an engine can do, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support import TONE, inputs
from voicemill.errors import VoiceNotFoundError
from voicemill.jobs import ItemInput
from voicemill.options import Option
from voicemill.voices import Capabilities, Voice, mixed, speaks

PLAIN = Capabilities(
    engine="plain", model_revision="1", sample_rate=24000, voices=(Voice("low", ("en-US", "fr")),)
)
"""An engine that can do nothing but speak."""


def asked(**changes: Any) -> ItemInput:
    return replace(inputs("hello", model="plain")[0], **changes)


def test_a_plain_item_is_refused_by_nobody() -> None:
    assert list(PLAIN.refusals(asked())) == []


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("voice", "nobody", "voice_not_found"),
        ("language", "de", "unsupported_feature"),
        ("speed", 1.5, "unsupported_feature"),
        ("seed", 7, "unsupported_feature"),
        ("instructions", "Whisper.", "unsupported_feature"),
        ("response_format", "midi", "unsupported_feature"),
    ],
)
def test_what_an_engine_cannot_honour_names_the_field(field: str, value: object, code: str) -> None:
    refused = [(name, error.code) for name, error in PLAIN.refusals(asked(**{field: value}))]
    assert refused == [(field, code)]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    item = asked(voice="nobody", speed=9.0, seed=1)
    assert [name for name, _ in PLAIN.refusals(item)] == ["voice", "speed", "seed"]


def test_a_refusal_tells_what_would_be_taken() -> None:
    with pytest.raises(VoiceNotFoundError, match="has no voice 'x'; it has: low, high"):
        TONE.voice("x")
    ((_, error),) = TONE.refusals(replace(inputs("a")[0], speed=5.0))
    assert error.message == "tone takes a speed of 0.25 to 4."
    ((_, error),) = PLAIN.refusals(asked(speed=2.0))
    assert error.message == "plain takes a speed of 1 only."


@pytest.mark.parametrize(
    ("language", "covered"),
    [("en-us", True), ("EN", True), ("fr", True), ("en-GB", False), ("fr-CA", False), ("", False)],
)
def test_a_voice_covers_its_tags_and_their_languages(language: str, covered: bool) -> None:
    assert speaks(PLAIN.voices[0], language) is covered


def test_capabilities_come_back_the_same_from_the_store_s_json() -> None:
    able = replace(PLAIN, options=OPTIONS, best_batch=2, model_licence="MIT")
    for one in (TONE, able):
        assert Capabilities.from_record(json.loads(json.dumps(one.to_record()))) == one


MIXING = replace(PLAIN, voices=(*PLAIN.voices, Voice("high", ("de",))), voice_mixes=True)


def test_a_mix_speaks_as_its_first_part() -> None:
    assert MIXING.voice("high:2+low") == Voice("high:2+low", ("de",))
    assert list(MIXING.refusals(asked(voice="low+high", language="fr"))) == []
    assert [field for field, _ in MIXING.refusals(asked(voice="high+low", language="fr"))] == [
        "language"
    ]


def test_the_shares_of_a_mix_are_one_in_all() -> None:
    assert mixed("low") == {"low": 1.0}
    assert mixed("low:0.6+high:0.2") == {"low": pytest.approx(0.75), "high": pytest.approx(0.25)}
    assert mixed("low + high") == {"low": 0.5, "high": 0.5}


@pytest.mark.parametrize(
    "name",
    ["low+", "+", "low:0+high", "low:-1", "low:x", "low+low", ":1", "low:nan+high", "low:inf"],
)
def test_a_mix_that_can_not_be_read_is_refused(name: str) -> None:
    ((field, error),) = MIXING.refusals(asked(voice=name))
    assert (field, error.code) == ("voice", "voice_not_found")
    assert "can't be read" in error.message


def test_a_mix_of_voices_that_are_not_there_names_the_one() -> None:
    with pytest.raises(VoiceNotFoundError, match="has no voice 'nobody'; it has: low, high"):
        MIXING.voice("low+nobody")
    with pytest.raises(VoiceNotFoundError, match=r"has no voice 'low\+high'"):
        PLAIN.voice("low+high")


def test_a_record_of_another_release_is_read_as_far_as_it_goes() -> None:
    older = {
        "engine": "plain",
        "model_revision": "1",
        "sample_rate": 24000,
        "voices": [{"name": "low", "languages": ["en-US", "fr"], "description": ""}],
    }
    assert Capabilities.from_record(older) == PLAIN
    newer = {**replace(PLAIN, options=OPTIONS).to_record(), "sings": True}
    newer["voices"] = [{**voice, "age": 40} for voice in newer["voices"]]
    newer["options"] = [{**option, "unit": "Hz"} for option in newer["options"]]
    assert Capabilities.from_record(newer) == replace(PLAIN, options=OPTIONS)


def test_the_languages_of_an_engine_are_those_of_its_voices() -> None:
    able = replace(PLAIN, voices=(*PLAIN.voices, Voice("high", ("fr", "de"))))
    assert able.languages == ("en-US", "fr", "de")


def test_a_call_has_as_many_segments_as_it_gains_from() -> None:
    assert replace(PLAIN, max_batch=8).batch_size == 8
    assert replace(PLAIN, max_batch=8, best_batch=3).batch_size == 3


OPTIONS = (
    Option("mood", "choice", choices=("glad", "sad")),
    Option("pace", "number", minimum=0.5, maximum=2),
    Option("hush", "switch"),
    Option("tale", "text", maximum=5),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mood": "cross"}, "mood can't be 'cross': give one of glad, sad."),
        ({"mood": 1}, "mood can't be 1: give one of glad, sad."),
        ({"pace": 2.5}, "pace can't be 2.5: give a number from 0.5 to 2."),
        ({"pace": True}, "pace can't be True: give a number from 0.5 to 2."),
        ({"pace": "1"}, "pace can't be '1': give a number from 0.5 to 2."),
        ({"hush": 1}, "hush can't be 1: give true or false."),
        ({"tale": "x" * 6}, "tale can't be 'xxxxxx': give a text of up to 5 characters."),
        ({"tale": " "}, "tale can't be ' ': give a text of up to 5 characters."),
    ],
)
def test_an_option_out_of_its_range_is_refused_with_what_it_takes(
    options: dict[str, Any], message: str
) -> None:
    able = replace(PLAIN, options=OPTIONS)
    ((field, error),) = able.refusals(asked(options=options))
    assert (field, error.code) == (f"options/{next(iter(options))}", "invalid_value")
    assert error.message == message


def test_an_option_that_the_engine_has_not_is_refused() -> None:
    ((field, error),) = PLAIN.refusals(asked(options={"mood": "glad"}))
    assert (field, error.code) == ("options/mood", "unsupported_feature")
    assert error.message == "plain has no option 'mood'; it has: none."
    able = replace(PLAIN, options=OPTIONS)
    ((_, error),) = able.refusals(asked(options={"moods": "glad"}))
    assert error.message == "plain has no option 'moods'; it has: hush, mood, pace, tale."


def test_options_within_their_ranges_are_taken() -> None:
    able = replace(PLAIN, options=(*OPTIONS, Option("least", "number", minimum=0)))
    options = {"mood": "sad", "pace": 2, "hush": False, "tale": "Once.", "least": 1e9}
    assert list(able.refusals(asked(options=options))) == []


CLONING = replace(PLAIN, cloning=True, cloning_languages=("zh", "en"))


def test_an_engine_without_voices_tells_how_to_enrol_one() -> None:
    bare = replace(CLONING, voices=())
    ((field, error),) = bare.refusals(asked(voice=""))
    assert (field, error.code) == ("voice", "voice_not_found")
    assert (
        "it has none of its own. Enrol one: .venv/bin/python scripts/enrol_voice.py"
        in error.message
    )


def test_an_enrolled_voice_speaks_what_the_engine_clones_in() -> None:
    enrolled = asked(voice="ann", voice_revision="0" * 32)
    assert list(CLONING.refusals(replace(enrolled, language="zh"))) == []
    ((field, error),) = CLONING.refusals(replace(enrolled, language="fr"))
    assert (field, error.message) == ("language", "The voice ann speaks zh, en, not fr.")
    ((field, error),) = PLAIN.refusals(enrolled)
    assert (field, error.code) == ("voice", "unsupported_feature")


@pytest.mark.parametrize(
    ("language", "tag"), [("zh", "zh"), ("zh-CN", "zh"), ("en-GB", "en"), ("de-AT", "de-AT")]
)
def test_a_region_is_left_out_where_the_engine_knows_none(language: str, tag: str) -> None:
    assert CLONING.tag_for(language) == tag


def test_what_an_engine_clones_in_is_kept_and_counts_as_spoken() -> None:
    record = json.loads(json.dumps(CLONING.to_record()))
    assert Capabilities.from_record(record) == CLONING
    assert CLONING.languages == ("en-US", "fr", "zh", "en")

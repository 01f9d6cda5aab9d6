"""What an engine can do, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support import TONE, inputs
from voicemill.errors import VoiceNotFoundError
from voicemill.jobs import ItemInput
from voicemill.voices import Capabilities, Voice, speaks

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
    assert Capabilities.from_record(json.loads(json.dumps(TONE.to_record()))) == TONE

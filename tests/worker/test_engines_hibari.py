"""The hibari engine: real speech, from weights on disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hibari")

from hibari.voices import VOICES, voice_path

from voicemill.errors import SettingsError, SynthesisError, UnsupportedCharactersError
from voicemill.voices import Capabilities
from worker import audio
from worker.engines.base import Engine, Samples, Segment, SynthesisOptions
from worker.engines.hibari import HibariEngine, shortened, spaced

ROOT = Path(__file__).parents[2]
ONE_THREAD_AND_NO_NETWORK = """
import os, sys, time

def refuse(event, args):
    if event.startswith("socket."):
        raise RuntimeError(event)

sys.addaudithook(refuse)
from worker.engines.base import Segment, SynthesisOptions
from worker.engines.hibari import HibariEngine
engine = HibariEngine()
print(*(voice.name for voice in engine.load({}).voices))
wall, cpu = time.perf_counter(), time.process_time()
engine.synthesize([Segment("One thread is enough for a whole sentence. " * 5)], "heart",
                  SynthesisOptions())
print((time.process_time() - cpu) / (time.perf_counter() - wall))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.fixture(scope="module")
def loaded() -> tuple[Engine, Capabilities]:
    """An engine with its capabilities."""
    engine = HibariEngine()
    return engine, engine.load({})


def say(
    loaded: tuple[Engine, Capabilities], text: str, seed: int | None = None, **options: Any
) -> Samples:
    """The samples of one text."""
    segment = Segment(text, seed)
    (spoken,) = loaded[0].synthesize([segment], "heart", SynthesisOptions(**options))
    if isinstance(spoken, SynthesisError):
        raise spoken
    return spoken


def test_it_declares_the_voice_of_its_wheel(loaded: tuple[Engine, Capabilities]) -> None:
    _, able = loaded
    assert (able.voices[0].name, able.voices[0].languages) == ("heart", ("en-US",))
    assert (able.sample_rate, able.seed, able.instructions, able.max_batch) == (
        24000,
        True,
        False,
        1,
    )
    assert (able.min_speed, able.max_speed) == (0.5, 2.0)


def test_another_voice_is_declared_once_its_whole_file_is_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    whole, part = (tmp_path / VOICES[name]["file"] for name in ("emma", "kore"))
    shutil.copy(voice_path("heart"), whole)  # every voice is a model of the same shape and size
    part.write_bytes(b"half a download")
    engine = HibariEngine()
    voices = {voice.name: voice.languages for voice in engine.load({}).voices}
    assert voices == {"heart": ("en-US",), "emma": ("en-GB",)}
    (spoken,) = engine.synthesize([Segment("Hello.")], "emma", SynthesisOptions())
    assert isinstance(spoken, np.ndarray)


def test_it_speaks_on_one_core_and_opens_no_socket(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONE_THREAD_AND_NO_NETWORK],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HIBARI_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    voices, cores, threads = done.stdout.splitlines()
    assert voices == "heart"
    assert float(cores) < 1.1
    assert int(threads) <= 2  # onnxruntime keeps one that sleeps


@pytest.mark.parametrize("text", ["A", "7", "Hi", "Ok.", "?a", "x "])
def test_the_shortest_texts_are_heard(loaded: tuple[Engine, Capabilities], text: str) -> None:
    samples = say(loaded, text)
    assert 0.15 <= len(samples) / 24000 <= 2.0
    assert np.abs(samples).max() > 0.03


def test_the_same_seed_gives_the_same_samples(loaded: tuple[Engine, Capabilities]) -> None:
    assert np.array_equal(say(loaded, "Twice."), say(loaded, "Twice.", seed=0))
    assert np.array_equal(say(loaded, "Twice.", seed=5), say(loaded, "Twice.", seed=5))
    assert not np.array_equal(say(loaded, "Twice."), say(loaded, "Twice.", seed=5))


def test_speed_shortens(loaded: tuple[Engine, Capabilities]) -> None:
    text = "A sentence that is spoken at two speeds."
    assert len(say(loaded, text, speed=0.5)) > 1.7 * len(say(loaded, text))
    assert len(say(loaded, text, speed=2.0)) < 0.65 * len(say(loaded, text))


@pytest.mark.parametrize("text", ["你好", "Hello 你好 world", "مرحبا", "\U0001f600.", "שלום there"])
def test_letters_it_can_not_say_are_an_error(
    loaded: tuple[Engine, Capabilities], text: str
) -> None:
    with pytest.raises(UnsupportedCharactersError):
        say(loaded, text)


@pytest.mark.parametrize(
    ("text", "plain"),
    [("Nguy\u1ec5n", "Nguyen"), ("\u2177", "viii"), ("\ufb01ne", "fine"), ("5 \u338f", "5 kg")],
)
def test_letters_it_does_not_know_are_said_in_their_plain_form(
    loaded: tuple[Engine, Capabilities], text: str, plain: str
) -> None:
    assert len(say(loaded, text)) == pytest.approx(len(say(loaded, plain)), rel=0.1)


def test_markup_for_pronunciation_is_spoken_as_text(loaded: tuple[Engine, Capabilities]) -> None:
    marked = say(loaded, "[tomato](/k/) soup")
    assert len(marked) > 1.2 * len(say(loaded, "k soup"))
    assert len(marked) > len(say(loaded, "tomato soup"))


@pytest.mark.parametrize(
    "text",
    [
        "1" * 40,
        "1234567 " * 3,
        "9" * 9 + ",000" * 9,
        "word " * 80,
        "Chapter MMMMMMM",
        "12/0 25:99",
    ],
)
def test_odd_and_endless_texts_are_spoken(loaded: tuple[Engine, Capabilities], text: str) -> None:
    samples = say(loaded, text)
    audio.check(samples)
    assert len(samples) / 24000 > 1.0


def test_no_pass_is_longer_than_the_model_takes() -> None:
    parts = shortened("abcdefg " * 200)
    assert max(map(len, parts)) <= 400
    assert " ".join(parts) == ("abcdefg " * 200).strip()
    assert [len(part) for part in shortened("a" * 900)] == [400, 400, 100]


def test_words_and_numbers_too_long_to_read_are_spaced_out() -> None:
    assert spaced("call 1234567890123456 now") == "call 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 now"
    assert spaced("1,234,567.89 stays") == "1,234,567.89 stays"
    assert spaced("x" * 30) == "x" * 15 + " " + "x" * 15


def test_it_has_no_options() -> None:
    with pytest.raises(SettingsError, match="hibari has no option 'threads'"):
        HibariEngine().load({"threads": 4})

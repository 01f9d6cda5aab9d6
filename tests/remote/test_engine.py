"""An engine in a process of another Python: real processes, killed and garbled."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.e2e.stack import alive
from tests.pythons import venv_of_ours
from tests.support import wait_until
from voicemill.errors import (
    EngineLostError,
    OutOfMemoryError,
    PromptAudioInvalidError,
    SettingsError,
    SynthesisError,
    VoicemillError,
    VoiceNotFoundError,
)
from worker import memory
from worker.engines.base import ClonesVoices, Prompt, Segment, SynthesisOptions
from worker.engines.tone import ToneEngine
from worker.remote.engine import RemoteEngine

ROOT = Path(__file__).parents[2]
SOON_SECONDS = 1.0
SECRET = "My name is Ozymandias."

HOLDS_AN_ENGINE = """
import sys, time
from pathlib import Path
from worker.engines.base import Segment, SynthesisOptions
from worker.remote.engine import RemoteEngine
engine = RemoteEngine("odd", Path(sys.argv[1]))
engine.load({})
engine.synthesize([Segment("family " + sys.argv[2])], "low", SynthesisOptions())
Path(sys.argv[2] + ".pids").write_text(" ".join(map(str, engine.pids())))
engine.synthesize([Segment(sys.argv[3])], "low", SynthesisOptions())
time.sleep(600)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has the odd engine."""
    folder = tmp_path_factory.mktemp("python")
    metadata = folder / "odd" / "odd-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    points = "[voicemill.engines]\nodd = odd_engine:OddEngine\nplain = odd_engine:PlainEngine\n"
    (metadata / "entry_points.txt").write_text(points)
    return venv_of_ours(folder / "venv", folder / "odd", Path(__file__).parent)


@pytest.fixture
def engine(python: Path) -> Iterator[RemoteEngine]:
    """The odd engine, loaded."""
    engine = RemoteEngine("odd", python)
    engine.load({})
    yield engine
    with suppress(EngineLostError):
        engine.unload()


def say(engine: RemoteEngine, *texts: str, seed: int | None = None) -> list[Any]:
    batch = [Segment(text, seed) for text in texts]
    return list(engine.synthesize(batch, "low", SynthesisOptions(speed=1.5)))


def family_of(told: Path) -> list[psutil.Process]:
    """Each process that the odd engine started, and its own."""
    pids = json.loads(told.read_text())
    return [psutil.Process(pid) for pid in [pids["own"], *pids["others"]]]


def assert_all_end(family: list[psutil.Process], seconds: float = SOON_SECONDS) -> None:
    wait_until(lambda: not any(map(alive, family)), seconds, f"the end of {family}")


# --- what it says is what the engine said ----------------------------------------------


def test_samples_are_those_of_the_engine_itself(engine: RemoteEngine) -> None:
    bare = ToneEngine()
    bare.load({})
    texts = ["Hello.", "Twice as long as the first one."]
    batch = [Segment(text, 3) for text in texts]
    expected = bare.synthesize(batch, "low", SynthesisOptions(speed=1.5))
    for one, other in zip(say(engine, *texts, seed=3), expected, strict=True):
        assert one.dtype == np.float32
        assert np.array_equal(one, other)
        one *= 0.5


def test_a_segment_s_error_stands_between_the_sounds_of_others(engine: RemoteEngine) -> None:
    first, failed, empty, last = say(engine, "One.", "{tone:fail}", "{tone:empty}", "Last.")
    assert type(failed) is SynthesisError
    assert failed.message == "The tone engine was told to fail."
    assert (len(first) > 0, len(empty), len(last) > 0) == (True, 0, True)
    assert say(engine) == []


def test_samples_of_another_type_are_sent_as_they_are_and_what_is_no_sound_is_refused(
    engine: RemoteEngine,
) -> None:
    (doubles,) = say(engine, "double")
    assert doubles.tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]
    (refused,) = say(engine, "square")
    assert refused.code == "invalid_audio"
    assert "shape (2, 3)" in refused.message
    assert [len(one) for one in say(engine, "lie")] == [3, 2], "the caller counts them"


def test_an_error_keeps_its_code_and_the_engine_goes_on(engine: RemoteEngine) -> None:
    with pytest.raises(OutOfMemoryError, match="The lamp is out") as caught:
        say(engine, "lamp")
    error = caught.value
    assert type(error) is OutOfMemoryError, "the nearest that is known here"
    assert (error.code, error.title, error.retryable) == ("lamp_out", "The lamp is out", False)
    assert OutOfMemoryError.code == "out_of_memory"
    assert len(say(engine, "Hello.")) == 1
    assert not engine.is_lost()


def test_what_it_raises_is_told_by_type_and_place_and_no_text_of_a_user(
    engine: RemoteEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(SynthesisError) as caught:
        say(engine, f"raise {SECRET}")
    assert caught.value.message == "LookupError was raised while the item was spoken."
    assert "in do_raise" in caplog.text
    assert "Ozymandias" not in caplog.text


def test_a_call_that_it_cancels_within_itself_fails_by_name_and_it_lives(
    engine: RemoteEngine,
) -> None:
    with pytest.raises(SynthesisError) as caught:
        say(engine, "cancel")
    assert caught.value.message == "CancelledError was raised while the item was spoken."
    assert len(say(engine, "Hello.")) == 1


def test_what_it_prints_goes_to_the_log_and_a_user_s_text_only_for_debugging(
    python: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = RemoteEngine("odd", python)
    engine.load({})
    assert len(say(engine, f"print {SECRET}")) == 1
    engine.unload()
    lines = [(one.levelname, one.getMessage().partition(": ")[2]) for one in caplog.records]
    assert ("INFO", "printed as it loads") in lines
    assert lines.count(("DEBUG", SECRET)) == 4
    assert not [line for line in lines if SECRET in line[1] and line[0] != "DEBUG"]
    assert capfd.readouterr() == ("", "")


# --- voices that it takes in ---------------------------------------------------------------


def test_an_enrolled_voice_sounds_as_by_the_engine_itself_until_it_is_forgotten(
    engine: RemoteEngine, tmp_path: Path
) -> None:
    bare = ToneEngine()
    bare.load({})
    prompt = Prompt(tmp_path / "ann.wav", "Good morning.", "en")
    prompt.audio.write_bytes(b"a clip")
    batch, told = [Segment("Hello.")], SynthesisOptions()
    spoken = []
    for one in (bare, engine):
        assert isinstance(one, ClonesVoices)
        one.enrol("ann", prompt)
        spoken += one.synthesize(batch, "ann", told)
    assert np.array_equal(*spoken)
    engine.forget("ann")
    with pytest.raises(VoiceNotFoundError, match="no voice 'ann'"):
        engine.synthesize(batch, "ann", told)


def test_a_prompt_that_it_refuses_is_refused_here_too(engine: RemoteEngine, tmp_path: Path) -> None:
    with pytest.raises(PromptAudioInvalidError, match="No such file"):
        engine.enrol("ann", Prompt(tmp_path / "ann.wav", "Good morning.", "en"))
    assert len(say(engine, "Hello.")) == 1


def test_a_transcript_that_it_prints_goes_to_the_log_only_for_debugging(
    python: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "ann.wav").write_bytes(b"a clip")
    engine = RemoteEngine("odd", python)
    engine.load({})
    engine.enrol("ann", Prompt(tmp_path / "ann.wav", SECRET, "en"))
    engine.unload()
    assert [one.levelname for one in caplog.records if SECRET in one.getMessage()] == ["DEBUG"]


def test_only_an_engine_that_clones_looks_as_if_it_did(python: Path) -> None:
    for name, clones in (("odd", True), ("plain", False)):
        engine = RemoteEngine(name, python)
        assert not isinstance(engine, ClonesVoices), "nothing is known of it yet"
        able = engine.load({})
        assert (isinstance(engine, ClonesVoices), able.cloning) == (clones, clones)
        engine.unload()


# --- what it finds there -------------------------------------------------------------------


def test_nothing_of_this_python_is_there(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/leaked")
    monkeypatch.setenv("PYTHONHOME", "/leaked")
    monkeypatch.setenv("VOICEMILL_API_KEY", "leaked")
    monkeypatch.setenv("VIRTUAL_ENV", "/leaked")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a0")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    engine = RemoteEngine("odd", python)
    engine.load({})
    say(engine, f"where {tmp_path / 'told'}")
    engine.unload()
    told = json.loads((tmp_path / "told").read_text())
    assert told["python"] == str(python)
    assert told["path"][0] == str(ROOT)
    assert "leaked" not in json.dumps([told["path"], told["environment"]])
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-a0"
    assert told["threads"] == 2
    assert told["environment"]["PATH"].split(":")[0] == str(python.parent)
    assert str(Path(sys.prefix, "bin")) not in told["environment"]["PATH"].split(":")
    assert told["standard input"] == "/dev/null"
    assert not {"celery", "redis", "psutil", "pynvml"} & {
        name.partition(".")[0] for name in told["modules"]
    }


def test_memory_of_all_its_processes_counts(engine: RemoteEngine, tmp_path: Path) -> None:
    told = tmp_path / "family"
    before = memory.resident_bytes(engine.pids())
    assert before - memory.resident_bytes() > 20 * 2**20, "Python with numpy"
    say(engine, f"family {told}")
    assert {one.pid for one in family_of(told)} < engine.pids()
    grown = memory.resident_bytes(engine.pids()) - before
    assert grown > 3 * 4 * 2**20


# --- how it ends -----------------------------------------------------------------------------


def test_unloading_ends_all_of_it_and_it_can_be_loaded_again(
    engine: RemoteEngine, tmp_path: Path
) -> None:
    say(engine, f"family {tmp_path / 'family'}")
    family = family_of(tmp_path / "family")
    assert all(map(alive, family))
    engine.unload()
    assert not any(map(alive, family))
    assert engine.pids() == frozenset()
    assert not engine.is_lost()
    engine.load({})
    assert len(say(engine, "Hello.")) == 1


@pytest.mark.parametrize("doing", ["Nothing.", "{tone:hang}", "{tone:seconds=600}"])
def test_nothing_is_left_when_the_child_is_killed(doing: str, python: Path, tmp_path: Path) -> None:
    told = tmp_path / "family"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS_AN_ENGINE, python, told, doing],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        pids = Path(f"{told}.pids")
        wait_until(lambda: pids.exists() and pids.read_text() != "", 20, "a family")
        family = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
        assert {one.pid for one in family_of(told)} < {one.pid for one in family}
        assert all(map(alive, family))
    finally:
        child.kill()
    assert_all_end(family)
    child.wait()


def test_nothing_is_left_when_its_keeper_is_killed(engine: RemoteEngine, tmp_path: Path) -> None:
    told = json.loads(written_by(engine, tmp_path / "family"))
    family = [psutil.Process(pid) for pid in (told["own"], told["others"][0])]
    os.kill(psutil.Process(told["own"]).ppid(), signal.SIGKILL)
    wait_until(engine.is_lost, SOON_SECONDS, "the loss")
    with pytest.raises(EngineLostError, match="lost its keeper to signal 9"):
        say(engine, "Hello.")
    assert_all_end(family)
    for pid in told["others"]:
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def written_by(engine: RemoteEngine, path: Path) -> str:
    say(engine, f"family {path}")
    return path.read_text()


def test_a_killed_process_is_named_and_takes_what_it_started_with_it(
    engine: RemoteEngine, tmp_path: Path
) -> None:
    say(engine, f"family {tmp_path / 'family'}")
    family = family_of(tmp_path / "family")
    with pytest.raises(EngineLostError, match=r"process ended by signal 9\.$") as caught:
        say(engine, "{tone:crash}")
    assert caught.value.code == "engine_lost"
    assert not any(map(alive, family))
    assert engine.is_lost()
    with pytest.raises(EngineLostError, match="ended by signal 9"):
        say(engine, "Hello.")


def test_one_that_dies_while_nothing_is_asked_of_it_is_noticed(
    engine: RemoteEngine, tmp_path: Path
) -> None:
    assert not engine.is_lost()
    say(engine, f"family {tmp_path / 'family'}")
    own, *others = family_of(tmp_path / "family")
    own.kill()
    wait_until(engine.is_lost, SOON_SECONDS, "the loss")
    assert_all_end(others)


@pytest.mark.parametrize(
    ("text", "said"),
    [("garble", "does not begin as a frame does"), ("boast", f"its body has {2**40} bytes")],
)
def test_what_is_no_frame_ends_the_process_by_name(
    text: str, said: str, engine: RemoteEngine
) -> None:
    began = time.monotonic()
    with pytest.raises(EngineLostError, match=said):
        say(engine, text)
    assert engine.is_lost()
    assert time.monotonic() - began < 2 * SOON_SECONDS


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"no_such": 1}, SettingsError, "tone has no option 'no_such'"),
        ({"raise": "memory"}, OutOfMemoryError, "No memory was left to load the model."),
        ({"raise": 1}, SettingsError, ""),
    ],
)
def test_an_engine_that_does_not_load_leaves_nothing_and_says_why(
    options: dict[str, Any], kind: type[VoicemillError], said: str, python: Path
) -> None:
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    engine = RemoteEngine("odd", python)
    with pytest.raises(VoicemillError) as caught:
        engine.load(options)
    if said:
        assert type(caught.value) is kind
        assert said in caught.value.message
    else:
        assert caught.value.message == (
            "ImportError was raised while it was loaded: libodd.so is not there"
        )
    assert {one.pid for one in psutil.Process().children(recursive=True)} == before


def test_an_engine_that_is_not_in_that_python_is_named_with_those_there_are(python: Path) -> None:
    with pytest.raises(SettingsError, match=r"There is no engine 'kazoo'.* odd,"):
        RemoteEngine("kazoo", python).load({})


def test_memory_of_a_device_is_what_the_engine_said_last(engine: RemoteEngine) -> None:
    assert engine.device_bytes() is None
    assert engine.cached_memory() is None
    assert engine.memory_failures() == 0

"""The transformers engine, with the real architecture in miniature."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from tests.worker.tiny_vits import SAMPLE_RATE_HZ, make_tiny_vits
from voicemill.errors import (
    EnginePoisonedError,
    OutOfMemoryError,
    SettingsError,
    UnsupportedCharactersError,
)
from voicemill.voices import Capabilities
from worker import audio
from worker.engines.base import (
    CachesDeviceMemory,
    ReportsDeviceMemory,
    Segment,
    SynthesisOptions,
)
from worker.engines.torch_memory import named_faults
from worker.engines.transformers import TransformersEngine
from worker.environment import THREADS

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
TEXTS = ["hello there", "this one goes on for a good deal longer than the first", "short"]
NO_NETWORK = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError(event)

sys.addaudithook(refuse)
from worker.engines.transformers import TransformersEngine
TransformersEngine().load({"model_path": sys.argv[1], "device": "cpu"})
"""


FROM_THE_CACHE = """
import sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise RuntimeError(event)

sys.addaudithook(refuse)
from voicemill.errors import SettingsError
from worker.engines.transformers import TransformersEngine
able = TransformersEngine().load({"model_path": "ann/tiny", "device": "cpu"})
print(able.model_licence, able.voices[0].licence)
try:
    TransformersEngine().load({"model_path": "ann/absent", "device": "cpu"})
except SettingsError as error:
    print(error.message.replace("\\n", " "))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model on disk."""
    path = tmp_path_factory.mktemp("vits")
    make_tiny_vits(path)
    return path


def load(folder: Path, **options: Any) -> tuple[TransformersEngine, Capabilities]:
    """A loaded engine on the CPU."""
    engine = TransformersEngine()
    return engine, engine.load({"model_path": str(folder), "device": "cpu", **options})


def speak(
    engine: TransformersEngine,
    *texts: str,
    voice: str = "default",
    seed: int | None = None,
    **options: Any,
) -> Any:
    """What came of each text."""
    segments = [Segment(text, seed) for text in texts]
    return engine.synthesize(segments, voice, SynthesisOptions(**options))


def test_it_declares_what_the_model_is(folder: Path) -> None:
    _, able = load(folder)
    assert (able.sample_rate, able.max_batch, able.seed) == (SAMPLE_RATE_HZ, 8, True)
    assert [(voice.name, voice.languages) for voice in able.voices] == [("default", ("en",))]
    assert load(folder, language="sw")[1].voices[0].languages == ("sw",)


def test_a_padded_batch_gives_each_text_its_own_length(folder: Path) -> None:
    engine, _ = load(folder)
    together = speak(engine, *TEXTS)
    alone = [speak(engine, text)[0] for text in TEXTS]
    assert [len(samples) for samples in together] == [len(samples) for samples in alone]
    for samples in together:
        audio.check(samples)
        assert samples.dtype == np.float32
        assert np.abs(samples).max() <= 1.0


def test_a_seed_gives_the_same_samples_in_any_company(folder: Path) -> None:
    engine, _ = load(folder)
    together = speak(engine, *TEXTS, seed=11)
    alone = [speak(engine, text, seed=11)[0] for text in TEXTS]
    assert all(np.array_equal(one, other) for one, other in zip(together, alone, strict=True))
    assert not np.array_equal(alone[0], speak(engine, TEXTS[0], seed=12)[0])


def test_speed_shortens_and_does_not_stick(folder: Path) -> None:
    engine, _ = load(folder)
    normal, fast, again = (len(speak(engine, TEXTS[1], speed=s)[0]) for s in (1.0, 2.0, 1.0))
    assert fast < 0.9 * normal
    assert again == normal


def test_a_text_it_can_not_say_fails_alone(folder: Path) -> None:
    engine, _ = load(folder)
    first, digit, mark, last = speak(engine, "Good caf\u00e9", "Room 5", "...", "good cafe")
    assert isinstance(digit, UnsupportedCharactersError)
    assert isinstance(mark, UnsupportedCharactersError)
    assert len(first) == len(last)


def test_every_speaker_is_a_voice(tmp_path: Path) -> None:
    make_tiny_vits(tmp_path, speakers=2)
    engine, able = load(tmp_path)
    assert [voice.name for voice in able.voices] == ["speaker-0", "speaker-1"]
    first, second = (speak(engine, TEXTS[0], voice=voice.name, seed=1)[0] for voice in able.voices)
    assert not np.array_equal(first[:1000], second[:1000])


def test_loading_opens_no_connection(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_as_many_threads_compute_on_the_cpu_as_the_child_or_an_option_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for share, options, threads in ((None, {}, 1), ("2", {}, 2), ("2", {"threads": 1}, 1)):
        monkeypatch.delenv(THREADS, raising=False)
        if share is not None:
            monkeypatch.setenv(THREADS, share)
        load(folder, **options)
        assert torch.get_num_threads() == threads


def test_segments_of_one_call_are_put_into_batches_of_like_length(folder: Path) -> None:
    engine, able = load(folder, max_batch=2, window=6)
    assert able.max_batch == 6
    shapes: list[tuple[int, ...]] = []
    engine._model.register_forward_pre_hook(
        lambda _model, _given, named: shapes.append(tuple(named["input_ids"].shape)),
        with_kwargs=True,
    )
    texts = ["a" * length for length in (9, 90, 10, 91, 8, 92)]
    spoken = speak(engine, *texts)
    # A blank stands before and behind each letter.
    assert shapes == [(2, 19), (1, 21), (2, 183), (1, 185)]
    alone = [len(speak(engine, text)[0]) for text in texts]
    assert [len(samples) for samples in spoken] == alone


def test_where_memory_runs_out_a_batch_is_halved_and_the_next_one_starts_small(
    folder: Path,
) -> None:
    engine, _ = load(folder)
    sizes: list[int] = []

    def refuse_many(_model: Any, _given: Any, named: dict[str, Any]) -> None:
        sizes.append(named["input_ids"].shape[0])
        if sizes[-1] > 2:
            torch.empty(10**15)

    engine._model.register_forward_pre_hook(refuse_many, with_kwargs=True)
    texts = ["hello"] * 7
    assert [len(samples) for samples in speak(engine, *texts)] == [
        len(speak(engine, "hello")[0])
    ] * 7
    assert sizes[:-1] == [7, 4, 2, 2, 3, 2, 1]
    assert engine.memory_failures() == 1
    sizes.clear()
    speak(engine, *texts)
    assert sizes == [2, 2, 2, 1]
    assert engine.memory_failures() == 1


def test_a_model_of_the_hub_is_taken_from_the_cache_and_from_nowhere_else(
    folder: Path, tmp_path: Path
) -> None:
    snapshot = tmp_path / "hub" / "models--ann--tiny" / "snapshots" / ("a" * 40)
    shutil.copytree(folder, snapshot)
    (snapshot / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n# Tiny\n")
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("a" * 40)
    done = subprocess.run(
        [sys.executable, "-c", FROM_THE_CACHE],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
        env={"HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    named, refused = done.stdout.splitlines()
    assert named == "cc-by-nc-4.0 cc-by-nc-4.0"
    assert refused.startswith("VOICEMILL_ENGINE_OPTIONS: model_path='ann/absent' can't be used")


# torch warns of what it uses itself.
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_compiled_vocoder_sounds_the_same(folder: Path) -> None:
    still = {"noise_scale": 0, "noise_scale_duration": 0}
    plain, compiled = (
        speak(load(folder, compile=told)[0], *TEXTS, named=still) for told in (False, True)
    )
    for one, other in zip(plain, compiled, strict=True):
        assert np.abs(one - other).max() < 1e-4


def test_less_precision_is_another_sound_of_the_same_length(folder: Path) -> None:
    still = {"noise_scale": 0, "noise_scale_duration": 0}
    plain = speak(load(folder)[0], TEXTS[1], named=still)[0]
    rough = speak(load(folder, autocast="bfloat16")[0], TEXTS[1], named=still)[0]
    audio.check(rough)
    assert len(rough) == pytest.approx(len(plain), rel=0.1)
    assert not np.array_equal(rough, plain)


def test_named_options_change_the_sound_and_do_not_stick(folder: Path) -> None:
    engine, _ = load(folder)
    plain, still, again = (
        speak(engine, TEXTS[0], seed=3, named=named)[0] for named in ({}, {"noise_scale": 0}, {})
    )
    assert np.array_equal(plain, again)
    assert not np.array_equal(plain, still)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "model_path"),
        ({"model_path": "/nowhere/at/all"}, "model_path"),
        ({"model_path": "empty"}, "model_path"),
        ({"model_path": "empty", "batch": 3}, "batch"),
        ({"model_path": "model", "threads": 0}, "threads"),
        ({"model_path": "model", "max_batch": "8"}, "max_batch"),
        ({"model_path": "model", "compile": 1}, "compile"),
        ({"model_path": "model", "autocast": "float64"}, "autocast"),
    ],
)
def test_an_option_that_can_not_be_used_is_named(
    tmp_path: Path, folder: Path, options: dict[str, Any], named: str
) -> None:
    paths = {"empty": str(tmp_path), "model": str(folder)}
    if options.get("model_path") in paths:
        options = {**options, "model_path": paths[options["model_path"]]}
    with pytest.raises(SettingsError, match=named):
        TransformersEngine().load(options)


def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(SettingsError, match="device='cuda:99'"):
        load(folder, device="cuda:99")


def test_no_memory_left_is_an_error_of_its_own() -> None:
    with pytest.raises(OutOfMemoryError), named_faults():
        torch.empty(10**15)
    with pytest.raises(OutOfMemoryError), named_faults():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_broken_cuda_context_is_poison() -> None:
    with pytest.raises(EnginePoisonedError), named_faults():
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    with pytest.raises(RuntimeError, match="shapes"), named_faults():
        raise RuntimeError("shapes do not match")


def test_on_the_cpu_it_holds_nothing_of_a_device(folder: Path) -> None:
    engine, _ = load(folder)
    assert isinstance(engine, CachesDeviceMemory)
    assert isinstance(engine, ReportsDeviceMemory)
    assert (engine.cached_memory(), engine.device_bytes()) == (None, None)
    engine.after_batch()


def test_a_segment_that_finds_no_memory_fails_alone_and_holds_on_to_none(folder: Path) -> None:
    engine, _ = load(folder)
    engine._model.register_forward_pre_hook(refuse_long, with_kwargs=True)
    short, long, last = speak(engine, "hi", TEXTS[1], "ho")
    audio.check(short)
    audio.check(last)
    assert isinstance(long, OutOfMemoryError)
    assert (long.__traceback__, long.__cause__, long.__context__) == (None, None, None)


def refuse_long(_model: Any, _positional: Any, inputs: dict[str, Any]) -> None:
    """Ask for more than any machine has where a text is long."""
    if inputs["input_ids"].shape[1] > 20:
        torch.empty(10**15)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_on_cuda_it_says_what_torch_holds_and_what_its_context_took(folder: Path) -> None:
    engine = TransformersEngine()
    engine.load({"model_path": str(folder), "device": "cuda"})
    speak(engine, *TEXTS)
    engine.after_batch()
    cached = engine.cached_memory()
    assert cached is not None
    assert cached.reserved >= cached.allocated > 0
    assert not cached.failed_while_free
    assert engine.device_bytes() == cached.reserved + engine._context_bytes

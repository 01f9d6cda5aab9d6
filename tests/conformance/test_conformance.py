"""What every engine keeps to, ours and anybody's.

``pytest tests/conformance`` runs for our own; ``--engine NAME`` for one that a package offers by an
entry point, with ``--engine-options JSON`` where it needs any, and ``--engine-python PATH`` where
it runs in a Python of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clips import TEXT, clip
from tests.conformance.probe import CALLS
from tests.conformance.subjects import SUBJECTS, Subject
from tests.support import inputs
from voicemill.errors import SettingsError, SynthesisError, VoiceNotFoundError
from voicemill.options import Option
from voicemill.voices import Capabilities
from worker import audio
from worker.engines.base import (
    ClonesVoices,
    Engine,
    Prompt,
    Samples,
    Segment,
    SynthesisOptions,
)
from worker.environment import THREADS

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
MEBIBYTE = 2**20
NOBODY_WRITES_THIS = "\U00012000\U00012001\U00012002"
"""Cuneiform."""
MOST_GROWTH = 4 * MEBIBYTE
"""Of 200 calls; a leak of one second of sound in each would be 19 MiB."""
MOST_SECONDS = 15.0
"""CPU time for these calls; an engine that is slow makes as many as it can."""
MORE_CORES = 0.2
"""Than there are threads, where other threads of the process do a little."""
MOST_THREADS = 2
"""More than before, of one share; a pool may keep one that sleeps."""
SHARE = 2


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine at work."""

    subject: Subject
    engine: Engine
    able: Capabilities
    options: Mapping[str, Any]
    kept: list[Samples] = field(default_factory=list)

    @property
    def alone(self) -> list[Samples]:
        """What comes of each of the segments in a call of its own; spoken once."""
        if not self.kept:
            self.kept.extend(self.say(one.text, one.seed) for one in self.segments)
        return self.kept

    def speak(self, segments: Sequence[Segment], **options: Any) -> list[Samples | SynthesisError]:
        """What comes of the segments, in calls as large as the engine takes."""
        chosen = SynthesisOptions(language=self.subject.language, **options)
        most = self.able.max_batch
        return [
            spoken
            for start in range(0, len(segments), most)
            for spoken in self.engine.synthesize(
                segments[start : start + most], self.able.voices[0].name, chosen
            )
        ]

    def say(self, text: str, seed: int | None = None, **options: Any) -> Samples:
        """The samples of one segment."""
        (spoken,) = self.speak([Segment(text, seed)], **options)
        assert not isinstance(spoken, SynthesisError), spoken
        return spoken

    @property
    def segments(self) -> list[Segment]:
        """One of each text, with seeds where the engine takes any."""
        return [
            Segment(text, index + 1 if self.able.seed else None)
            for index, text in enumerate(self.subject.texts)
        ]

    @property
    def repeats(self) -> bool:
        """Whether the same segment is to sound the same each time."""
        return self.able.seed or self.able.deterministic

    def assert_same(self, ones: Sequence[Any], others: Sequence[Any]) -> None:
        """As long as one another and, where chance has no part in it, of the same samples."""
        for one, other in zip(ones, others, strict=True):
            if self.repeats:
                assert len(one) == len(other)
                assert np.abs(one - other).max() <= self.subject.tolerance


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once for every engine, its name in the test's id."""
    if "subject" not in metafunc.fixturenames:
        return
    name = metafunc.config.getoption("--engine")
    if name is not None:
        options = json.loads(metafunc.config.getoption("--engine-options"))
        known = next((one for one in SUBJECTS if one.name == name), Subject(name))
        chosen = replace(known, interpreter=metafunc.config.getoption("--engine-python"))
        chosen = replace(chosen, options=lambda _: options) if options else chosen
        named = [pytest.param(chosen, id=name)]
    else:
        is_probed = {"report", "shared_report"} & set(metafunc.fixturenames)
        named = [
            pytest.param(
                one,
                id=one.id,
                marks=()
                if (one.is_probed_quickly if is_probed else one.is_quick)
                else pytest.mark.full,
            )
            for one in SUBJECTS
        ]
    metafunc.parametrize("subject", named, scope="module")


@pytest.fixture(scope="module")
def options(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the engine is loaded with."""
    return subject.options(tmp_path_factory.mktemp(subject.name))


@pytest.fixture(scope="module")
def loaded(subject: Subject, options: Mapping[str, Any]) -> Iterator[Loaded]:
    """The engine, in this process or in that of another Python."""
    engine = subject.engine()
    yield Loaded(subject, engine, engine.load(options), options)
    engine.unload()


@pytest.fixture(scope="module")
def report(
    subject: Subject, options: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the engine does to a process of its own, without a network."""
    return probed(subject, options, tmp_path_factory.mktemp(f"{subject.name}-probe"))


@pytest.fixture(scope="module")
def shared_report(
    subject: Subject, options: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """The same where a child has more than one core, after a few calls."""
    folder = tmp_path_factory.mktemp(f"{subject.name}-share")
    return probed(subject, options, folder, threads=SHARE, most_seconds=0.0)


def probed(
    subject: Subject,
    options: Mapping[str, Any],
    folder: Path,
    *,
    threads: int | None = None,
    most_seconds: float = MOST_SECONDS,
) -> dict[str, Any]:
    """What a process tells that was given so many threads, or was told nothing of them."""
    asked = {
        "name": subject.name,
        "options": dict(options),
        "language": subject.language,
        "still": dict(subject.still),
        "texts": subject.texts,
        "short_texts": subject.short_texts,
        "uses_torch": subject.name == "transformers",
        "most_seconds": most_seconds,
    }
    (folder / "request").write_text(json.dumps(asked))
    path = [str(ROOT), *(sys.path if subject.is_of_this_python else ())]
    python = subject.python()
    told_of_threads = {} if threads is None else {THREADS: str(threads)}
    done = subprocess.run(
        [python, "-m", "tests.conformance.probe", folder / "request", folder / "report"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if name != THREADS},
            **told_of_threads,
            "PYTHONPATH": os.pathsep.join(path),
        },
    )
    assert done.returncode == 0, f"ended by {done.returncode}\n{done.stderr}"
    told: dict[str, Any] = json.loads((folder / "report").read_text())
    return {**told, "stdout": done.stdout}


# --- what it declares -------------------------------------------------------------


def test_it_declares_what_can_be_true(loaded: Loaded) -> None:
    able = loaded.able
    names = [voice.name for voice in able.voices]
    assert names, "no voice"
    assert len(set(names)) == len(names)
    assert all(voice.languages for voice in able.voices)
    assert able.engine == loaded.subject.name
    assert 8000 <= able.sample_rate <= 48000
    assert 0.25 <= able.min_speed <= 1.0 <= able.max_speed <= 4.0
    assert 1 <= able.batch_size <= able.max_batch
    assert 20 <= able.best_segment_characters <= able.max_segment_characters
    assert Capabilities.from_record(json.loads(json.dumps(able.to_record()))) == able


def test_an_option_that_it_does_not_know_stops_the_loading(loaded: Loaded) -> None:
    wrong = {**loaded.options, "no_such_option": 1}
    with pytest.raises(SettingsError, match="no_such_option"):
        loaded.subject.engine().load(wrong)


def test_a_named_option_that_it_does_not_declare_is_refused(loaded: Loaded) -> None:
    item = replace(
        inputs("Hi.", model=loaded.able.engine, voice=loaded.able.voices[0].name)[0],
        options={"no_such_option": 1},
    )
    assert [field for field, _ in loaded.able.refusals(item)] == ["options/no_such_option"]


def test_every_named_option_is_taken_to_its_ends(loaded: Loaded) -> None:
    for option in loaded.able.options:
        for value in ends_of(option):
            assert option.takes(value), (option, value)
            audio_of = loaded.say(loaded.subject.texts[0], named={option.name: value})
            assert len(audio_of), (option.name, value)


def ends_of(option: Option) -> list[Any]:
    """Values on the edge of what an option takes."""
    match option.kind:
        case "choice":
            return [option.choices[0], option.choices[-1]]
        case "switch":
            return [False, True]
        case "number":
            return [end for end in (option.minimum, option.maximum) if end is not None]
        case "text":
            return ["a"]


# --- how it speaks ------------------------------------------------------------------


def test_a_segment_becomes_mono_samples_that_are_heard(loaded: Loaded) -> None:
    for text, samples in zip(loaded.subject.texts, loaded.alone, strict=True):
        assert (samples.dtype, samples.ndim) == (np.float32, 1)
        assert np.abs(samples).max() <= 1.0
        audio.check(samples)
        assert 0.1 < len(samples) / loaded.able.sample_rate < 0.5 * len(text)


def test_a_batch_sounds_as_each_segment_alone(loaded: Loaded) -> None:
    loaded.assert_same(loaded.speak(loaded.segments), loaded.alone)


def test_with_nothing_left_to_chance_a_free_batch_sounds_as_each_segment_alone(
    loaded: Loaded,
) -> None:
    still = loaded.subject.still
    if still:
        together = loaded.speak([Segment(text) for text in loaded.subject.texts], named=still)
        alone = [loaded.say(text, named=still) for text in loaded.subject.texts]
        for one, other in zip(together, alone, strict=True):
            assert len(one) == len(other)  # type: ignore[arg-type]
            assert np.abs(one - other).max() <= loaded.subject.tolerance  # type: ignore[operator]


def test_results_come_in_the_order_of_the_segments(loaded: Loaded) -> None:
    backwards: list[Any] = loaded.speak(loaded.segments[::-1])
    loaded.assert_same(backwards[::-1], loaded.alone)
    _, short, long, _ = backwards
    assert len(long) > 1.5 * len(short)


def test_an_empty_batch_gives_nothing(loaded: Loaded) -> None:
    voice = loaded.able.voices[0].name
    assert list(loaded.engine.synthesize([], voice, SynthesisOptions())) == []


def test_one_bad_segment_harms_no_other(loaded: Loaded) -> None:
    good = loaded.segments[:2]
    bad = Segment(loaded.subject.unsayable or NOBODY_WRITES_THIS)
    first, refused, last = loaded.speak([good[0], bad, good[1]])
    loaded.assert_same([first, last], loaded.alone[:2])
    if loaded.subject.unsayable:
        assert isinstance(refused, SynthesisError)


def test_a_seed_gives_the_same_samples_again(loaded: Loaded) -> None:
    if not loaded.able.seed:
        return
    first = loaded.say(loaded.subject.texts[0], 11)
    loaded.say(loaded.subject.texts[0])
    assert np.array_equal(first, loaded.say(loaded.subject.texts[0], 11))
    others = [loaded.say(loaded.subject.texts[0], seed) for seed in (12, 13, 2**32 - 1)]
    assert any(not np.array_equal(first, other) for other in others)


def test_the_same_segment_sounds_the_same_where_it_says_so(loaded: Loaded) -> None:
    if loaded.able.deterministic:
        assert np.array_equal(
            loaded.say(loaded.subject.texts[0]), loaded.say(loaded.subject.texts[0])
        )


def test_what_was_spoken_stays_as_it_was(loaded: Loaded) -> None:
    samples = loaded.alone[0]
    kept = samples.copy()
    loaded.say(loaded.subject.texts[2])
    loaded.engine.after_batch()
    assert np.array_equal(samples, kept)
    audio.check(loaded.say(loaded.subject.texts[2]))


def test_speed_shortens_and_does_not_stick(loaded: Loaded) -> None:
    slow, fast = loaded.able.min_speed, loaded.able.max_speed
    first, seed = loaded.alone[0], loaded.segments[0].seed
    slower, faster = (
        len(loaded.say(loaded.subject.texts[0], seed, speed=one)) for one in (slow, fast)
    )
    if slow < fast:
        assert faster < 0.8 * slower
    loaded.assert_same([loaded.say(loaded.subject.texts[0], seed)], [first])


# --- what it does to its process -------------------------------------------------------


def test_it_writes_nothing_to_standard_output(report: dict[str, Any]) -> None:
    assert report["stdout"] == ""


def test_it_leaves_alone_what_belongs_to_the_process(report: dict[str, Any]) -> None:
    """Logging, signal handlers, the working directory, and the chance of others."""
    assert report["changed by load"] == []
    assert report["changed by speaking"] == []
    assert report["changed"] == []


def test_it_computes_on_one_core(report: dict[str, Any]) -> None:
    assert report["cores"] < 1 + MORE_CORES
    assert report["threads"] <= MOST_THREADS


def test_it_has_as_many_threads_as_its_child_was_given(
    subject: Subject, report: dict[str, Any], shared_report: dict[str, Any]
) -> None:
    assert shared_report["cores"] < SHARE + MORE_CORES
    assert shared_report["threads"] <= SHARE * MOST_THREADS
    if subject.is_threaded:
        assert shared_report["threads"] - report["threads"] >= SHARE - 1


def test_many_calls_leave_nothing_behind(report: dict[str, Any]) -> None:
    assert report["growth"] < MOST_GROWTH * max(0.25, report["calls"] / CALLS)


def test_unloading_gives_back_what_loading_took(report: dict[str, Any]) -> None:
    assert report["kept"] < max(MOST_GROWTH, 0.1 * report["taken"])


def test_once_unloaded_it_can_be_loaded_again(loaded: Loaded, report: dict[str, Any]) -> None:
    assert report["is_able_again"]
    assert report["sounds_the_same"] or not (loaded.repeats or loaded.subject.still)


def test_it_speaks_as_prompts_do_where_it_says_so_and_keeps_them_apart(
    loaded: Loaded, tmp_path: Path
) -> None:
    engine, chosen = loaded.engine, SynthesisOptions(language=loaded.subject.language)
    assert isinstance(engine, ClonesVoices) is loaded.able.cloning
    if not isinstance(engine, ClonesVoices):
        return

    def say(voice: str) -> Samples:
        (spoken,) = engine.synthesize([loaded.segments[1]], voice, chosen)
        assert not isinstance(spoken, SynthesisError), spoken
        audio.check(spoken)
        return spoken

    def enrol(voice: str, hz: float) -> None:
        path = tmp_path / f"{voice}.wav"
        path.write_bytes(clip(6.0, hz))
        engine.enrol(voice, Prompt(path, TEXT, "en"))

    enrol("one", 120)
    enrol("two", 190)
    one, two = say("one"), say("two")
    loaded.assert_same([say("one"), say("two")], [one, two])
    assert one.shape != two.shape or np.abs(one - two).max() > 10 * loaded.subject.tolerance

    engine.forget("one")
    engine.forget("one")
    with pytest.raises(VoiceNotFoundError):
        say("one")
    loaded.assert_same([say("two")], [two])
    enrol("one", 120)
    loaded.assert_same([say("one")], [one])
    for voice in ("one", "two"):
        engine.forget(voice)

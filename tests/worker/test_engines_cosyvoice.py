"""How the engine cosyvoice speaks: every trap of CosyVoice that it steps around, on a stand-in."""

from __future__ import annotations

import gc
import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.cosyvoice_world import END, PITCH_HZ, RATE_HZ, SAID, SYSTEM, World, pitch_of
from voicemill.errors import (
    EnginePoisonedError,
    InvalidAudioError,
    OutOfMemoryError,
    PromptAudioInvalidError,
    SynthesisError,
    UnsupportedCharactersError,
    VoiceNotFoundError,
)
from voicemill.jobs import ItemInput
from worker import audio
from worker.engines import cosyvoice
from worker.engines.base import Prompt, Segment, SynthesisOptions
from worker.engines.cosy.instructions import SENTENCES

TEXT = "so this is what it says today"
MANDARIN = "\u4eca\u5929\u5929\u6c14\u5f88\u597d"
FAULTS = ("zerotokens", "earlystop", "endless", "threadfault", "threadmemory", "flowfault")


def test_a_voice_speaks_with_the_pitch_of_its_clip(world: World) -> None:
    world.load()
    (samples,) = world.speak(TEXT)
    audio.check(samples)
    assert samples.dtype == np.float32
    assert pitch_of(samples) == pytest.approx(PITCH_HZ, rel=0.02)
    assert len(samples) / RATE_HZ == pytest.approx(7 * 5 / 25, rel=0.4)


def test_zero_shot_has_the_prefix_before_the_transcript(world: World) -> None:
    world.load()
    world.speak(TEXT)
    (heard,) = world.heard
    assert (heard.prompt, heard.text) == (f"{SYSTEM}{END}{SAID}", TEXT)
    assert heard.prompt_speech_tokens == 2 * 25


def test_cosyvoice_2_has_no_prefix(tmp_path: Path, world: World) -> None:
    older = World(tmp_path / "2")
    older.make_model(version=2)
    older.make_voice("ann", language="en")
    older.load()
    older.speak(TEXT)
    older.speak(TEXT, language="zh")
    older.speak(TEXT, named={"dialect": "sichuan"})
    assert [(heard.prompt, heard.text) for heard in older.heard] == [
        (SAID, TEXT),
        ("", TEXT),
        ("\u7528\u56db\u5ddd\u8bdd\u8bf4\u8fd9\u53e5\u8bdd" + END, TEXT),
    ]


def test_another_language_has_the_prefix_before_every_piece_and_no_transcript(
    world: World,
) -> None:
    world.load()
    world.speak(MANDARIN, MANDARIN * 30, language="zh")
    assert len(world.heard) > 3
    for heard in world.heard:
        assert heard.text.startswith(f"{SYSTEM}{END}{MANDARIN[0]}"[:-1])
        assert (heard.prompt, heard.prompt_speech_tokens) == ("", 0)
        assert heard.pitch == pytest.approx(PITCH_HZ, rel=0.02)


def test_a_region_is_no_other_language(world: World) -> None:
    world.load()
    world.speak(TEXT, language="en-GB")
    assert world.heard[0].prompt.endswith(SAID)


def test_a_clip_without_transcript_gives_its_timbre(world: World) -> None:
    world.make_voice("bob", said=None, pitch=300)
    world.load()
    (samples,) = world.speak(MANDARIN, voice="bob")
    assert pitch_of(samples) == pytest.approx(300, rel=0.02)
    assert (world.heard[0].prompt, world.heard[0].text) == ("", f"{SYSTEM}{END}{MANDARIN}")


def test_an_instruction_takes_the_place_of_the_transcript_of_an_enrolled_voice(
    world: World,
) -> None:
    world.load()
    (samples,) = world.speak(MANDARIN, named={"dialect": "cantonese"})
    (heard,) = world.heard
    assert heard.prompt == f"{SYSTEM} \u8bf7\u7528\u5e7f\u4e1c\u8bdd\u8868\u8fbe\u3002{END}"
    assert (heard.text, heard.prompt_speech_tokens) == (MANDARIN, 0)
    assert pitch_of(samples) == pytest.approx(PITCH_HZ, rel=0.02)


def test_instructions_do_not_stick(world: World) -> None:
    world.load()
    world.speak(TEXT, instructions="Whisper.")
    world.speak(TEXT)
    assert world.heard[0].prompt == f"{SYSTEM} Whisper.{END}"
    assert world.heard[1].prompt == f"{SYSTEM}{END}{SAID}"
    assert world.heard[1].prompt_speech_tokens == 50


def test_named_instructions_and_a_free_one_are_joined(world: World) -> None:
    world.load()
    world.speak(TEXT, named={"emotion": "happy", "volume": "soft"}, instructions="Smile.")
    happy, soft = SENTENCES[3]["emotion"]["happy"], SENTENCES[3]["volume"]["soft"]
    assert world.heard[0].prompt == f"{SYSTEM} {happy} {soft} Smile.{END}"


def test_all_26_canned_instructions_are_named_options(world: World) -> None:
    world.load()
    assert world.capabilities is not None
    choices = {one.name: one.choices for one in world.capabilities.options if one.choices}
    assert {name: len(of) for name, of in choices.items()} == {
        "dialect": 17,
        "emotion": 3,
        "volume": 2,
        "pace": 2,
        "style": 2,
    }
    for name, of in choices.items():
        for choice in of:
            world.speak(TEXT, named={name: choice})
    assert len({heard.prompt for heard in world.heard}) == 26
    item = ItemInput(0, "a", TEXT, "cosyvoice", "ann", options={"dialect": "klingon"})
    assert [field for field, _ in world.capabilities.refusals(item)] == ["options/dialect"]


def test_a_text_can_not_control_the_model(world: World) -> None:
    world.load()
    world.speak(f"one {END} two [breath] three <strong>four</strong> [AA0]")
    (heard,) = world.heard
    special = world.model.frontend.tokenizer.special
    assert not [token for token in special if token in heard.text]
    said = "one endofprompt two breath three strong four strong AA0"
    assert re.findall(r"\w+", heard.text) == said.split()


def test_markup_keeps_the_tags_of_delivery_and_no_others(world: World) -> None:
    world.load()
    world.speak(f"one [breath] two {END} [j][\u01d0]", named={"markup": True})
    assert "one [breath] two" in world.heard[0].text
    assert "[j][\u01d0]" in world.heard[0].text
    assert "<|" not in world.heard[0].text


def test_instructions_and_transcripts_can_not_control_the_model(world: World) -> None:
    world.make_voice("bob", said=f"one [breath] {END} two", language="en")
    world.load()
    world.speak(TEXT, voice="bob")
    world.speak(TEXT, instructions=f"Be calm.{END}[laughter]", named={"markup": True})
    for heard in world.heard:
        assert heard.prompt.count(END) == 1
        assert "[breath]" not in heard.prompt
        assert "[laughter]" not in heard.prompt


@pytest.mark.parametrize(
    "text",
    [MANDARIN[0] * 1000, MANDARIN * 50 + "\uff0c", "word " * 200, "x" * 1000],
    ids=["no stop", "no comma", "words", "letters"],
)
def test_no_piece_is_longer_than_the_model_takes(world: World, text: str) -> None:
    world.load()
    (samples,) = world.speak(text)
    audio.check(samples)
    tokenizer = world.model.frontend.tokenizer
    given = [heard.text for heard in world.heard]
    assert max(len(tokenizer.encode(one)) for one in given) <= 80
    assert max(map(len, given)) <= 300
    assert re.findall(r"\w", "".join(given)) == re.findall(r"\w", text)


def test_the_pieces_of_a_segment_are_drawn_by_different_seeds(world: World) -> None:
    world.load()
    (samples,) = world.speak("word " * 128, seed=7)
    pieces = [heard.text for heard in world.heard]
    assert len(pieces) == 4
    alone = [world.speak(one, seed=7 + at)[0] for at, one in enumerate(pieces)]
    assert np.array_equal(samples, np.concatenate(alone))


@pytest.mark.parametrize("text", ["", "\u2026!", "\u200b", "\uff1f"])
def test_a_text_with_nothing_to_say_is_named(world: World, text: str) -> None:
    world.load()
    nothing, something = world.speak(text, TEXT)
    assert isinstance(nothing, UnsupportedCharactersError)
    audio.check(something)


def test_a_seed_gives_the_same_samples_in_any_company(world: World) -> None:
    world.load()
    (alone,) = world.speak(TEXT, seed=5)
    _, among, other = (
        *world.speak("before it", TEXT, seed=5),
        *world.speak(TEXT, seed=6),
    )
    assert np.array_equal(alone, among)
    assert not np.array_equal(alone[: len(other)], other[: len(alone)])


def test_without_a_seed_a_fresh_engine_does_not_repeat_the_one_before(world: World) -> None:
    spoken = []
    for _ in range(2):
        world.load()
        spoken.append(world.speak(TEXT, seed=None)[0])
    first, second = spoken
    assert not (len(first) == len(second) and np.array_equal(first, second))


def test_the_chance_of_the_process_is_left_alone(world: World) -> None:
    random.seed(3)
    np.random.seed(3)
    torch = world.module("cosyvoice.which_torch").torch
    torch.manual_seed(3)
    expected = random.random(), np.random.random(), torch.rand(1).tolist()
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    world.load()
    world.speak(TEXT, seed=9)
    assert (random.random(), np.random.random(), torch.rand(1).tolist()) == expected


def test_speed_shortens_and_does_not_stick(world: World) -> None:
    world.load()
    normal, fast, again = (len(world.speak(TEXT, speed=one)[0]) for one in (1.0, 2.0, 1.0))
    assert fast == normal // 2
    assert again == normal


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_nothing_of_a_call_is_kept(world: World, fault: str) -> None:
    world.load()
    world.speak(f"{TEXT} {fault}")
    assert world.sessions() == [0, 0, 0]


def test_every_call_is_carried_to_its_end(world: World) -> None:
    world.load()
    world.speak(TEXT, TEXT)
    assert world.model.model.finished == 2


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("zerotokens", InvalidAudioError, "gave no speech tokens"),
        ("earlystop", InvalidAudioError, "ended too early: 4 speech tokens for 8 of text"),
        ("endless", InvalidAudioError, "cut off after 160 speech tokens"),
        ("threadfault", SynthesisError, r"failed with ValueError at model.py:\d+\."),
        ("threadmemory", OutOfMemoryError, "No memory was left"),
        ("flowfault", SynthesisError, r"failed with RuntimeError at model.py:\d+\."),
    ],
)
def test_a_fault_fails_its_segment_alone_and_by_name(
    world: World, fault: str, kind: type[SynthesisError], said: str
) -> None:
    world.load()
    before, failed, after = world.speak(TEXT, f"{TEXT} {fault}", TEXT)
    assert type(failed) is kind
    with pytest.raises(kind, match=said):
        raise failed
    assert TEXT not in failed.message
    assert np.array_equal(before, after)


def test_a_short_text_is_not_too_early(world: World) -> None:
    world.load()
    (samples,) = world.speak("earlystop")
    assert len(samples) == 4 * 960


def test_a_single_word_has_room_for_two_seconds(world: World) -> None:
    world.load()
    (failed,) = world.speak("endless")
    assert "cut off after 50 speech tokens" in failed.message


def test_a_broken_context_ends_the_whole_call(world: World) -> None:
    world.load()
    with pytest.raises(EnginePoisonedError):
        world.speak(TEXT, "threadcuda", TEXT)
    assert world.sessions() == [0, 0, 0]


def test_a_prompt_and_a_piece_over_the_model_s_length_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.engines.cosy.watched.MOST_FRAMES", 150)
    world.load()
    (failed,) = world.speak(TEXT)
    assert isinstance(failed, InvalidAudioError)
    assert "takes 150; enrol the voice with a shorter clip" in failed.message


def test_what_an_interrupted_call_left_behind_ends_before_the_next_call(world: World) -> None:
    world.load()
    goes_on = world.model.model.llm.goes_on

    def interrupt(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        (failed,) = world.speak("held up")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert "TimeoutError" in failed.message
    assert world.sessions() == [0, 0, 0]
    threading.Timer(0.05, goes_on.set).start()
    audio.check(world.speak(TEXT)[0])
    assert world.model.model.llm.most_at_once == 1


def test_no_text_is_logged_or_printed(
    world: World, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        world.load()
        world.speak(TEXT, f"{TEXT} threadfault", language="zh")
        world.speak(TEXT, instructions="Whisper.")
    printed = capsys.readouterr()
    assert printed.out == ""
    for secret in (TEXT, SAID, "Whisper"):
        assert secret not in caplog.text + printed.err


def test_two_voices_with_one_transcript_do_not_mix(world: World) -> None:
    world.make_voice("bob", pitch=400, language="en")
    world.load()
    pitches = [pitch_of(world.speak(TEXT, voice=one)[0]) for one in ("ann", "bob", "ann")]
    assert pitches == pytest.approx([PITCH_HZ, 400, PITCH_HZ], rel=0.02)


def test_a_clip_is_read_once(world: World) -> None:
    world.load()
    world.speak(TEXT, TEXT)
    world.speak(TEXT, language="zh")
    world.speak(TEXT, instructions="Whisper.")
    assert len(world.module("cosyvoice.utils.file_utils").opened) == 3


def test_only_the_voices_last_used_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cosyvoice, "KEPT_VOICES", 2)
    world.make_voice("bob")
    world.make_voice("cy")
    world.load()
    opened = world.module("cosyvoice.utils.file_utils").opened
    for voice in ("ann", "bob", "ann", "cy", "ann"):
        world.speak(TEXT, voice=voice)
    assert [Path(one).stem for one in opened[::3]] == ["ann", "bob", "cy"]
    world.speak(TEXT, voice="bob")
    assert len(opened) == 12
    assert world.model.frontend.spk2info == {}


def test_an_enrolled_voice_speaks_beside_those_of_the_folder_until_it_is_forgotten(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cosyvoice, "KEPT_VOICES", 1)
    clip = World(tmp_path / "elsewhere")
    clip.home.mkdir()
    prompt = Prompt(clip.make_voice("clip", pitch=320), "<|endofprompt|> bonjour", "fr")
    world.load()
    world.engine.enrol("ann", replace(prompt, language="en"))
    world.engine.enrol("a1", prompt)
    prompt.audio.unlink()
    for name in ("a1", "ann"):
        (samples,) = world.speak(TEXT, voice=name)
        assert pitch_of(samples) == pytest.approx(320, rel=0.02)
    world.speak(TEXT, voice="a1", language="en")
    spoken, _, other = world.heard
    assert (spoken.prompt, spoken.text) == (f"{SYSTEM}{END}< |endofprompt| > bonjour", TEXT)
    assert (other.prompt, other.text) == ("", f"{SYSTEM}{END}{TEXT}"), "of another language"
    for name in ("a1", "ann", "ann"):
        world.engine.forget(name)
    (folder,) = world.speak(TEXT)
    assert pitch_of(folder) == pytest.approx(PITCH_HZ, rel=0.02)
    with pytest.raises(VoiceNotFoundError, match="no voice 'a1'; it has: ann"):
        world.speak(TEXT, voice="a1")
    assert world.model.frontend.spk2info == {}


def test_what_the_model_made_of_a_prompt_is_kept_for_the_next_process(
    world: World, tmp_path: Path
) -> None:
    kept = tmp_path / "clip.npz"
    audio = world.make_voice("clip", pitch=320)
    (world.voices_dir / "clip.txt").unlink()
    prompt = Prompt(audio.rename(world.home / "clip.wav"), "bonjour", "fr", kept)
    world.load()
    opened = world.module("cosyvoice.utils.file_utils").opened
    world.engine.enrol("a1", prompt)
    (first,) = world.speak(TEXT, voice="a1", seed=3)
    assert len(opened) == 3
    world.engine.forget("a1")
    world.engine.enrol("a2", prompt)
    (second,) = world.speak(TEXT, voice="a2", seed=3)
    assert len(opened) == 3, "the clip is not heard again"
    assert np.array_equal(first, second)
    kept.write_bytes(kept.read_bytes()[:-20])
    world.engine.enrol("a3", prompt)
    assert len(opened) == 6
    assert np.array_equal(first, world.speak(TEXT, voice="a3", seed=3)[0])


def test_a_prompt_that_the_model_refuses_is_named_without_its_path(world: World) -> None:
    prompt = Prompt(world.make_voice("long", seconds=31), "hello", "en")
    (world.voices_dir / "long.wav").rename(world.home / "long.wav")
    (world.voices_dir / "long.txt").unlink()
    world.load()
    with pytest.raises(PromptAudioInvalidError) as caught:
        world.engine.enrol("a1", replace(prompt, audio=world.home / "long.wav"))
    assert caught.value.message == (
        "The model refuses the clip: AssertionError: do not support audio longer than 30s"
    )


def test_a_clip_that_changed_is_refused(world: World) -> None:
    world.load()
    world.make_voice("ann", pitch=333, language="en")
    with pytest.raises(PromptAudioInvalidError, match="recycle the workers"):
        world.speak(TEXT)


def test_an_unknown_voice_is_refused_with_those_there_are(world: World) -> None:
    world.load()
    with pytest.raises(VoiceNotFoundError, match="it has: ann"):
        world.speak(TEXT, voice="zoe")


@pytest.mark.parametrize("text", ["\u6b74\u53f2", "\u308c\u304d\u3057"])
def test_japanese_that_is_not_in_katakana_is_refused(world: World, text: str) -> None:
    world.load()
    refused, spoken = world.speak(text, "\u30ec\u30ad\u30b7", language="ja")
    assert isinstance(refused, UnsupportedCharactersError)
    assert "katakana" in refused.message
    audio.check(spoken)


def test_an_empty_batch_gives_nothing(world: World) -> None:
    world.load()
    assert world.engine.synthesize([], "ann", SynthesisOptions()) == []


def test_one_segment_is_all_it_takes_at_once(world: World) -> None:
    world.load()
    able = world.capabilities
    assert able is not None
    assert (able.max_batch, able.batch_size, able.sample_rate) == (1, 1, RATE_HZ)
    assert (able.cloning, able.instructions, able.seed, able.streaming) == (True, True, True, False)
    assert able.voice("ann").languages[:2] == ("en", "zh")
    assert able.cloning_languages == ("zh", "en", "ja", "ko", "de", "es", "fr", "it", "ru", "yue")


def test_unload_lets_go_of_the_model_and_it_loads_again(world: World) -> None:
    path = [*sys.path]
    world.load()
    world.speak(TEXT)
    assert sys.path != path
    model = weakref.ref(world.model.model)
    gc.disable()
    try:
        world.engine.unload()
        assert model() is None
    finally:
        gc.enable()
    assert sys.path == path
    world.load()
    audio.check(world.speak(TEXT)[0])


def test_two_hundred_calls_keep_nothing(world: World) -> None:
    world.load()
    world.model.model.llm.heard = _Nothing()
    threads = threading.active_count()
    for number in range(200):
        world.engine.synthesize([Segment(TEXT, number)], "ann", SynthesisOptions())
    assert world.sessions() == [0, 0, 0]
    assert threading.active_count() == threads
    assert list(world.engine._of_folder) == ["ann"]


@pytest.mark.full
def test_all_of_it_holds_on_the_tensors_of_torch() -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", str(Path(__file__))],
        env={**os.environ, "COSYVOICE_STAND_IN_TORCH": "real"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout


class _Nothing(list[Any]):
    """Keeps nothing, so that only what others keep is there."""

    def append(self, value: Any) -> None:
        del value

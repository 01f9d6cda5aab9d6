"""What a prompt is refused for, each by a name of its own, and what is kept of one that is good."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from tests.clips import RATE, TEXT, buzz, clip, encoded
from voicemill.enrolment import EnrolledVoice
from voicemill.errors import PromptAudioInvalidError
from voicemill.store import WaitingPrompt
from worker.prompts import checked, letters

VOICE = EnrolledVoice(tenant="ann", name="a", token="t", language="en", prompt_text=TEXT)


def prompt(upload: bytes, text: str = TEXT, tries: int = 1) -> WaitingPrompt:
    return WaitingPrompt(replace(VOICE, prompt_text=text), upload, tries)


def noise(level: float) -> np.ndarray:
    return np.random.default_rng(2).normal(0.0, level, 3 * RATE).astype(np.float32)


LOUD = np.clip(8 * buzz(), -1.0, 1.0)


@pytest.mark.parametrize(
    ("upload", "text", "code", "says"),
    [
        (b"", TEXT, "prompt_undecodable", "send a wav, flac, mp3 or ogg"),
        (b"RIFF\x00\x00\x00\x00WAVEjunk", TEXT, "prompt_undecodable", "can't be read"),
        (encoded(np.zeros((RATE, 9))), TEXT, "prompt_undecodable", "9 channels"),
        (clip(rate=8000), TEXT, "prompt_sample_rate", "8000 samples a second; 16000"),
        (clip(0.9), TEXT, "prompt_length", "lasts 0.9 s; 1 to 30 s"),
        (clip(30.5), TEXT, "prompt_length", "lasts over 30 s"),
        (encoded(np.zeros(3 * RATE)), TEXT, "prompt_silent", "silent"),
        (encoded(0.01 * buzz()), TEXT, "prompt_silent", "at its loudest"),
        (encoded(LOUD), TEXT, "prompt_clipped", "cut off at full scale"),
        (encoded(buzz() + noise(0.08)), TEXT, "prompt_noisy", "15 dB are needed"),
        (clip(), "Hm.", "prompt_text_implausible", "too short for the"),
        (clip(), TEXT * 4, "prompt_text_implausible", "too long for the"),
        (clip(), "春眠不覚暁" * 6, "prompt_text_implausible", "too long for the"),
    ],
)
def test_a_prompt_is_refused_by_name(upload: bytes, text: str, code: str, says: str) -> None:
    with pytest.raises(PromptAudioInvalidError, match=says) as caught:
        checked(prompt(upload, text))
    assert caught.value.code == code


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_good_prompt_is_kept_as_a_wav_of_one_channel_at_its_own_rate(kind: str) -> None:
    stereo = np.stack([buzz(rate=44100), buzz(rate=44100)], axis=1)
    found, data = checked(prompt(encoded(stereo, rate=44100, kind=kind)))

    with soundfile.SoundFile(io.BytesIO(data)) as file:
        assert (file.format, file.subtype, file.channels) == ("WAV", "PCM_16", 1)
        assert (file.samplerate, file.frames / 44100) == (44100, found.duration_seconds)
    assert (found.sample_rate, found.size_bytes) == (44100, len(data))
    assert found.duration_seconds == pytest.approx(3.0, abs=0.1)


def test_the_same_sound_has_the_same_digest_whatever_file_it_came_in() -> None:
    numbers = (32767 * buzz()).astype(np.int16)
    (wav, _), (flac, _) = (checked(prompt(encoded(numbers, kind=kind))) for kind in ("WAV", "FLAC"))
    (other, _) = checked(prompt(clip(hz=150.0)))
    assert wav.sha256 == flac.sha256 != other.sha256


def test_limits_of_the_length_can_be_reached() -> None:
    assert checked(prompt(clip(1.0), "Good day."))[0].duration_seconds == 1.0
    assert checked(prompt(clip(30.0), TEXT * 8))[0].duration_seconds == 30.0


def test_a_sign_of_a_syllable_counts_for_three_letters() -> None:
    assert letters("Ab, c! 12") == 5
    assert letters("春かカ한") == 12


def test_a_prompt_that_ended_its_reader_three_times_is_not_read_again() -> None:
    assert checked(prompt(clip(), tries=3))
    with pytest.raises(PromptAudioInvalidError, match="3 times the process"):
        checked(prompt(clip(), tries=4))

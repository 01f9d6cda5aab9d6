"""The gate, the joins and the formats, by what comes out of them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import soundfile

from voicemill.errors import InvalidAudioError, SilentAudioError
from voicemill.formats import RESPONSE_FORMATS
from worker import audio
from worker.engines.base import Samples


def sine(seconds: float, rate: int, hertz: float = 440.0, peak: float = 0.5) -> Samples:
    time = np.arange(round(seconds * rate)) / rate
    samples: Samples = (peak * np.sin(2 * np.pi * hertz * time)).astype(np.float32)
    return samples


def decoded(data: bytes) -> tuple[Any, int]:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    return samples, rate


def loudest_hertz(samples: Samples, rate: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(samples))) * rate / len(samples))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused(value: float) -> None:
    samples = sine(0.1, 24000)
    samples[100] = value
    with pytest.raises(InvalidAudioError, match="not finite"):
        audio.check(samples)


@pytest.mark.parametrize(
    "samples",
    [np.zeros(0, np.float32), np.ones((1, 9), np.float32), np.ones(9, np.int16)],
    ids=["none", "two-dimensional", "integers"],
)
def test_anything_but_one_row_of_floats_is_refused(samples: Any) -> None:
    with pytest.raises(InvalidAudioError):
        audio.check(samples)


def test_silence_is_refused_and_a_whisper_is_not() -> None:
    with pytest.raises(SilentAudioError):
        audio.check(sine(0.1, 24000, peak=0.0009))
    audio.check(sine(0.1, 24000, peak=0.0011))
    audio.check(np.array([0, -0.5], np.float32))


@pytest.mark.parametrize("gap_seconds", [0.15, 0.25, 0.35, 0.45, 0.75])
def test_pieces_stand_apart_by_the_gap_to_the_sample(gap_seconds: float) -> None:
    pieces = [sine(0.5, 22050), sine(0.3, 22050, 880.0), sine(0.2, 22050)]
    joined = audio.join(pieces, 22050, gap_seconds)
    gap = round(22050 * gap_seconds)
    assert len(joined) == sum(map(len, pieces)) + 2 * gap
    assert not joined[len(pieces[0]) : len(pieces[0]) + gap].any()
    start = len(pieces[0]) + gap
    second = joined[start : start + len(pieces[1])]
    assert np.corrcoef(second, pieces[1])[0, 1] > 0.99


def test_a_join_does_not_click() -> None:
    steps = [np.full(4800, 0.8, np.float32), np.full(4800, -0.8, np.float32)]
    joined = audio.join(steps, 24000)
    assert joined[0] == joined[-1] == 0.0
    assert np.abs(np.diff(joined)).max() < 0.015
    assert steps[0][0] == np.float32(0.8)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_shortest_pieces_can_be_joined(count: int) -> None:
    assert len(audio.join([np.ones(count, np.float32)], 24000)) == count
    assert audio.join([], 24000).shape == (0,)


@pytest.mark.parametrize("response_format", RESPONSE_FORMATS)
@pytest.mark.parametrize("rate", [16000, 22050, 24000])
def test_a_file_has_the_length_rate_and_pitch_of_its_samples(
    response_format: str, rate: int
) -> None:
    spoken = audio.join([sine(2.0, rate)], rate)
    samples, file_rate = decoded(audio.encode(spoken, rate, response_format))
    assert file_rate == audio.file_rate(rate, response_format)
    assert len(samples) / file_rate == pytest.approx(2.0, abs=0.06)
    assert loudest_hertz(samples, file_rate) == pytest.approx(440.0, abs=2.0)
    assert np.abs(samples).max() == pytest.approx(0.5, abs=0.05)


def test_only_a_format_that_must_changes_the_rate() -> None:
    rates = {one: audio.file_rate(22050, one) for one in RESPONSE_FORMATS}
    assert rates == {"wav": 22050, "flac": 22050, "mp3": 22050, "ogg": 22050, "opus": 24000}
    assert audio.file_rate(96000, "mp3") == 48000


@pytest.mark.parametrize("response_format", ["wav", "flac"])
def test_too_loud_samples_are_clamped_and_never_wrap(response_format: str) -> None:
    loud = np.array([0, 0.5, 1.2, -1.3, 3.0] * 1000, np.float32)
    data = audio.encode(loud, 24000, response_format)
    samples, _ = soundfile.read(io.BytesIO(data), dtype="int16")
    assert samples[:5].tolist() == pytest.approx([0, 16384, 32767, -32768, 32767], abs=1)
    assert len(samples) == 5000


def test_a_wav_is_one_riff_whose_sizes_are_true() -> None:
    pieces = [sine(0.3, 22050), sine(0.301, 22050), sine(0.1, 22050)]
    data = audio.encode(audio.join(pieces, 22050), 22050, "wav")
    assert data.count(b"RIFF") == 1
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert soundfile.info(io.BytesIO(data)).subtype == "PCM_16"


@pytest.mark.parametrize("response_format", ["mp3", "opus", "ogg"])
def test_more_than_one_block_is_written_whole(response_format: str) -> None:
    seconds = 12.3 * audio.ENCODE_BLOCK_SAMPLES / 24000
    samples, rate = decoded(audio.encode(sine(seconds, 24000), 24000, response_format))
    assert len(samples) / rate == pytest.approx(seconds, abs=0.06)
    assert np.abs(samples[rate:-rate]).reshape(-1)[: 12 * rate].reshape(-1, 100).max(1).min() > 0.4


@pytest.mark.full
@pytest.mark.parametrize("response_format", RESPONSE_FORMATS)
def test_an_hour_of_audio_is_written_whole(response_format: str) -> None:
    seconds = 3600.0 if response_format != "opus" else 300.0  # encodes slowly
    samples, rate = decoded(audio.encode(sine(seconds, 8000), 8000, response_format))
    assert len(samples) / rate == pytest.approx(seconds, abs=0.06)

"""Samples to a file's bytes: the gate, the joins, the formats."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import soundfile  # type: ignore[import-untyped]
import soxr  # type: ignore[import-untyped]

from voicemill.errors import InvalidAudioError, SilentAudioError, VoicemillError
from worker.engines.base import Samples

SILENCE_PEAK = 0.001  # -60 dBFS
GAP_SECONDS = 0.15
FADE_SECONDS = 0.005
# libsndfile's Ogg encoders keep a whole write on the stack.
ENCODE_BLOCK_SAMPLES = 1 << 15
# An Opus stream may end on a spike; this much silence takes it.
OPUS_TAIL_SECONDS = 0.01

CONTAINERS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "opus": ("OGG", "OPUS"),
    "ogg": ("OGG", "VORBIS"),
}
RATES_HZ = {
    "mp3": (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000),
    "opus": (8000, 12000, 16000, 24000, 48000),
}
"""The rates of formats that don't take any."""


def given(result: object) -> Samples | VoicemillError:
    """What an engine gave for a segment, or that it is none of what engines may give."""
    if isinstance(result, VoicemillError) or (isinstance(result, np.ndarray) and result.ndim):
        return result
    return InvalidAudioError(f"The engine gave a {type(result).__name__}, not a row of floats.")


def check(samples: Samples) -> None:
    """The gate: raise unless these are samples that can be heard.

    ``InvalidAudioError``: not one-dimensional floats, none, or not finite.
    ``SilentAudioError``: the peak is below -60 dBFS.
    """
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise InvalidAudioError(
            f"The engine gave an array of {samples.dtype} with shape {samples.shape}, "
            "not one row of floats."
        )
    if not samples.size:
        raise InvalidAudioError("The engine gave no samples.")
    peak = max(float(samples.max()), -float(samples.min()))
    if not np.isfinite(peak):
        raise InvalidAudioError("The engine gave samples that are not finite.")
    if peak < SILENCE_PEAK:
        raise SilentAudioError(
            f"The engine gave {samples.size} samples of silence (a peak of {peak:.2g})."
        )


def join(pieces: Sequence[Samples], sample_rate: int, gap_seconds: float = GAP_SECONDS) -> Samples:
    """The pieces one after another, faded at their edges, ``gap_seconds`` of silence between."""
    gap = np.zeros(round(gap_seconds * sample_rate), np.float32)
    parts: list[Samples] = []
    for piece in pieces:
        if parts:
            parts.append(gap)
        parts.append(faded(piece, sample_rate))
    return np.concatenate(parts) if parts else gap[:0]


def joined_seconds(
    pieces: Sequence[Samples], sample_rate: int, gap_seconds: float = GAP_SECONDS
) -> float:
    """How long they are once they are joined."""
    gaps = max(0, len(pieces) - 1) * round(gap_seconds * sample_rate)
    return (sum(len(piece) for piece in pieces) + gaps) / sample_rate


def faded(samples: Samples, sample_rate: int) -> Samples:
    """A copy that starts and ends at zero, by half a cosine of 5 ms."""
    faded = samples.astype(np.float32)
    length = min(round(FADE_SECONDS * sample_rate), faded.size // 2)
    ramp = (0.5 - 0.5 * np.cos(np.pi * np.arange(length) / max(length, 1))).astype(np.float32)
    faded[:length] *= ramp
    faded[faded.size - length :] *= ramp[::-1]
    return faded


def file_rate(sample_rate: int, response_format: str) -> int:
    """The rate (Hz) that a file of this format has for samples at ``sample_rate``.

    The next higher one that the format takes, else its highest.
    """
    rates = RATES_HZ.get(response_format)
    if rates is None:
        return sample_rate
    return next((rate for rate in rates if rate >= sample_rate), rates[-1])


def encode(samples: Samples, sample_rate: int, response_format: str) -> bytes:
    """A whole audio file, at ``file_rate``; samples outside [-1, 1] are clamped, never wrapped.

    It lasts as long as the samples, but for the padding of mp3 and 10 ms that Opus needs.
    """
    rate = file_rate(sample_rate, response_format)
    if rate != sample_rate:
        samples = soxr.resample(samples, sample_rate, rate)
    if response_format == "opus":
        samples = np.pad(samples, (0, round(OPUS_TAIL_SECONDS * rate)))
    container, subtype = CONTAINERS[response_format]
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", rate, 1, subtype, format=container) as file:
        for start in range(0, samples.size, ENCODE_BLOCK_SAMPLES):
            file.write(np.clip(samples[start : start + ENCODE_BLOCK_SAMPLES], -1.0, 1.0))
    return buffer.getvalue()

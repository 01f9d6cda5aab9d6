"""Clips that pass for speech, made of bursts of a buzz; each pitch makes another."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import soundfile

TEXT = "Good morning from the harbour."
RATE = 24000


def buzz(seconds: float = 3.0, hz: float = 140.0, *, rate: int = RATE) -> np.ndarray:
    """Syllables and pauses in turn, over a little noise."""
    times = np.arange(round(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * hz * n * times) / n for n in range(1, 6))
    envelope = np.clip(np.sin(2 * np.pi * 2.0 * times), 0.0, 1.0)
    noise = np.random.default_rng(1).normal(0.0, 0.0005, len(times))
    return (0.2 * tone * envelope + noise).astype(np.float32)


def clip(seconds: float = 3.0, hz: float = 140.0, **changes: Any) -> bytes:
    """The bytes of a file with it."""
    return encoded(buzz(seconds, hz, rate=changes.get("rate", RATE)), **changes)


def encoded(samples: np.ndarray, *, rate: int = RATE, kind: str = "WAV") -> bytes:
    """Samples as the bytes of a file."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind)
    return file.getvalue()

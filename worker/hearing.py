"""What a recogniser hears in a clip, against what is said to be in it.

``python -m worker.hearing MODEL LANGUAGE TRANSCRIPT`` reads a WAV file from standard input and
answers with a line of JSON: a process of its own, so that the recogniser's memory goes with it.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import unicodedata
from dataclasses import asdict, dataclass
from pathlib import Path

LONGEST_SECONDS = 20.0
"""For one clip, with the time that the model loads."""
UNSPACED = frozenset({"zh", "yue", "ja", "th", "lo", "km", "my"})
"""Languages whose words are not told apart in writing: their signs are compared."""
SPOKEN_CATEGORIES = ("L", "N", "M")


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard, or why nothing could be."""

    text: str = ""
    error_rate: float | None = None
    """Share of the words (of signs, in some languages) that differ from the transcript."""
    unable: str | None = None


def hear(wav: bytes, transcript: str, language: str, model: Path) -> Heard:
    """Have a recogniser hear a clip; ``model`` is a folder that faster-whisper reads."""
    command = (sys.executable, "-m", "worker.hearing", str(model), language, transcript)
    try:
        ended = subprocess.run(
            command, input=wav, capture_output=True, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Heard(unable=f"the recogniser took longer than {LONGEST_SECONDS:g} s")
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Heard(unable=f"the recogniser failed: {last[:200]}")
    return Heard(**json.loads(ended.stdout))


def recognised(wav: bytes, transcript: str, language: str, model: Path) -> Heard:
    """The same, in this process."""
    try:
        from faster_whisper import WhisperModel  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return Heard(unable="the extra `verify` is not installed")
    whisper = WhisperModel(
        str(model), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True
    )
    spoken = language.partition("-")[0].lower()
    if spoken not in whisper.supported_languages:
        return Heard(unable=f"the recogniser does not know the language {spoken!r}")
    parts, _ = whisper.transcribe(io.BytesIO(wav), language=spoken, beam_size=5)
    text = " ".join(part.text.strip() for part in parts)
    return Heard(text, error_rate(transcript, text, spoken))


def error_rate(transcript: str, heard: str, language: str) -> float:
    """Share of the words or signs of a transcript that were heard otherwise."""
    import jiwer

    wanted, found = plain(transcript), plain(heard)
    if language in UNSPACED:
        return float(jiwer.cer(wanted.replace(" ", ""), found.replace(" ", "")))
    return float(jiwer.wer(wanted, found))


def plain(text: str) -> str:
    """What is said of a text: without case, without punctuation."""
    kept = (
        one if unicodedata.category(one).startswith(SPOKEN_CATEGORIES) else " "
        for one in unicodedata.normalize("NFKC", text).casefold()
    )
    return " ".join("".join(kept).split())


if __name__ == "__main__":
    folder, tag, said = sys.argv[1:]
    found = recognised(sys.stdin.buffer.read(), said, tag, Path(folder))
    sys.stdout.write(json.dumps(asdict(found)) + "\n")

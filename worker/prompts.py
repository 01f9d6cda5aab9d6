"""Whether a clip and its transcript can make a voice. Pure, but for the decoder."""

from __future__ import annotations

import hashlib
import io
import logging
import unicodedata
from pathlib import Path

import numpy as np
import soundfile  # type: ignore[import-untyped]

from voicemill.enrolment import BEST_SECONDS, LEAST_SECONDS, MOST_SECONDS, Clip, EnrolledVoice
from voicemill.errors import (
    PromptClippedError,
    PromptLengthError,
    PromptNoisyError,
    PromptSampleRateError,
    PromptSilentError,
    PromptTextImplausibleError,
    PromptTextMismatchError,
    PromptUndecodableError,
)
from voicemill.store import WaitingPrompt
from worker.audio import encode
from worker.engines.base import Samples
from worker.hearing import hear

logger = logging.getLogger(__name__)

LEAST_RATE_HZ, MOST_RATE_HZ = 16_000, 192_000
MOST_CHANNELS = 8
FRAME_SECONDS = 0.02
SILENT_DB = -45.0
"""Of the louder frames, against full scale."""
FULL_SCALE = 0.99
CLIPPED_RUN = 3
"""Samples in a row at full scale that were cut off rather than reached."""
MOST_CLIPPED = 0.001
LEAST_SPEECH_TO_NOISE_DB = 15.0
LOUD, QUIET = 95, 5
"""Percentiles of frames that are taken for speech and for noise."""
PAUSE_DB = 30.0
"""A frame so much below the loud ones is no speech."""
LEAST_LETTERS_PER_SECOND, MOST_LETTERS_PER_SECOND = 3.0, 35.0
"""Of speech; a syllable sign counts for three letters."""
LETTERS_OF_A_SIGN = 3
MOST_HEARD_OTHERWISE = 0.5
"""Share of the words of a transcript: recognisers mishear, and numbers are written in two ways."""
MOST_QUOTED = 200
MOST_TRIES = 3
"""Of reading one clip."""
SIGNS = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL")


def checked(prompt: WaitingPrompt, recogniser: Path | None = None) -> tuple[Clip, bytes]:
    """The clip of a good prompt, and its file; raises ``PromptAudioInvalidError``.

    With the model of a ``recogniser``, the transcript has to be what that hears.
    """
    if prompt.tries > MOST_TRIES:
        raise PromptUndecodableError(
            f"{MOST_TRIES} times the process that read the prompt audio ended over it; send "
            "another file."
        )
    samples, rate = read_prompt(prompt.upload)
    check_prompt(samples, rate, prompt.voice.prompt_text)
    data = encode(samples, rate, "wav")
    differs = None if recogniser is None else check_heard(data, prompt.voice, recogniser)
    clip = Clip(
        sha256=hashlib.sha256(data).hexdigest(),
        duration_seconds=round(len(samples) / rate, 6),
        sample_rate=rate,
        size_bytes=len(data),
        transcript_error_rate=differs,
    )
    return clip, data


def check_heard(wav: bytes, voice: EnrolledVoice, recogniser: Path) -> float | None:
    """Share of a transcript that a recogniser hears otherwise; nothing where it can't tell.

    Raises ``PromptTextMismatchError`` where that is too much.
    """
    heard = hear(wav, voice.prompt_text, voice.language, recogniser)
    if heard.error_rate is None:
        logger.warning("the transcript of %s is not checked: %s", voice.name, heard.unable)
        return None
    if heard.error_rate > MOST_HEARD_OTHERWISE:
        raise PromptTextMismatchError(
            f"The transcript is not what is said in the prompt audio: {shorter(heard.text)!r} was "
            "heard. Give every word that is said in it, and no others."
        )
    return round(heard.error_rate, 3)


def shorter(text: str) -> str:
    """A text, or its beginning."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}…"


def read_prompt(data: bytes) -> tuple[Samples, int]:
    """The clip in one channel, and its sample rate (Hz).

    No more is decoded than a prompt may have. Raises ``PromptUndecodableError``,
    ``PromptSampleRateError`` and ``PromptLengthError``.
    """
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            check_header(file.samplerate, file.channels)
            samples = file.read(int((MOST_SECONDS + 1) * file.samplerate), "float32", True)
            rate = file.samplerate
    except (soundfile.LibsndfileError, TypeError, ValueError) as error:
        raise PromptUndecodableError(
            "The prompt audio can't be read; send a wav, flac, mp3 or ogg file."
        ) from error
    check_length(len(samples) / rate)
    mono: Samples = samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(mono).all():
        raise PromptUndecodableError("The prompt audio has samples that are no numbers.")
    return mono, rate


def check_header(rate: int, channels: int) -> None:
    """Raise for a clip that need not be decoded."""
    if channels > MOST_CHANNELS:
        raise PromptUndecodableError(f"The prompt audio has {channels} channels; send one or two.")
    if not LEAST_RATE_HZ <= rate <= MOST_RATE_HZ:
        raise PromptSampleRateError(
            f"The prompt audio has {rate} samples a second; {LEAST_RATE_HZ} or more are needed. "
            "Record it anew, since resampling adds nothing."
        )


def check_length(seconds: float) -> None:
    """Raise for a clip that no engine takes."""
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        least, most = BEST_SECONDS
        length = f"over {MOST_SECONDS:g}" if seconds > MOST_SECONDS else f"{seconds:.1f}"
        raise PromptLengthError(
            f"The prompt audio lasts {length} s; {LEAST_SECONDS:g} to {MOST_SECONDS:g} s can be "
            f"used, and {least:g} to {most:g} s are best."
        )


def check_prompt(samples: Samples, rate: int, text: str) -> None:
    """Raise the ``PromptAudioInvalidError`` of a clip that would make a bad voice.

    ``samples`` are mono, in [-1, 1], at ``rate`` Hz; ``text`` is what is said in them.
    """
    levels = levels_db(samples, rate)
    loud, quiet = np.percentile(levels, [LOUD, QUIET])
    if loud < SILENT_DB:
        raise PromptSilentError(
            f"The prompt audio is silent: {loud:.0f} dB at its loudest. Is it the right file?"
        )
    clipped = clipped_share(samples)
    if clipped > MOST_CLIPPED:
        raise PromptClippedError(
            f"{clipped:.1%} of the prompt audio is cut off at full scale; record it less loud."
        )
    if loud - quiet < LEAST_SPEECH_TO_NOISE_DB:
        raise PromptNoisyError(
            f"The speech of the prompt is {loud - quiet:.0f} dB above its quietest parts; "
            f"{LEAST_SPEECH_TO_NOISE_DB:g} dB are needed. Record it in a quiet room, without music."
        )
    check_text(text, float(np.sum(levels > loud - PAUSE_DB)) * FRAME_SECONDS)


def check_text(text: str, seconds: float) -> None:
    """Raise for a transcript that can't have been said in so many seconds of speech."""
    pace = letters(text) / seconds
    if LEAST_LETTERS_PER_SECOND <= pace <= MOST_LETTERS_PER_SECOND:
        return
    much = "long" if pace > MOST_LETTERS_PER_SECOND else "short"
    raise PromptTextImplausibleError(
        f"The transcript is too {much} for the {seconds:.1f} s of speech in the prompt audio; "
        "give every word that is said in it, and no others."
    )


def letters(text: str) -> int:
    """How long a text is to say, in letters of an alphabet."""
    return sum(
        LETTERS_OF_A_SIGN if unicodedata.name(one, "").startswith(SIGNS) else 1
        for one in text
        if one.isalnum()
    )


def levels_db(samples: Samples, rate: int) -> Samples:
    """The level of each frame against full scale."""
    size = int(FRAME_SECONDS * rate)
    frames = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64)
    power = np.square(frames).mean(axis=1)
    levels: Samples = 10 * np.log10(np.maximum(power, 1e-10))
    return levels


def clipped_share(samples: Samples) -> float:
    """The share of samples that stand at full scale with others in a row."""
    full = np.abs(samples) >= FULL_SCALE
    edges = np.flatnonzero(np.diff(np.concatenate(([False], full, [False])).astype(np.int8)))
    runs = edges[1::2] - edges[::2]
    return float(runs[runs >= CLIPPED_RUN].sum() / len(samples))

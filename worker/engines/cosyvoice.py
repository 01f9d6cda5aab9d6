"""CosyVoice 3 and 2 by a local checkout and model folder: cloned voices, instructions, dialects.

Options:

``checkout``       folder of upstream's repository, submodules included (needed)
``model_dir``      folder of a CosyVoice 3 or 2 model (needed; nothing is downloaded)
``voices_dir``     folder of voices of its own: ``NAME.wav`` with ``NAME.txt`` or ``NAME.json``
``language``       BCP 47 tag of the voices that don't say theirs; ``zh`` by default
``fp16``           compute in half precision; needs CUDA, and goes not with ``trt`` in version 3
``trt``            the TensorRT plan that was built in the model folder; needs CUDA
``vllm``           the vLLM export that was built in the model folder; needs CUDA
``threads``        torch threads on the CPU; 1 by default, since each core has its own child

The device is the first one that CUDA shows. Nothing is written into the model folder.
"""

from __future__ import annotations

import gc
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voicemill.errors import (
    EnginePoisonedError,
    PromptAudioInvalidError,
    SynthesisError,
    UnsupportedCharactersError,
)
from voicemill.voices import HOW_TO_ENROL, Capabilities
from worker.cached_memory import CachedMemory
from worker.engines import features, torch_memory
from worker.engines.base import Prompt, Samples, Segment, SynthesisOptions
from worker.engines.cosy import instructions, needs, prompts, texts
from worker.engines.cosy.options import CosyVoiceOptions
from worker.engines.cosy.upstream import Upstream, open_model
from worker.engines.cosy.watched import WatchedModel
from worker.engines.torch_memory import named_faults
from worker.missing import Missing

logger = logging.getLogger(__name__)

MOST_TOKENS = 80
"""Text tokens of one piece, as upstream's own splitter has them; about 20 s of speech."""
KEPT_VOICES = 64
"""Of the folder."""
HEARD = "heard"
"""What the model calls a voice until we have taken it from there."""
SEEDS = 2**32
LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class Timbre:
    """A voice as the model knows it."""

    features: Mapping[str, Any]
    """Inputs of the model, on the host."""
    language: str
    has_transcript: bool


@dataclass(frozen=True, slots=True)
class Manner:
    """How all the pieces of one call are spoken."""

    features: Mapping[str, Any]
    """Inputs of the model that stay the same from piece to piece."""
    prefix: str
    """Goes before the text of every piece."""
    speed: float
    keeps_markup: bool
    is_katakana: bool


class CosyVoiceEngine:
    """One piece at a time, since the model can't keep two calls apart."""

    _upstream: Upstream
    _watched: WatchedModel
    _markup: texts.Markup
    _options: CosyVoiceOptions
    _capabilities: Capabilities
    _is_emptied = False

    def missing(self, options: Mapping[str, Any], python: Path | None) -> list[Missing]:
        """What checkout, model folder and Python lack, before anything is loaded."""
        return needs.missing(options, python)

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load the model, and read what voices there are."""
        self._options = chosen = CosyVoiceOptions.read(options)
        own = prompts.read_folder(chosen.voices_dir, chosen.language, chosen.version)
        self._own = {voice.name: voice for voice in own}
        self._of_folder: OrderedDict[str, Timbre] = OrderedDict()
        self._enrolled: dict[str, Timbre] = {}
        self._upstream = open_model(chosen)
        self._watched = WatchedModel(self._upstream, trt=chosen.trt)
        tokenizer = self._upstream.model.frontend.tokenizer
        self._markup = texts.Markup(control_tokens(tokenizer.special_tokens))
        if not own:
            logger.warning("cosyvoice has no voice of its own. %s", HOW_TO_ENROL)
        self._capabilities = Capabilities(
            engine="cosyvoice",
            model_revision=f"{chosen.model_revision()}-{prompts.digest(own)}",
            sample_rate=self._upstream.model.sample_rate,
            voices=tuple(voice.voice(chosen.version) for voice in own),
            min_speed=0.5,
            max_speed=2.0,
            seed=True,
            instructions=True,
            cloning=True,
            cloning_languages=(*prompts.LANGUAGES[chosen.version], *prompts.OWN_LANGUAGES),
            options=instructions.named_options(chosen.version),
            max_batch=1,
            best_segment_characters=100,
            max_segment_characters=texts.MOST_CHARACTERS,
            engine_licence=LICENCE,
            model_licence=LICENCE,
        )
        return self._capabilities

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak the segments one by one; those that can't be said come back as their errors."""
        if not batch:
            return []
        manner = self._manner(voice, options)
        return [self._outcome(segment, manner) for segment in batch]

    def enrol(self, voice: str, prompt: Prompt) -> None:
        """Have the model hear a prompt; what it makes of it is kept on the host."""
        self._enrolled[voice] = self._heard(prompt)

    def forget(self, voice: str) -> None:
        """Let go of what the model made of a prompt."""
        self._enrolled.pop(voice, None)

    def after_batch(self) -> None:
        """Give CUDA back the memory that torch holds and does not use."""
        if self._upstream.torch.cuda.is_available():
            with named_faults():
                self._upstream.torch.cuda.empty_cache()
            self._is_emptied = True

    def unload(self) -> None:
        """Let go of the model and of the voices, and give CUDA back what they took."""
        torch = self._upstream.torch
        self._of_folder.clear()
        self._enrolled.clear()
        self._upstream.leave_path()
        del self._upstream, self._watched
        # The model and what watches it hold each other.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def cached_memory(self) -> CachedMemory | None:
        """How well torch uses what it holds of the device; nothing on the CPU."""
        cuda = self._upstream.torch.cuda
        if not cuda.is_available():
            return None
        return torch_memory.cached_memory(cuda.memory_stats(), is_emptied=self._is_emptied)

    def _manner(self, voice: str, options: SynthesisOptions) -> Manner:
        version = self._options.version
        timbre = self._enrolled.get(voice) or self._own_timbre(voice)
        inputs = timbre.features
        language = options.language or timbre.language
        free = options.instructions and self._markup.disarmed(options.instructions)
        asked = instructions.instruction(version, options.named, free)
        prefix = ""
        if asked is not None:
            # The clip's own words would be spoken, or win over the instruction.
            inputs = without(inputs, "llm_prompt_speech_token")
            tokens, count = self._tokens(instructions.prompt_of(version, asked))
            inputs = {**inputs, "prompt_text": tokens, "prompt_text_len": count}
        elif not timbre.has_transcript or base(language) != base(timbre.language):
            inputs = without(inputs, "llm_prompt_speech_token", "prompt_text")
            prefix = instructions.with_prefix(version, "")
        return Manner(
            features=inputs,
            prefix=prefix,
            speed=options.speed,
            keeps_markup=bool(options.named.get(instructions.MARKUP)),
            is_katakana=version == 3 and base(language) == "ja",
        )

    def _own_timbre(self, voice: str) -> Timbre:
        """Of a voice of the folder; those last used are kept."""
        kept = self._of_folder
        if voice not in kept:
            self._capabilities.voice(voice)
            self._own[voice].refuse_changed()
            kept[voice] = self._heard(self._own[voice].prompt)
        kept.move_to_end(voice)
        while len(kept) > KEPT_VOICES:
            kept.popitem(last=False)
        return kept[voice]

    def _heard(self, prompt: Prompt) -> Timbre:
        kept = features.read(prompt.features)
        if kept is None:
            heard = self._hear(prompt)
            features.keep(prompt.features, {name: one.numpy() for name, one in heard.items()})
        else:
            heard = {name: self._upstream.torch.tensor(one) for name, one in kept.items()}
        return Timbre(heard, prompt.language, has_transcript=bool(prompt.text))

    def _hear(self, prompt: Prompt) -> dict[str, Any]:
        model = self._upstream.model
        said = self._markup.disarmed(prompt.text)
        text = instructions.with_prefix(self._options.version, said)
        try:
            with named_faults():
                model.add_zero_shot_spk(text, str(prompt.audio), HEARD)
                made = model.frontend.spk2info.pop(HEARD)
                return {name: tensor.cpu() for name, tensor in made.items()}
        except (AssertionError, OSError, ValueError) as error:
            raise PromptAudioInvalidError(
                f"The model refuses the clip: {type(error).__name__}: {error}"
            ) from error

    def _outcome(self, segment: Segment, manner: Manner) -> Samples | SynthesisError:
        try:
            return self._speak(segment, manner)
        except EnginePoisonedError:
            raise
        except SynthesisError as error:
            # A new one, since the traceback of this one holds on to the memory of the call.
            failed = type(error)(error.message)
        self.after_batch()
        return failed

    def _speak(self, segment: Segment, manner: Manner) -> Samples:
        if manner.is_katakana:
            texts.refuse_japanese_script(segment.text)
        text = self._markup.disarmed(segment.text, keep=manner.keeps_markup)
        # Every fresh process starts from the same state, so chance is never left to it.
        seed = secrets.randbelow(SEEDS) if segment.seed is None else segment.seed
        self._is_emptied = False
        spoken = [
            self._speak_piece(piece, manner, (seed + position) % SEEDS)
            for position, piece in enumerate(texts.pieces(text, self._count, MOST_TOKENS))
        ]
        if not spoken:
            raise UnsupportedCharactersError("The text holds no letter and no digit.")
        return np.concatenate(spoken)

    def _speak_piece(self, piece: str, manner: Manner, seed: int) -> Samples:
        tokens, count = self._tokens(manner.prefix + piece)
        given = {**manner.features, "text": tokens, "text_len": count}
        words = self._count(piece)
        return self._watched.speak(given, text_tokens=words, speed=manner.speed, seed=seed)

    def _tokens(self, text: str) -> tuple[Any, Any]:
        tokens, count = self._upstream.model.frontend._extract_text_token(text)
        return tokens, count

    def _count(self, text: str) -> int:
        return len(self._upstream.model.frontend.tokenizer.encode(text))


def without(features: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Inputs of the model without some, and without their lengths."""
    dropped = {*names, *(f"{name}_len" for name in names)}
    return {name: value for name, value in features.items() if name not in dropped}


def control_tokens(special: Mapping[str, Any]) -> list[str]:
    """The tokens that a tokenizer of the checkout was given beside its vocabulary."""
    lists = [one if isinstance(one, list) else [one] for one in special.values()]
    return [token for tokens in lists for token in tokens]


def base(language: str) -> str:
    """A tag without its region."""
    return language.split("-")[0].lower()

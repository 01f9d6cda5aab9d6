"""One CosyVoice, asked for one piece at a time, and watched while it speaks."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from voicemill.errors import InvalidAudioError, SynthesisError, VoicemillError
from worker.engines.base import Samples
from worker.engines.cosy.upstream import Upstream, own_chance
from worker.engines.torch_memory import fault_of

SESSIONS = ("tts_speech_token_dict", "llm_end_dict", "hift_cache_dict")
"""Where the model keeps what belongs to one call; it forgets to clear them when a call fails."""
MOST_FRAMES, MOST_FRAMES_TRT = 15_000, 3_000
"""Mel frames of a prompt and a piece together: of the flow's noise, of the TensorRT profile."""
FEWEST_TOKENS_A_TOKEN, MOST_TOKENS_A_TOKEN = 1.25, 20
"""Speech tokens (25 a second) for a token of text: below, words are missing; there, upstream
cuts what it speaks off."""
LEAST_ROOM_TOKENS = 50
"""That many at least, since 0.8 s is too short for some words of one token."""


@dataclass(slots=True)
class Run:
    """One call of the model."""

    text_tokens: int
    speech_tokens: int = 0
    most_tokens: int = 0
    failure: Exception | None = None
    """What its thread met."""
    has_thread: bool = False
    ended: threading.Event = field(default_factory=threading.Event)
    """That thread is through."""


class WatchedModel:
    """Holds the model to what it should do: one call at a time, nothing swallowed, nothing kept."""

    def __init__(self, upstream: Upstream, *, trt: bool) -> None:
        self._upstream = upstream
        self._model = model = upstream.model.model
        self._most_frames = MOST_FRAMES_TRT if trt else MOST_FRAMES
        self._llm_job, self._token2wav = model.llm_job, model.token2wav
        self._inference = model.llm.inference
        model.llm_job, model.token2wav = self._heard_job, self._checked_flow
        model.llm.inference = self._counted_inference
        self._run = Run(0)

    def speak(
        self, given: Mapping[str, Any], *, text_tokens: int, speed: float, seed: int
    ) -> Samples:
        """Mono float32 of shape (samples,) for the inputs of one piece.

        Raises ``InvalidAudioError`` where words are missing or the piece is over what the model
        takes, ``OutOfMemoryError``, ``EnginePoisonedError``, and ``SynthesisError`` for the rest.
        """
        self._settle()
        self._run = run = Run(text_tokens)
        parts: list[Any] = []
        speech = self._model.tts(**given, stream=False, speed=speed)
        try:
            with own_chance(self._upstream.torch):
                self._upstream.seed_all(seed)
                parts.extend(part["tts_speech"] for part in speech)
        except VoicemillError:
            raise
        # Upstream raises anything, and so do torch and TensorRT below it.
        except Exception as error:
            raise by_name(error) from error
        finally:
            speech.close()
            for name in SESSIONS:
                getattr(self._model, name).clear()
            run.failure = None
        samples: Samples = np.concatenate([part.cpu().numpy()[0] for part in parts])
        return np.clip(samples, -1.0, 1.0).astype(np.float32, copy=False)

    def _settle(self) -> None:
        """Wait for the thread of an interrupted call, which ends at its next token."""
        # Not by joining it: Python takes a thread whose join was interrupted for ended.
        if self._run.has_thread:
            self._run.ended.wait()
            # What it ended with holds on to the memory of its call.
            self._run.failure = None

    def _heard_job(self, *args: Any, **kwargs: Any) -> None:
        run = self._run
        run.has_thread = True
        try:
            self._llm_job(*args, **kwargs)
        # Upstream raises anything, and nobody would hear of it: this is a thread of its own.
        except Exception as error:  # noqa: BLE001
            run.failure = error
        finally:
            run.ended.set()

    def _counted_inference(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        run = self._run
        count = kwargs["text"].shape[1]
        ratio = max(MOST_TOKENS_A_TOKEN, -(-LEAST_ROOM_TOKENS // count))
        run.most_tokens = ratio * count
        for token in self._inference(*args, **kwargs, max_token_text_ratio=ratio):
            run.speech_tokens += 1
            yield token

    def _checked_flow(self, *args: Any, **kwargs: Any) -> Any:
        run = self._run
        if run.failure is not None:
            raise by_name(run.failure) from run.failure
        check_tokens(run)
        ratio = self._model.flow.token_mel_ratio
        frames = kwargs["prompt_feat"].shape[1] + ratio * kwargs["token"].shape[1]
        if frames > self._most_frames:
            raise InvalidAudioError(
                f"The prompt and the piece have {frames} frames together, and the model takes "
                f"{self._most_frames}; enrol the voice with a shorter clip."
            )
        return self._token2wav(*args, **kwargs)


def check_tokens(run: Run) -> None:
    """Raise ``InvalidAudioError`` unless there is speech for all of the text."""
    if not run.speech_tokens:
        raise InvalidAudioError("CosyVoice gave no speech tokens.")
    if run.speech_tokens >= run.most_tokens:
        raise InvalidAudioError(
            f"CosyVoice did not end: it was cut off after {run.speech_tokens} speech tokens, "
            "and what follows is missing."
        )
    if run.speech_tokens < FEWEST_TOKENS_A_TOKEN * run.text_tokens:
        raise InvalidAudioError(
            f"CosyVoice ended too early: {run.speech_tokens} speech tokens for "
            f"{run.text_tokens} of text can't hold all of its words."
        )


def by_name(error: Exception) -> SynthesisError:
    """An error of the model by our name: its kind and place, since its words may hold the text."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        place = f" at {Path(frame.f_code.co_filename).name}:{line}"
    return fault_of(error) or SynthesisError(
        f"CosyVoice failed with {type(error).__name__}{place}."
    )

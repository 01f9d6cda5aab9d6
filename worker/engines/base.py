"""The contract every engine keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from voicemill.errors import SettingsError, SynthesisError
from voicemill.options import OptionValue
from voicemill.voices import Capabilities
from worker.cached_memory import CachedMemory

Samples = npt.NDArray[np.float32]

WARM_UP_CALLS = 2
"""Calls to ``synthesize`` that a child makes before it takes work."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of an item's text, short enough for one pass of the engine."""

    text: str
    seed: int | None = None
    """What chance in its speech is drawn by, 0 to 2**32 - 1; without one, the engine is free."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """How all the segments of one call are to be spoken."""

    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    named: Mapping[str, OptionValue] = field(default_factory=dict)
    """Values of the ``options`` that the engine declares: those that the item sets, checked."""


class Engine(Protocol):
    """Turns segments into samples. One instance lives in one child process."""

    def load(self, options: Mapping[str, Any]) -> Capabilities:
        """Load the weights once; ``options`` are ``VOICEMILL_ENGINE_OPTIONS``.

        Raises ``SettingsError`` for an option that is not known or can't be used.
        """

    def synthesize(
        self, batch: Sequence[Segment], voice: str, options: SynthesisOptions
    ) -> list[Samples | SynthesisError]:
        """Speak each segment: mono float32 of shape (samples,) in [-1, 1] at the declared rate.

        The list has one entry per segment, in order: its samples, or the
        ``SynthesisError`` that this segment alone met. An error that ends the
        whole call is raised; ``docs/engines.md`` says which error has which effect.
        """

    def after_batch(self) -> None:
        """Called between batches; give back what can be given back."""

    def unload(self) -> None:
        """Give back all that ``load`` took; nothing is asked of it after this but ``load``."""


@runtime_checkable
class ReportsDeviceMemory(Protocol):
    """What an engine may offer beside: its own figure, for where the driver's is not known."""

    def device_bytes(self) -> int | None:
        """Device memory that it holds, its CUDA context included."""


@runtime_checkable
class SparesMemory(Protocol):
    """What an engine may offer beside: that it went on where memory ran out, in smaller batches."""

    def memory_failures(self) -> int:
        """How many times it had to, since it was loaded."""


@runtime_checkable
class CachesDeviceMemory(Protocol):
    """What an engine may offer beside: how well its allocator uses what it holds."""

    def cached_memory(self) -> CachedMemory | None:
        """What its caching allocator holds of the device; nothing where it holds nothing."""


@runtime_checkable
class HasProcesses(Protocol):
    """What an engine may offer beside: the processes that it works in, this one not among them."""

    def pids(self) -> frozenset[int]:
        """Those that run now."""

    def is_lost(self) -> bool:
        """Whether one has ended without which it can't go on."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a voice is cloned from."""

    audio: Path
    """A mono WAV of 16 bits, at 16 kHz or more, of 1 to 30 seconds."""
    text: str
    """What is said in it."""
    language: str
    """BCP 47 tag."""
    features: Path | None = None
    """Where what is made of it may be kept, as ``worker.engines.features`` does; for this revision
    of the model alone, and gone with the voice."""


@runtime_checkable
class ClonesVoices(Protocol):
    """What an engine that declares ``cloning`` offers beside: voices made of prompts.

    No two of its methods run at once, but not all are called by the same thread.
    """

    def enrol(self, voice: str, prompt: Prompt) -> None:
        """Make of a prompt what ``synthesize`` needs to speak in a voice of this name.

        Two voices may have the same text or the same audio: only their names tell them apart.
        Raises ``PromptAudioInvalidError`` for a prompt that it can't use, for good.
        """

    def forget(self, voice: str) -> None:
        """Give back all that ``enrol`` made of this voice, if it is there.

        ``synthesize`` raises ``VoiceNotFoundError`` for it from now on.
        """


def refusal(name: str, value: Any, remedy: str) -> SettingsError:
    """What is wrong with an option."""
    return SettingsError(
        f"VOICEMILL_ENGINE_OPTIONS: {name}={value!r} can't be used; give {remedy}."
    )


def refuse_unknown(engine: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise ``SettingsError`` for an option that the engine does not know."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        names = ", ".join(sorted(known)) or "none"
        raise SettingsError(
            f"VOICEMILL_ENGINE_OPTIONS: {engine} has no option {unknown[0]!r}; it has: {names}."
        )

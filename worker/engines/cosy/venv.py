"""Make the Python that CosyVoice runs in: a virtual environment with the packages it asks for.

``python -m worker.engines.cosy.venv --checkout DIR --venv DIR``; ``make venv-cosyvoice`` calls it.
Left out: what only trains models, and the parts that were not asked for. ``torch`` is asked for
unless others are named; ``trt`` brings TensorRT, and ``vllm`` vLLM, over the versions of the rest.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from worker.engines.cosy.packages import (
    KEPT_BY_VLLM,
    LIST,
    PARTS,
    TRAINS_ONLY,
    VLLM,
    Requirements,
)

BUILDS_FROM_SOURCE = ("openai-whisper",)
"""A source package that needs an old setuptools, and does not say so."""
OLD_SETUPTOOLS = "setuptools<81"
ANOTHER_PYTHON = (
    "CosyVoice asks for Python 3.10: name yours by PYTHON310=PATH, or get one with: "
    "uv python install 3.10"
)
INSTALL = ("-m", "pip", "install", "--disable-pip-version-check")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 made, 1 not made, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.engines.cosy.venv", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--checkout", required=True, type=Path)
    parser.add_argument("--venv", required=True, type=Path, help="its folder, made anew")
    parser.add_argument("--python", default="python3.10", help="default: python3.10")
    parser.add_argument("--parts", default="torch", help="some of: torch trt vllm")
    asked = parser.parse_args(arguments)
    parts, checkout = asked.parts.split(), asked.checkout.expanduser()
    if unknown := sorted(set(parts) - PARTS.keys()):
        parser.error(f"there is no part {unknown[0]!r}; there are: {' '.join(PARTS)}")
    try:
        requirements = Requirements.read(checkout)
    except OSError as error:
        return failed(
            f"{checkout / LIST} can't be read: {error.strerror}; set COSYVOICE_DIR to a "
            "checkout of CosyVoice."
        )
    python = asked.venv.absolute() / "bin/python"
    try:
        subprocess.run([asked.python, "-m", "venv", "--clear", asked.venv], check=True)
    except (OSError, subprocess.CalledProcessError):
        return failed(f"{asked.python} makes no virtual environment. {ANOTHER_PYTHON}")
    try:
        for step in steps(requirements, parts):
            subprocess.run([str(python), *INSTALL, *step], check=True)
    except subprocess.CalledProcessError as error:
        return failed(f"Not made. What failed, and says why above: {shlex.join(error.cmd)}")
    sys.stdout.write("".join(f"{line}\n" for line in summary(python, requirements, parts)))
    return 0


def steps(requirements: Requirements, parts: Collection[str]) -> Iterator[list[str]]:
    """What pip is told, call by call."""
    chosen = [*requirements.chosen(parts)]
    indexes = [word for line in requirements.indexes for word in line.split()]
    old = [one.line for one in chosen if one.name in BUILDS_FROM_SOURCE]
    if old:
        yield [OLD_SETUPTOOLS, "wheel"]
        yield ["--no-deps", "--no-build-isolation", *old]
    # The engine's process needs numpy whatever the list says.
    yield [*indexes, "numpy", *(one.line for one in chosen)]
    if "vllm" in parts:
        yield [VLLM, *(one.line for one in chosen if one.name in KEPT_BY_VLLM)]


def summary(python: Path, requirements: Requirements, parts: Collection[str]) -> Iterator[str]:
    """What was made, what was left out, and what to do with it."""
    yield f"Made {python}, with the packages of CosyVoice."
    chosen = {one.name for one in requirements.chosen(parts)}
    for one in requirements.packages:
        if one.name in TRAINS_ONLY:
            yield f"Left out: {one.line} (trains models only)."
        elif one.name not in chosen:
            yield f"Left out: {one.line} (PARTS='torch trt vllm' brings it)."
    if "vllm" not in parts:
        yield f"Left out: {VLLM} (PARTS='torch trt vllm' brings it)."
    yield f"VOICEMILL_ENGINE_PYTHON={python}"


def failed(message: str) -> int:
    """Say why on standard error."""
    sys.stderr.write(f"{message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

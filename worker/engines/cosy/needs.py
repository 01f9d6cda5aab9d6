"""All that ``cosyvoice`` lacks on this machine, found before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from voicemill.errors import SettingsError
from worker.engines.cosy.options import (
    UPSTREAM,
    VERSIONS,
    CosyVoiceOptions,
    download,
    missing_of_checkout,
    missing_of_model,
)
from worker.engines.cosy.packages import OF_OPTIONS, Requirements
from worker.environment import environment_of_another
from worker.missing import Missing

ANYWHERE = "/srv"
ASK = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""
PATIENCE_SECONDS = 60.0


def missing(options: Mapping[str, Any], python: Path | None) -> list[Missing]:
    """What to bring, and the options that can't be used; ``python`` is the engine's own."""
    of_engine = python or Path(sys.executable)
    return [*of_options(options, of_engine), *of_python(options, of_engine)]


def of_options(options: Mapping[str, Any], python: Path) -> Iterator[Missing]:
    """What is not where the options say, and what else the engine would refuse in them."""
    try:
        chosen = CosyVoiceOptions.parse(options)
    except SettingsError as error:
        found = [*of_checkout(options), *of_model(options, python), *of_voices(options)]
        yield from found or [Missing.told_by(error)]
    else:
        yield from chosen.missing_files(python)


def of_checkout(options: Mapping[str, Any]) -> Iterator[Missing]:
    """What is missing of the checkout."""
    path = folder(options, "checkout")
    if path is None:
        where = options.get("checkout") or f"{ANYWHERE}/CosyVoice"
        command = f"git clone --recursive {UPSTREAM} {where}"
        yield Missing(named(options, "checkout", "a checkout of CosyVoice"), "", command)
        return
    yield from missing_of_checkout(path)


def of_model(options: Mapping[str, Any], python: Path) -> Iterator[Missing]:
    """What is missing of the model."""
    path = folder(options, "model_dir")
    if path is None:
        where = Path(str(options.get("model_dir") or f"{ANYWHERE}/Fun-CosyVoice3-0.5B"))
        command = download(where, VERSIONS[0], python)
        yield Missing(named(options, "model_dir", "a model of CosyVoice"), "", command)
        return
    version = next((one for one in VERSIONS if (path / f"cosyvoice{one}.yaml").is_file()), None)
    yield from missing_of_model(path, version or VERSIONS[0], python)


def of_voices(options: Mapping[str, Any]) -> Iterator[Missing]:
    """Whether the folder of voices, where one is named, is there."""
    if options.get("voices_dir") and folder(options, "voices_dir") is None:
        where = options["voices_dir"]
        yield Missing(named(options, "voices_dir", "a folder of voices"), "", f"mkdir -p {where}")


def of_python(options: Mapping[str, Any], python: Path) -> Iterator[Missing]:
    """The modules that the engine's Python does not have."""
    checkout = folder(options, "checkout")
    if checkout is None or not python.is_file():
        return
    parts = [part for part in OF_OPTIONS if options.get(part) is True]
    command = f"make venv-cosyvoice COSYVOICE_DIR={checkout}"
    if parts:
        command += f" PARTS='{' '.join(['torch', *parts])}'"
    try:
        modules = [*Requirements.read(checkout).modules(), *(OF_OPTIONS[part] for part in parts)]
        absent = modules_not_found(python, modules)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield Missing(f"The packages of {python} can't be looked at: {error}", "", command)
        return
    if absent:
        yield Missing(f"packages for {python}: {', '.join(absent)}", "", command)


def folder(options: Mapping[str, Any], name: str) -> Path | None:
    """The folder that an option names, if it is one."""
    value = options.get(name)
    path = Path(value).expanduser() if isinstance(value, str) and value else None
    return path if path is not None and path.is_dir() else None


def named(options: Mapping[str, Any], name: str, what: str) -> str:
    """What is missing where an option names no folder, or nothing at all."""
    value = options.get(name)
    return f"{value}, {what}" if value else f"{what} (option {name})"


def modules_not_found(python: Path, modules: Sequence[str]) -> list[str]:
    """Those that a Python does not have; raises ``OSError`` or ``SubprocessError``."""
    done = subprocess.run(
        [python, "-I", "-c", ASK, *modules],
        capture_output=True,
        env=environment_of_another(python),
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    absent: list[str] = json.loads(done.stdout)
    return absent

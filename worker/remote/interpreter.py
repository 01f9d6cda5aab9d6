"""Whether another Python can run an engine, and what to do where it can't."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from voicemill.errors import SettingsError
from worker.environment import environment_of_another

OLDEST = (3, 10)
NEEDS = "numpy"
ASK = f"""
import importlib.util, json, sys
print(json.dumps([sys.version_info[:2], importlib.util.find_spec({NEEDS!r}) is not None]))
"""
PATIENCE_SECONDS = 30.0


def refuse_unfit(python: Path) -> None:
    """Raise ``SettingsError`` unless this is an interpreter that an engine can be run by."""
    if not python.is_file():
        raise unfit(python, f"is not there; make it with: {venv(python)}")
    if not os.access(python, os.X_OK):
        raise unfit(python, f"can't be executed; allow it with: chmod +x {python}")
    version, has_numpy = answer_of(python)
    if version < OLDEST:
        raise unfit(
            python,
            f"is Python {dotted(version)}, and {dotted(OLDEST)} is the oldest that will do; make "
            f"it anew with: {venv(python)}",
        )
    if not has_numpy:
        raise unfit(python, f"has no {NEEDS}; install it with: {python} -m pip install {NEEDS}")


def answer_of(python: Path) -> tuple[tuple[int, ...], bool]:
    """Its version, and whether it has what it needs."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", ASK],
            capture_output=True,
            env=environment_of_another(python),
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        version, has_numpy = json.loads(done.stdout)
        return tuple(version), bool(has_numpy)
    except (OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
        raise unfit(
            python, f"does not answer as Python 3 does; make one with: {venv(python)}"
        ) from error


def unfit(python: Path, why: str) -> SettingsError:
    """What is wrong with it, and what to do."""
    return SettingsError(f"VOICEMILL_ENGINE_PYTHON={str(python)!r} {why}")


def venv(python: Path) -> str:
    """The command that makes such an interpreter."""
    folder = python.parent.parent
    return f"python{dotted(OLDEST)} -m venv --clear {folder} && {python} -m pip install {NEEDS}"


def dotted(version: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))

"""What an engine has made of a prompt, kept on disk: arrays by name, whole or not at all.

A file that is damaged counts as none. Nothing in it is ever executed: numpy's format, no pickles.
"""

from __future__ import annotations

import logging
import os
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)

SUFFIX = ".npz"


def read(path: Path | None) -> dict[str, Any] | None:
    """The arrays that were kept; nothing where there are none, or none that can be trusted."""
    if path is None:
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        logger.warning("%s can't be used and is made anew: %s", path.name, error)
        return None


def keep(path: Path | None, arrays: Mapping[str, Any]) -> None:
    """Keep arrays for the next process; where that can't be done, it makes them itself."""
    if path is None:
        return
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        logger.warning("%s is not kept: %s", path.name, error)
        with suppress(OSError):
            part.unlink(missing_ok=True)

"""Which model the ``transformers`` engine loads, from where, and onto what."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from transformers.utils import cached_file

from worker.engines.base import refusal, refuse_unknown
from worker.environment import thread_share

CONFIG = "config.json"
FILES = (CONFIG, "vocab.json")
COUNTS = ("threads", "max_batch", "window")
SWITCHES = ("compile", "allow_download")
AUTOCASTS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
LICENCE = re.compile(r"^licen[cs]e:\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
WINDOW_BATCHES = 4


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What to load, and onto what; see ``worker.engines.transformers``."""

    model_path: str
    folder: Path
    """Where its files are."""
    device: str
    threads: int = field(default_factory=thread_share)
    max_batch: int = 8
    window: int | None = None
    language: str | None = None
    autocast: str | None = None
    compile: bool = False
    allow_download: bool = False

    @property
    def segments_per_call(self) -> int:
        """Segments to choose batches from; of one batch on the CPU, where each takes long."""
        on_cuda = self.device.startswith("cuda")
        return self.window or self.max_batch * (WINDOW_BATCHES if on_cuda else 1)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> ModelOptions:
        """Raises ``SettingsError`` naming the option that can't be used."""
        known = {one.name for one in fields(cls)} - {"folder"}
        refuse_unknown("transformers", options, known)
        for name in COUNTS:
            count = options.get(name, 1)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise refusal(name, count, "a whole number of 1 or more")
        for name in SWITCHES:
            if not isinstance(options.get(name, False), bool):
                raise refusal(name, options[name], "true or false")
        if options.get("autocast") not in {None, *AUTOCASTS}:
            raise refusal("autocast", options["autocast"], f"one of {', '.join(AUTOCASTS)}")
        path = options.get("model_path")
        folder = find(path, may_download=options.get("allow_download", False))
        device = options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu")
        return cls(**{**options, "folder": folder, "device": device})


def find(path: Any, *, may_download: bool) -> Path:
    """The folder of a model: as named, or in the user's hub cache; raises ``SettingsError``."""
    if isinstance(path, str) and all((Path(path) / one).is_file() for one in FILES):
        return Path(path)
    wanted = f"a folder with a VITS model, {' and '.join(FILES)} in it"
    if not isinstance(path, str) or not HUB_NAME.fullmatch(path) or Path(path).exists():
        raise refusal("model_path", path, wanted)
    try:
        config = cached_file(path, CONFIG, local_files_only=not may_download)
    except (OSError, ValueError) as error:
        raise refusal(
            "model_path", path, f"{wanted}, or a model of the hub that is in the cache ({error})"
        ) from error
    return Path(str(config)).parent


def revision(folder: Path) -> str:
    """A short name that changes when the folder's configuration or the size of its weights does."""
    digest = hashlib.sha256((folder / CONFIG).read_bytes())
    for weights in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        digest.update(f"{weights.name} {weights.stat().st_size}".encode())
    return digest.hexdigest()[:12]


def licence(folder: Path) -> str | None:
    """What the model's card says."""
    card = folder / "README.md"
    found = LICENCE.search(card.read_text("utf-8", "replace")) if card.is_file() else None
    return found[1] if found else None

"""What was found of a device, for people and for programs. Pure, but for the file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    ok: bool
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    table: str = ""
    """Of its figures, in Markdown, where they are many."""


def line(name: str, found: Finding) -> str:
    """What a person reads of a check."""
    told = f"{'ok    ' if found.ok else 'FAILED'} {name:12}{found.text}"
    return f"{told}\n\n{found.table}\n" if found.table else told


def as_json(device: str, seconds: float, findings: Mapping[str, Finding]) -> str:
    """All figures, in one line."""
    ok = all(found.ok for found in findings.values())
    checks = {name: {"ok": found.ok, **found.figures} for name, found in findings.items()}
    return json.dumps({"ok": ok, "device": device, "seconds": round(seconds, 1), "checks": checks})


def as_page(device: str, seconds: float, findings: Mapping[str, Finding]) -> str:
    """All of it, as a Markdown page."""
    parts = [f"# {device}", *(line(name, found) for name, found in findings.items())]
    parts.append(f"```json\n{as_json(device, seconds, findings)}\n```")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def write(path: Path, text: str) -> None:
    """Replace a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.rename(path)

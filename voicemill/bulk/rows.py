"""What one row of a table asks for. Pure."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voicemill.errors import InputError, MissingFieldError, UnsupportedFeatureError
from voicemill.formats import RESPONSE_FORMATS
from voicemill.jobs import check_custom_id, default_custom_id
from voicemill.text import check_text

DEFAULT_FORMAT = "wav"
MIN_SPEED, MAX_SPEED = 0.25, 4.0


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why a row got no audio."""

    code: str
    message: str
    retryable: bool = False

    @classmethod
    def of(cls, error: InputError) -> RowFault:
        """The fault that an error of a field makes."""
        return cls(error.code, error.message)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A clip that a row is to be spoken like."""

    path: Path
    text: str
    """What is said in it."""
    language: str
    """BCP 47 tag of what is said in it."""
    sha256: str = ""
    """Of the file."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of the input file."""

    id: str
    line: int
    """Physical line it starts on, from 1."""
    record: int
    """Data record, from 1."""
    cells: tuple[str, ...]
    """Its cells, in the order of ``Table.columns``."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What is asked of the server, less ``custom_id``; empty for a row with a fault."""
    fault: RowFault | None = None
    """Set when the row is not worth sending."""
    prompt: Prompt | None = None
    """What takes the place of a voice."""

    @property
    def response_format(self) -> str:
        """The audio format, which is also the file's extension."""
        return str(self.request.get("response_format", DEFAULT_FORMAT))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what is asked: rows with equal ones would get the same treatment."""
        asked = dict(self.request)
        if self.prompt is not None:
            asked["prompt"] = [self.prompt.sha256, self.prompt.text, self.prompt.language]
        canonical = json.dumps(asked, ensure_ascii=True, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def to_input(self) -> dict[str, Any]:
        """The row as one of a job's ``inputs``."""
        return {"custom_id": self.id, **self.request}


def read_row(named: Mapping[str, str], *, line: int, record: int, cells: tuple[str, ...]) -> Row:
    """The row that the known columns ``named`` describe, with its first fault if it has one."""
    custom_id = named.get("id", "") or default_custom_id(record - 1)
    try:
        request, prompt = read_request(named), read_prompt(named)
        check_custom_id(custom_id)
    except InputError as error:
        return Row(custom_id, line, record, cells, fault=RowFault.of(error))
    return Row(custom_id, line, record, cells, request, prompt=prompt)


def read_request(named: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the API's input that a row sets; blank cells set nothing."""
    check_text(named["text"])
    request: dict[str, Any] = {"input": named["text"]}
    for name in ("model", "voice", "language"):
        if value := named.get(name, "").strip():
            request[name] = value
    if instructions := named.get("instructions", ""):
        request["instructions"] = instructions
    if speed := named.get("speed", "").strip():
        request["speed"] = read_speed(speed)
    if seed := named.get("seed", "").strip():
        request["seed"] = read_seed(seed)
    if response_format := named.get("response_format", "").strip().lower():
        request["response_format"] = read_format(response_format)
    return request


def read_prompt(named: Mapping[str, str]) -> Prompt | None:
    """The clip that a row brings, if it brings one."""
    names = ("prompt_audio", "prompt_text", "prompt_language", "language", "voice")
    path, text, own, general, voice = (named.get(name, "").strip() for name in names)
    if not path and not text:
        return None
    if not path or not text:
        missing = "prompt_text" if path else "prompt_audio"
        raise MissingFieldError(f"{missing} is blank; a clip and what is said in it go together.")
    if voice:
        raise InputError("A row has a voice or a prompt_audio, not both.")
    if not own and not general:
        raise MissingFieldError("prompt_language is blank: give that of the clip, such as en.")
    return Prompt(Path(path), text, own or general)


def read_speed(text: str) -> float:
    """A factor of the voice's own speed."""
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InputError(
            f"speed {text[:40]!r} can't be used: give a number from {MIN_SPEED:g} to {MAX_SPEED:g}."
        )
    return speed


def read_seed(text: str) -> int:
    """A whole number that makes a sampling engine repeatable."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InputError(f"seed {text[:40]!r} can't be used: give a whole number of 0 or more.")
    return int(text)


def read_format(text: str) -> str:
    """One of the audio formats."""
    if text not in RESPONSE_FORMATS:
        raise UnsupportedFeatureError(
            f"response_format {text[:40]!r} can't be used: give one of "
            f"{', '.join(RESPONSE_FORMATS)}."
        )
    return text

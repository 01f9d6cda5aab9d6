"""Errors as records of a frame: each comes out as it went in, with its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voicemill.errors import SynthesisError, VoicemillError, leaves
from worker.engines.torch_memory import fault_of

SAID = ("code", "title", "http_status", "retryable", "redraws")


def record_of(error: BaseException) -> dict[str, Any]:
    """The record of what an engine raised.

    What is none of our errors goes by its type's name alone: its message may hold what was to be
    spoken.
    """
    if not isinstance(error, VoicemillError):
        unknown = f"{type(error).__name__} was raised while the item was spoken."
        error = fault_of(error) or SynthesisError(unknown)
    kind = next(code for code, one in known() if isinstance(error, one))
    said = {name: getattr(error, name, None) for name in SAID}
    return {"kind": kind, "message": error.message, **said}


def error_of(record: Mapping[str, Any]) -> VoicemillError:
    """The error that a record tells of; one that only the engine knows is the nearest of ours."""
    kind = dict(known())[record["kind"]]
    error = kind.__new__(kind)
    VoicemillError.__init__(error, record["message"])
    own = {name: record[name] for name in SAID if record[name] != getattr(kind, name, None)}
    vars(error).update(own)
    return error


def known() -> list[tuple[str, type[VoicemillError]]]:
    """Our errors and their codes, a root after what comes of it; each code once."""
    ours = [one for one in leaves() if one.__module__.partition(".")[0] == "voicemill"]
    codes = {one.code: one for one in reversed(ours)}
    return sorted(codes.items(), key=lambda pair: -len(pair[1].__mro__))

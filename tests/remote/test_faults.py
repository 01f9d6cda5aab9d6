"""Errors over the wire."""

from __future__ import annotations

import json

import pytest

from voicemill.errors import (
    EnginePoisonedError,
    InputError,
    SettingsError,
    SynthesisError,
    VoicemillError,
    leaves,
)
from worker.remote.faults import error_of, record_of

SECRET = "what a user wrote"


def sent(error: BaseException) -> VoicemillError:
    return error_of(json.loads(json.dumps(record_of(error))))


@pytest.mark.parametrize("kind", [SynthesisError, EnginePoisonedError, SettingsError, InputError])
def test_an_error_comes_out_as_it_went_in(kind: type[VoicemillError]) -> None:
    error = sent(kind("It is so."))
    assert type(error) is kind
    assert (error.message, str(error)) == ("It is so.", "It is so.")
    assert vars(error) == {"message": "It is so."}


def test_every_code_is_kept() -> None:
    ours = [one for one in leaves() if one.__module__.startswith("voicemill.errors")]
    assert len(ours) > 30
    for kind in ours:
        error = kind.__new__(kind)
        VoicemillError.__init__(error, "It is so.")
        found = sent(error)
        assert (found.code, found.retryable, found.http_status, found.title) == (
            kind.code,
            kind.retryable,
            kind.http_status,
            kind.title,
        )


def test_what_is_none_of_ours_goes_by_its_type_alone() -> None:
    error = sent(LookupError(SECRET))
    assert type(error) is SynthesisError
    assert error.message == "LookupError was raised while the item was spoken."


def test_python_s_want_of_memory_is_ours() -> None:
    assert sent(MemoryError()).code == "out_of_memory"

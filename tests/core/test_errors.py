"""The error tree: every failure has one stable name, one status, and a sentence for people."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from voicemill import errors, transport
from voicemill.bulk import errors as bulk_errors

HTTP_STATUSES = {400, 401, 404, 405, 409, 410, 413, 415, 416, 422, 429, 500, 502, 503}
MODULES = (errors, transport, bulk_errors)
"""Where errors are defined; importing them makes the tree whole."""
ERRORS = [error for error in errors.leaves() if error.__module__.startswith("voicemill.")]

every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)


def test_every_code_belongs_to_one_class_only() -> None:
    named_here = [error for error in ERRORS if "code" in vars(error)]
    twice = [code for code, count in Counter(one.code for one in named_here).items() if count > 1]
    assert twice == []


def test_errors_live_in_the_modules_that_the_documentation_reads() -> None:
    named = tuple(one.__name__ for one in MODULES)
    assert [one for one in ERRORS if not one.__module__.startswith(named)] == []


@every_error
def test_an_error_has_a_name_a_status_and_a_meaning(error: type[errors.VoicemillError]) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
    assert error.__name__.endswith("Error")
    assert error.title
    assert not error.title.endswith(".")
    assert error.http_status in HTTP_STATUSES
    assert error.__doc__
    assert error.__doc__.splitlines()[0].endswith(".")


def test_what_may_pass_by_itself_says_so_and_what_a_client_must_change_does_not() -> None:
    retryable = {error.code for error in ERRORS if error.retryable}
    assert {"store_unavailable", "store_refused", "not_ready", "worker_lost"} <= retryable
    assert not retryable & {
        "invalid_input",
        "no_speakable_text",
        "voice_not_found",
        "job_not_found",
    }


@pytest.mark.parametrize(
    "error", list(errors.leaves(errors.InputError)), ids=lambda error: error.code
)
def test_an_error_of_a_field_becomes_a_fault_at_its_place(error: type[errors.InputError]) -> None:
    assert error.http_status == 422
    fault = error("It can't be used.").at("/inputs/3/voice")
    assert fault == errors.Fault(error.code, "It can't be used.", "/inputs/3/voice")


def test_one_fault_speaks_for_itself_and_several_are_counted() -> None:
    one = errors.Fault("voice_not_found", "There is no voice 'x'.", "/voice")
    two = errors.Fault("missing_field", "The field 'inputs' is missing.", "/inputs")
    assert errors.InvalidInputError([one]).message == "There is no voice 'x'."
    both = errors.InvalidInputError([one, two])
    assert both.message == "2 things are wrong with the input."
    assert both.faults == [one, two]


def test_the_message_is_what_str_gives() -> None:
    assert str(errors.OutputError("The disk is full.")) == "The disk is full."

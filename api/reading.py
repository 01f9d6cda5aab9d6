"""Bodies and queries: read as JSON, checked field by field, every fault reported at once."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from flask import Request
from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from api.requests import MAX_BODY_BYTES, MAX_MEMBERS, Body, Query
from voicemill.errors import (
    Fault,
    InputError,
    InvalidInputError,
    InvalidTextError,
    MissingFieldError,
    PayloadTooLargeError,
    RequestError,
    UnknownFieldError,
    UnsupportedMediaTypeError,
)

BodyT = TypeVar("BodyT", bound=Body)
QueryT = TypeVar("QueryT", bound=Query)


def read_json(request: Request) -> Any:
    """The body as JSON; raises the ``RequestError`` that says why it can't be read."""
    if not request.is_json:
        raise UnsupportedMediaTypeError("Send the body with Content-Type: application/json.")
    if request.content_encoding not in {None, "", "identity"}:
        raise UnsupportedMediaTypeError("Send the body without a Content-Encoding.")
    data = read_body(request)
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=read_object)
    except UnicodeDecodeError as error:
        raise RequestError(f"The body is not UTF-8 (byte {error.start}).") from error
    except json.JSONDecodeError as error:
        raise RequestError(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(
            "The body is JSON with a number too long or nesting too deep."
        ) from error


def read_body(request: Request) -> bytes:
    """The whole body; raises the ``RequestError`` that says why it did not come."""
    try:
        data = request.get_data()
    except ParseException as error:
        raise RequestError("The body comes in chunks that are not well formed.") from error
    length = request.content_length
    if length is not None and len(data) < length:
        raise RequestError(f"The body broke off after {len(data)} of {length} bytes.")
    # A body that comes in chunks, without a length, is cut at the limit and not refused.
    if length is None and len(data) >= MAX_BODY_BYTES:
        raise PayloadTooLargeError(f"The body is over {MAX_BODY_BYTES} bytes; split the job.")
    return data


def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object of a sane size; which of two equal keys was meant nobody can tell."""
    if len(pairs) > MAX_MEMBERS:
        raise RequestError(
            f"The body has an object with {len(pairs)} members; {MAX_MEMBERS} is the most."
        )
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise RequestError(f"The body has an object with the key {twice[:80]!r} twice.")
    return found


def read_query(model: type[QueryT], request: Request) -> QueryT:
    """The query parameters; raises ``InvalidInputError``."""
    twice = [name for name, values in request.args.lists() if len(values) > 1]
    if twice:
        detail = f"The parameter {printable(twice[0])!r} is given more than once."
        raise InvalidInputError([Fault(InputError.code, detail)])
    try:
        return model.model_validate(request.args.to_dict())
    except ValidationError as error:
        # A pointer points into the body, so a parameter is only named.
        faults = [to_fault(one, "") for one in error.errors(include_url=False)]
        raise InvalidInputError([Fault(one.code, one.detail) for one in faults]) from error


def read_part(
    model: type[BodyT], raw: object, pointer: str, faults: list[Fault]
) -> tuple[BodyT | None, set[str]]:
    """A part of the body and the names of its fields that can't be used.

    Faults are added to ``faults``; the fields that are right are still given, so
    that whoever reads on can find the rest of what is wrong.
    """
    if not isinstance(raw, dict):
        faults.append(Fault(InputError.code, "A JSON object is needed here.", pointer))
        return None, set()
    known = {key: value for key, value in raw.items() if is_unicode(key)}
    for key in raw.keys() - known.keys():
        faults.append(unknown_field(key, pointer))
    try:
        return model.model_validate(known), set()
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    faults.extend(to_fault(one, pointer) for one in errors)
    bad = {str(one["loc"][0]) for one in errors if one["loc"]}
    names = {field.alias or name for name, field in model.model_fields.items()}
    good = {key: known[key] for key in names & known.keys() - bad}
    return model.model_construct(**good), bad


def is_unicode(text: str) -> bool:
    """False for text with a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_fault(error: ErrorDetails, pointer: str) -> Fault:
    """What pydantic found, in our words."""
    # Behind a wrong key of a mapping pydantic puts a part that is no place in the body.
    steps = [step for step in error["loc"] if step != "[key]"]
    name = printable(steps[-1]) if steps else "The value"
    place = pointer + "".join(f"/{escape(step)}" for step in steps)
    match error["type"]:
        case "missing":
            return Fault(MissingFieldError.code, f"The field {name!r} is missing.", place)
        case "extra_forbidden":
            return unknown_field(name, place.rpartition("/")[0])
        case InvalidTextError.code:
            return Fault(InvalidTextError.code, f"{name} {error['msg']}.", place)
    message = error["msg"]
    return Fault(InputError.code, f"{name}: {message[:1].lower()}{message[1:]}.", place)


def unknown_field(name: str, pointer: str) -> Fault:
    """A field that nobody reads, in the object at a pointer."""
    return Fault(
        UnknownFieldError.code,
        f"The field {printable(name)!r} is not known here.",
        f"{pointer}/{escape(name)}",
    )


def escape(step: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return printable(step).replace("~", "~0").replace("/", "~1")


def printable(step: str | int) -> str:
    """A key short and whole enough to be sent back."""
    return str(step)[:80].encode(errors="backslashreplace").decode()

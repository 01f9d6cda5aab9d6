"""Every error as one shape: RFC 9457 problem details."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from voicemill.errors import (
    InvalidInputError,
    MethodNotAllowedError,
    NoWorkersError,
    PayloadTooLargeError,
    RangeNotSatisfiableError,
    RequestError,
    RouteNotFoundError,
    UnsupportedMediaTypeError,
    VoicemillError,
)

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = {409: 1, 429: 10, 503: 2}
"""By status, for errors that the same request may outlive."""

SENTENCES: Final[dict[type[RequestError], str]] = {
    RouteNotFoundError: "Nothing is served at {path}; /docs lists what is.",
    MethodNotAllowedError: "{path} does not take {method}; see the Allow header.",
    PayloadTooLargeError: "The body is over {limit} bytes; send less at once.",
    UnsupportedMediaTypeError: "Send the body as application/json.",
    RangeNotSatisfiableError: "The Range header lies outside the audio; see Content-Range.",
}
BY_STATUS: Final = {kind.http_status: kind for kind in SENTENCES}
PASSED_ON: Final = frozenset({"Allow", "Content-Range", "Retry-After"})


def register(app: Flask) -> None:
    """Make the app answer every error with a problem."""
    app.register_error_handler(VoicemillError, answer_error)
    app.register_error_handler(HTTPException, answer_http_exception)
    app.register_error_handler(Exception, answer_unexpected)


def answer_error(error: VoicemillError) -> Response:
    """A failure that has a name."""
    if error.http_status >= 500 and not isinstance(error, NoWorkersError):
        logger.error("%s %s: %s: %s", request.method, request.path, error.code, error.message)
        # The log names hosts and causes; a client can do nothing with them.
        return problem(type(error)(f"{error.title}; try again, and look at /readyz."))
    return problem(error)


def answer_http_exception(error: HTTPException) -> Response:
    """A failure found by the framework, under our name for it."""
    status = error.code or 500
    headers = [(name, value) for name, value in error.get_headers() if name in PASSED_ON]
    if status >= 500:
        return problem(VoicemillError(f"The request failed: {error.name}."), headers, status)
    kind = BY_STATUS.get(status)
    if kind is None:
        return problem(RequestError(f"The request failed: {error.name}."), headers, status)
    sentence = SENTENCES[kind].format(
        path=request.path[:200],
        method=request.method,
        limit=current_app.config["MAX_CONTENT_LENGTH"],
    )
    return problem(kind(sentence), headers)


def answer_unexpected(error: Exception) -> Response:
    """A failure that is our fault: the traceback goes to the log, not to the client."""
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return problem(VoicemillError("The request failed on our side; the log of the API says why."))


def problem(
    error: VoicemillError, headers: Iterable[tuple[str, str]] = (), status: int | None = None
) -> Response:
    """The response for an error; ``status`` where it is not the error's own."""
    status = status or error.http_status
    body: dict[str, Any] = {
        "type": f"/problems/{error.code}",
        "title": error.title,
        "status": status,
        "detail": error.message,
        "code": error.code,
    }
    if isinstance(error, InvalidInputError):
        body["errors"] = [
            {"pointer": fault.pointer, "code": fault.code, "detail": fault.detail}
            for fault in error.faults
        ]
    response = Response(
        current_app.json.dumps(body, separators=(",", ":")), status, list(headers), MEDIA_TYPE
    )
    response.content_type = MEDIA_TYPE
    if status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="voicemill"'
    if error.retryable and status in RETRY_AFTER_SECONDS:
        response.headers.setdefault("Retry-After", str(RETRY_AFTER_SECONDS[status]))
    return response

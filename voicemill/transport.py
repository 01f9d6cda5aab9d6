"""Requests that are patient: retried as servers allow, refusals turned into errors."""

from __future__ import annotations

import email.utils
import hashlib
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from voicemill import __version__
from voicemill.errors import Fault, VoicemillError

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
COPY_BYTES = 1 << 16


class ClientError(VoicemillError):
    """The client could not do what was asked of it."""

    code = "client_error"
    title = "The client could not do this"


class ServerUnreachableError(ClientError):
    """No server answers at the URL, or it stopped answering."""

    code = "server_unreachable"
    title = "The server can't be reached"
    http_status = 503
    retryable = True


class AudioMismatchError(ClientError):
    """The bytes that arrived do not have the recorded sha256."""

    code = "audio_mismatch"
    title = "The audio arrived damaged"
    retryable = True


class ServerProblemError(ClientError):
    """The server answered with a problem; ``status``, ``code`` and ``faults`` are its own."""

    code = "server_problem"
    title = "The server refused"

    def __init__(
        self, message: str, *, status: int, code: str, faults: Sequence[Fault] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.faults = tuple(faults)
        # One class stands for every problem a server can name, so both are the instance's here.
        self.code = code  # type: ignore[misc]
        self.retryable = status in RETRIED_STATUSES  # type: ignore[misc]


class Transport:
    """One server, over HTTP. Threads may share it.

    A call that meets a broken connection or a busy server (429, 503) is tried
    again, as ``Retry-After`` says or with growing pauses, for at most
    ``patience_seconds``. Then it raises ``ServerUnreachableError`` or
    ``ServerProblemError``.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        patience_seconds: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._patience_seconds = patience_seconds
        self._given_up = threading.Event()
        address = address_of(self.url)
        headers = {"User-Agent": f"voicemill/{__version__}"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            self._http = httpx.Client(
                base_url=address,
                timeout=timeout_seconds,
                headers=headers,
                trust_env=not is_loopback(address),
                # Reading the certificates takes a tenth of a second, which plain HTTP need not pay.
                verify=address.scheme == "https",
            )
        # What httpx makes of a proxy in the environment that it can't speak to.
        except (ImportError, ValueError) as error:
            raise ClientError(f"The proxy in the environment can't be used: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def give_up(self) -> None:
        """Let no call try again, from any thread; those between two tries fail now."""
        self._given_up.set()

    def _delete(self, path: str, params: Mapping[str, str] | None = None) -> None:
        tries = count(1)

        def once() -> None:
            is_first = next(tries) == 1
            response = self._http.request("DELETE", path, params=params)
            if response.status_code == HTTPStatus.NOT_FOUND and not is_first:
                return
            if not response.is_success:
                raise RefusedError(response)

        self._patiently(once)

    def _download(self, url: str, name: str, path: Path, sha256: str | None) -> int:
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        try:
            size, digest = self._patiently(lambda: self._stream(url, part))
            if sha256 is not None and digest != sha256:
                raise AudioMismatchError(
                    f"The audio of {name} arrived with sha256 {digest}, "
                    f"the server recorded {sha256}."
                )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return size

    def _stream(self, url: str, part: Path) -> tuple[int, str]:
        digest = hashlib.sha256()
        with self._http.stream("GET", url) as response, part.open("wb") as file:
            if response.is_error:
                response.read()
                raise RefusedError(response)
            for block in response.iter_bytes(COPY_BYTES):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return file.tell(), digest.hexdigest()

    def _json(self, method: str, path: str, **request: Any) -> Any:
        def once() -> Any:
            response = self._http.request(method, path, **request)
            if not response.is_success:
                raise RefusedError(response)
            try:
                return response.json()
            except ValueError as error:
                raise not_voicemill(response) from error

        return self._patiently(once)

    def _patiently(self, once: Callable[[], T]) -> T:
        """What ``once`` gives, trying again for as long as the patience lasts."""
        give_up = time.monotonic() + self._patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return once()
            except RefusedError as refusal:
                error: ClientError = problem_of(refusal.response)
                delay = retry_after_seconds(refusal.response)
            except httpx.TransportError as fault:
                reason = str(fault).rstrip(".") or type(fault).__name__
                error = ServerUnreachableError(f"No answer from {self.url}: {reason}.")
                delay = None
            if delay is None:
                delay = pause * random.uniform(0.5, 1.0)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            if not error.retryable or time.monotonic() + delay > give_up:
                raise error
            logger.info("trying again in %.1f s: %s", delay, error.code)
            if self._given_up.wait(delay):
                raise error


class RefusedError(Exception):
    """Carries an answer that is not a success up to the one place that judges it."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def problem_of(response: httpx.Response) -> ServerProblemError:
    """The error that a problem+json answer (RFC 9457) tells of."""
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        return not_voicemill(response)
    faults = [
        Fault(fault.get("code", ""), fault.get("detail", ""), fault.get("pointer", ""))
        for fault in problem.get("errors") or []
    ]
    return ServerProblemError(
        problem.get("detail") or problem.get("title") or str(problem["code"]),
        status=response.status_code,
        code=str(problem["code"]),
        faults=faults,
    )


def not_voicemill(response: httpx.Response) -> ServerProblemError:
    """The error for an answer that no Voicemill server gives (a proxy, another service)."""
    return ServerProblemError(
        f"{response.request.method} {response.url} answered {response.status_code} "
        "in a way Voicemill does not; is the URL right?",
        status=response.status_code,
        code="unexpected_answer",
    )


def retry_after_seconds(response: httpx.Response) -> float | None:
    """What ``Retry-After`` asks for: seconds, or a date; nothing when it says neither."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - time.time())


def address_of(url: str) -> httpx.URL:
    """The URL, taken apart; raises ``ClientError`` for one that no server can have."""
    with suppress(httpx.InvalidURL):
        address = httpx.URL(url)
        if address.scheme in {"http", "https"} and address.host:
            return address
    raise ClientError(f"{url!r} is no address of a server; give http://HOST:PORT.")


def is_loopback(url: httpx.URL) -> bool:
    """True for a server on this machine, which no proxy of the environment can reach."""
    return url.host in {"127.0.0.1", "::1", "localhost"}

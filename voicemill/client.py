"""The HTTP client: what a program elsewhere needs to have text spoken.

VoicemillError
└── ClientError
    ├── ServerUnreachableError   no answer, for as long as we were willing to wait
    ├── ServerProblemError       the server answered with a problem; ``code`` is the server's
    └── AudioMismatchError       the audio that arrived is not the audio that was recorded
"""

from __future__ import annotations

import email.utils
import hashlib
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from voicemill import __version__
from voicemill.answers import Item, ItemPage, Job, Model, Voice
from voicemill.errors import Fault, VoicemillError

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRIED_STATUSES = frozenset({429, 502, 503, 504})
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
COPY_BYTES = 1 << 16
LOOK_SECONDS = 0.2
"""Between two looks at a prompt that is being checked."""


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


class Client:
    """One Voicemill server, over HTTP. Threads may share it.

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

    def models(self) -> list[Model]:
        """Every model the server knows."""
        models: list[Model] = self._json("GET", "/v1/models")["data"]
        return models

    def voices(self) -> list[Voice]:
        """Every voice the server knows."""
        voices: list[Voice] = self._json("GET", "/v1/voices")["data"]
        return voices

    def enrol_voice(
        self,
        prompt_audio: Path,
        prompt_text: str,
        *,
        language: str,
        name: str | None = None,
        consent: str = "",
        description: str = "",
    ) -> Voice:
        """Enrol a voice that is cloned from a clip and what is said in it; ready when it returns.

        Without a name it is unlisted, and kept as long as the jobs that use its id as their voice.
        A prompt that can't be used raises ``ServerProblemError``, whose ``faults`` say why.
        """
        fields = {
            "prompt_text": prompt_text,
            "language": language,
            "consent": consent,
            "description": description,
            **({"unlisted": "true"} if name is None else {"name": name}),
        }
        files = {"prompt_audio": (prompt_audio.name, prompt_audio.read_bytes())}
        voice: Voice = self._json("POST", "/v1/voices", data=fields, files=files)
        give_up = time.monotonic() + self._patience_seconds
        while is_being_checked(voice) and time.monotonic() < give_up:
            self._given_up.wait(LOOK_SECONDS)
            voice = self.voice(voice["id"])
        enrolled = voice["enrolled"]
        error = enrolled and enrolled["error"]
        if error:
            raise ServerProblemError(
                error["message"], status=HTTPStatus.UNPROCESSABLE_ENTITY, code=error["code"]
            )
        if is_being_checked(voice):
            raise ClientError(
                f"The prompt of {voice['id']} is still not checked; is a clerk running?"
            )
        return voice

    def voice(self, voice_id: str) -> Voice:
        """One voice."""
        voice: Voice = self._json("GET", voice_path(voice_id))
        return voice

    def change_voice(self, voice_id: str, **said: str) -> Voice:
        """Change the ``description`` or the ``consent`` of a voice of yours."""
        voice: Voice = self._json("PATCH", voice_path(voice_id), json=said)
        return voice

    def delete_voice(self, voice_id: str) -> None:
        """Delete a voice of yours with its clip; items that still wait for it fail."""
        self._delete(voice_path(voice_id))

    def download_sample(self, voice_id: str, path: Path, *, sha256: str | None = None) -> int:
        """Write the clip of an enrolled voice to ``path``, as ``download`` does."""
        return self._download(f"{voice_path(voice_id)}/sample", voice_id, path, sha256)

    def create_job(
        self,
        inputs: Sequence[Mapping[str, Any]],
        *,
        metadata: Mapping[str, str] | None = None,
        **defaults: Any,
    ) -> Job:
        """Submit texts to speak: each input has ``input`` and what else the API takes.

        ``defaults`` (``voice``, ``speed``, …) hold for every input without its own; others, such as
        ``concatenate``, for the job.
        """
        body: dict[str, Any] = {**defaults, "inputs": list(inputs)}
        if metadata:
            body["metadata"] = dict(metadata)
        # The same key over all tries of this call lets a server that knows it make one job of them.
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        job: Job = self._json("POST", "/v1/jobs", json=body, headers=headers)
        return job

    def job(self, job_id: str, *, wait_seconds: float = 0.0) -> Job:
        """The job now, or as soon as it has ended if that is within ``wait_seconds``."""
        params = {"wait": f"{wait_seconds:g}"} if wait_seconds > 0 else None
        timeout = self._timeout_seconds + wait_seconds
        job: Job = self._json("GET", job_path(job_id), params=params, timeout=timeout)
        return job

    def cancel(self, job_id: str) -> Job:
        """Ask for the job to stop; its finished items stay."""
        job: Job = self._json("POST", f"{job_path(job_id)}/cancel")
        return job

    def retry(self, job_id: str) -> Job:
        """Run the failed items of a job that has ended once more."""
        params = {"run": self.job(job_id)["run"]}
        job: Job = self._json("POST", f"{job_path(job_id)}/retry", params=params)
        return job

    def delete(self, job_id: str, *, cancel: bool = False) -> None:
        """Delete a job with its audio and texts, one that goes on only with ``cancel``."""
        self._delete(job_path(job_id), params={"cancel": "true"} if cancel else None)

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

    def item_page(self, job_id: str, *, after: str | None = None, limit: int = 100) -> ItemPage:
        """The items that follow the one with custom_id ``after``."""
        params: dict[str, str] = {"limit": str(limit)}
        if after is not None:
            params["after"] = after
        page = self._json("GET", f"{job_path(job_id)}/items", params=params)
        return ItemPage(page["data"], page["has_more"])

    def items(self, job_id: str) -> Iterator[Item]:
        """Every item of the job, in its order, fetched page by page."""
        after = None
        while True:
            page = self.item_page(job_id, after=after, limit=1000)
            yield from page.items
            if not page.has_more or not page.items:
                return
            after = page.items[-1]["custom_id"]

    def download(
        self, job_id: str, custom_id: str, path: Path, *, sha256: str | None = None
    ) -> int:
        """Write an item's audio to ``path``, whole or not at all; gives its size in bytes.

        Raises ``AudioMismatchError`` when the bytes are not those of ``sha256``.
        """
        url = f"{job_path(job_id)}/items/{quote(custom_id, safe='')}/audio"
        return self._download(url, custom_id, path, sha256)

    def download_job(self, job_id: str, path: Path, *, sha256: str | None = None) -> int:
        """The same for the one file of a job that was created with ``concatenate=True``."""
        return self._download(f"{job_path(job_id)}/audio", job_id, path, sha256)

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


def job_path(job_id: str) -> str:
    """The path of a job."""
    return f"/v1/jobs/{quote(job_id, safe='')}"


def voice_path(voice_id: str) -> str:
    """The path of a voice."""
    return f"/v1/voices/{quote(voice_id, safe='')}"


def is_being_checked(voice: Voice) -> bool:
    """True while there is no verdict on the prompt of an enrolled voice."""
    return voice["enrolled"] is not None and voice["enrolled"]["status"] == "validating"


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

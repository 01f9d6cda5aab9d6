"""Sends recorded audio: whole or in part, and never what is not as it was recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from flask import Response, request, send_file
from werkzeug.exceptions import PreconditionFailed

from api.openapi import Answer
from api.problems import MEDIA_TYPE
from api.ranges import honoured
from api.shapes import ProblemBody
from voicemill.errors import AudioGoneError, AudioUnreadableError
from voicemill.formats import MEDIA_TYPES
from voicemill.jobs import ItemAudio, JobAudio
from voicemill.outputs import GONE

AUDIO_ANSWERS: Final[Mapping[int, Answer]] = {
    200: Answer(
        "The audio.",
        media_type="audio/*",
        headers={
            "ETag": "The sha256 of the audio.",
            "Content-Disposition": "A file name made of the id.",
        },
    ),
    412: Answer("The audio is not what If-Match says.", ProblemBody, MEDIA_TYPE),
    206: Answer("The part of the audio that Range asked for.", media_type="audio/*"),
    304: Answer("The audio is what If-None-Match says.", media_type="audio/*"),
}


class Recorded(Protocol):
    """Audio that was recorded with its digest."""

    @property
    def sha256(self) -> str:
        """Of its bytes."""

    @property
    def size_bytes(self) -> int:
        """How many they are."""


def send_audio(recorded: ItemAudio | JobAudio, name: str, response_format: str) -> Response:
    """The audio of what is called ``name``.

    Raises ``AudioGoneError`` and ``AudioUnreadableError``.
    """
    return send_recorded(recorded, Path(recorded.audio_path), name, response_format)


def send_recorded(recorded: Recorded, path: Path, name: str, response_format: str) -> Response:
    """The same of what is at a path."""
    try:
        if os.stat(path).st_size != recorded.size_bytes:
            raise gone(name)
        check_if_match(recorded.sha256)
        keep_honoured_range(recorded.size_bytes)
        return send_file(
            path,
            mimetype=MEDIA_TYPES[response_format],
            download_name=f"{name}.{response_format}",
            conditional=True,
            etag=recorded.sha256,
        )
    except OSError as error:
        if error.errno in GONE:
            raise gone(name) from error
        raise AudioUnreadableError(f"The audio of {name} can't be read: {error}.") from error


def check_if_match(etag: str) -> None:
    """Raise unless the audio is the one that the request wants, if it says so."""
    wanted = request.if_match
    request.environ.pop("HTTP_IF_MATCH", None)
    if wanted and not wanted.contains(etag):
        raise PreconditionFailed


def keep_honoured_range(size: int) -> None:
    """Leave the request the range that Werkzeug is to send, or none; HEAD has none."""
    asked = request.environ.pop("HTTP_RANGE", "")
    found = honoured(asked, size) if request.method == "GET" else None
    if found is not None:
        request.environ["HTTP_RANGE"] = found


def gone(name: str) -> AudioGoneError:
    """The audio was recorded, and what is at its path now is not it."""
    return AudioGoneError(f"The audio of {name} is no longer on disk; submit the text again.")

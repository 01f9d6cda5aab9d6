"""Items of a job, and their audio."""

from __future__ import annotations

import os

from flask import Blueprint, Response, jsonify, request, send_file
from werkzeug.exceptions import PreconditionFailed

from api.context import context
from api.jobs import find_job
from api.openapi import Answer, Operation, describe
from api.problems import MEDIA_TYPE
from api.ranges import honoured
from api.requests import ItemsQuery, read_query
from api.shapes import ItemBody, ListBody, ProblemBody
from api.wire import item_body, page
from voicemill.errors import (
    AudioGoneError,
    ItemNotFoundError,
    JobNotFoundError,
    NoAudioError,
    NotReadyError,
    RangeNotSatisfiableError,
)
from voicemill.jobs import MEDIA_TYPES, Item, ItemAudio, is_terminal

blueprint = Blueprint("items", __name__)


@blueprint.get("/v1/jobs/<job_id>/items")
@describe(
    Operation(
        summary="List the items of a job, in order",
        tag="items",
        query=ItemsQuery,
        answers={200: Answer("A page of items.", ListBody[ItemBody])},
        problems=(JobNotFoundError, ItemNotFoundError),
    )
)
def index(job_id: str) -> Response:
    """One page of the items."""
    query = read_query(ItemsQuery, request)
    job = find_job(job_id)
    after = -1
    if query.after is not None:
        after = find_item(job.id, query.after).input.index
    items = context().store.items(job.id, after=after, limit=query.limit + 1)
    shown = items[: query.limit]
    ids = [item.input.custom_id for item in shown]
    return jsonify(page([item_body(item) for item in shown], ids, has_more=len(items) > len(shown)))


@blueprint.get("/v1/jobs/<job_id>/items/<custom_id>")
@describe(
    Operation(
        summary="Look at one item",
        tag="items",
        answers={200: Answer("The item as it stands.", ItemBody)},
        problems=(JobNotFoundError, ItemNotFoundError),
    )
)
def show(job_id: str, custom_id: str) -> Response:
    """The item."""
    return jsonify(item_body(find_item(find_job(job_id).id, custom_id)))


@blueprint.get("/v1/jobs/<job_id>/items/<custom_id>/audio")
@describe(
    Operation(
        summary="Fetch the audio of an item",
        tag="items",
        answers={
            200: Answer(
                "The audio.",
                media_type="audio/*",
                headers={
                    "ETag": "The sha256 of the audio.",
                    "Content-Disposition": "A file name made of the custom_id.",
                },
            ),
            412: Answer("The audio is not what If-Match says.", ProblemBody, MEDIA_TYPE),
            206: Answer("The part of the audio that Range asked for.", media_type="audio/*"),
            304: Answer("The audio is what If-None-Match says.", media_type="audio/*"),
        },
        problems=(
            JobNotFoundError,
            ItemNotFoundError,
            NotReadyError,
            NoAudioError,
            AudioGoneError,
            RangeNotSatisfiableError,
        ),
    )
)
def audio(job_id: str, custom_id: str) -> Response:
    """The audio, whole or in part."""
    item = find_item(find_job(job_id).id, custom_id)
    recorded = recorded_audio(item)
    kind = item.input.response_format
    try:
        if os.stat(recorded.audio_path).st_size != recorded.size_bytes:
            raise gone(item)
        check_if_match(recorded.sha256)
        keep_honoured_range(recorded.size_bytes)
        return send_file(
            recorded.audio_path,
            mimetype=MEDIA_TYPES[kind],
            download_name=f"{item.input.custom_id}.{kind}",
            conditional=True,
            etag=recorded.sha256,
        )
    except OSError as error:
        raise gone(item) from error


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


def gone(item: Item) -> AudioGoneError:
    """The audio was recorded, and what is at its path now is not it."""
    return AudioGoneError(
        f"The audio of {item.input.custom_id} is no longer on disk; submit the text again."
    )


def find_item(job_id: str, custom_id: str) -> Item:
    """The item; raises ``ItemNotFoundError``."""
    return context().store.item(job_id, custom_id)


def recorded_audio(item: Item) -> ItemAudio:
    """The audio of an item that has one; raises ``NotReadyError`` or ``NoAudioError``."""
    if item.audio is not None:
        return item.audio
    custom_id = item.input.custom_id
    if not is_terminal(item.status):
        raise NotReadyError(f"The item {custom_id} is {item.status}; ask again later.")
    why = f": {item.error.code}" if item.error else ""
    raise NoAudioError(f"The item {custom_id} is {item.status}{why}; it has no audio.")

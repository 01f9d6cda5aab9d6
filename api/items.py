"""Items of a job, and their audio."""

from __future__ import annotations

import mimetypes
import os
from typing import Final

from flask import Blueprint, Response, jsonify, request, send_file

from api.context import context
from api.jobs import find_job
from api.openapi import Answer, Operation, describe
from api.requests import ItemsQuery, read_query
from api.wire import ItemBody, ListBody, item_body, page
from voicemill.errors import (
    AudioGoneError,
    ItemNotFoundError,
    JobNotFoundError,
    NoAudioError,
    NotReadyError,
    RangeNotSatisfiableError,
)
from voicemill.jobs import Item, ItemAudio, is_terminal

blueprint = Blueprint("items", __name__)

MEDIA_TYPES: Final = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "ogg": "audio/ogg",
}


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
        return send_file(
            recorded.audio_path,
            mimetype=MEDIA_TYPES.get(kind) or mimetypes.guess_type(recorded.audio_path)[0],
            download_name=f"{item.input.custom_id}.{kind}",
            conditional=True,
            etag=recorded.sha256,
        )
    except OSError as error:
        raise gone(item) from error


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

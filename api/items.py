"""Items of a job, and their audio."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from api.audio import AUDIO_ANSWERS, send_audio
from api.context import context
from api.jobs import find_job
from api.openapi import Answer, Operation, describe
from api.reading import read_query
from api.requests import (
    ItemsQuery,
)
from api.shapes import ItemBody, ListBody
from api.wire import item_body, page
from voicemill.errors import (
    AudioGoneError,
    AudioUnreadableError,
    ItemNotFoundError,
    JobNotFoundError,
    NoAudioError,
    NotReadyError,
    RangeNotSatisfiableError,
)
from voicemill.jobs import Item, ItemAudio, is_terminal

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
        answers=AUDIO_ANSWERS,
        problems=(
            JobNotFoundError,
            ItemNotFoundError,
            NotReadyError,
            NoAudioError,
            AudioGoneError,
            AudioUnreadableError,
            RangeNotSatisfiableError,
        ),
    )
)
def audio(job_id: str, custom_id: str) -> Response:
    """The audio, whole or in part."""
    item = find_item(find_job(job_id).id, custom_id)
    return send_audio(recorded_audio(item), item.input.custom_id, item.input.response_format)


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

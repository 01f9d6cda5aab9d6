"""Voices: how the models can sound."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from api.context import context
from api.openapi import Answer, Operation, describe
from api.requests import VoicesQuery, read_query
from api.shapes import ListBody, VoiceBody
from api.wire import page, voice_body

blueprint = Blueprint("voices", __name__)


@blueprint.get("/v1/voices")
@describe(
    Operation(
        summary="List the voices",
        tag="models",
        query=VoicesQuery,
        answers={200: Answer("All voices, a model's default first.", ListBody[VoiceBody])},
    )
)
def index() -> Response:
    """Every voice of every model, or of one."""
    wanted = read_query(VoicesQuery, request).model
    bodies = [
        voice_body(engine, voice)
        for name, engine in sorted(context().store.engines().items())
        if wanted in {None, name}
        for voice in engine.voices
    ]
    return jsonify(page(bodies, [body["id"] for body in bodies]))

"""Models: the engines that workers have offered."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify

from api.context import context
from api.openapi import Answer, Operation, describe
from api.shapes import ListBody, ModelBody
from api.wire import model_body, page

blueprint = Blueprint("models", __name__)


@blueprint.get("/v1/models")
@describe(
    Operation(
        summary="List the models and what each can do",
        tag="models",
        answers={200: Answer("All models, by name.", ListBody[ModelBody])},
    )
)
def index() -> Response:
    """Every model ever offered; ``slots`` says how many children take work for it now."""
    store = context().store
    engines = sorted(store.engines().items())
    fleet = store.snapshot()
    bodies = [model_body(engine, fleet) for _, engine in engines]
    return jsonify(page(bodies, [name for name, _ in engines]))

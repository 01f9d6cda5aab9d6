"""The Flask application."""

from __future__ import annotations

from flask import Flask, Response
from flask.json.provider import DefaultJSONProvider

from api import (
    docs,
    health,
    items,
    jobs,
    metrics,
    models,
    problems,
    rollouts,
    tenants,
    timing,
    voices,
    workers,
)
from api.context import EXTENSION, Context
from api.requests import MAX_BODY_BYTES
from voicemill.dispatch import Dispatcher
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store


class Json(DefaultJSONProvider):
    """Compact, with members in the order they were written."""

    sort_keys = False
    compact = True


class Application(Flask):
    """Flask with our JSON."""

    json_provider_class = Json


def create_app(settings: Settings) -> Flask:
    """The application; it needs no Redis to start, only to answer."""
    app = Application(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    store = Store.connect(settings.redis_url)
    dispatcher = Dispatcher(store, Queue(settings), settings)
    app.extensions[EXTENSION] = Context(settings, store, dispatcher, timing.request_histogram())
    for part in (docs, health, items, jobs, metrics, models, rollouts, voices, workers):
        app.register_blueprint(part.blueprint)
    problems.register(app)
    timing.register(app)
    tenants.register(app)
    app.after_request(harden)
    return app


def harden(response: Response) -> Response:
    """Keep browsers from reading a body as anything but what it says it is."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response

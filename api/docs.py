"""The OpenAPI document, the page that shows it, and what each problem means."""

from __future__ import annotations

import secrets
from importlib.resources import files
from inspect import getdoc
from typing import Final

from flask import Blueprint, Response, current_app, jsonify, make_response, render_template

from api.openapi import Answer, Operation, describe, document
from api.shapes import ProblemTypeBody, RootBody
from voicemill import __version__
from voicemill.errors import RouteNotFoundError, leaves

blueprint = Blueprint(
    "docs",
    __name__,
    static_folder=str(files("flask_swagger_ui") / "dist"),
    static_url_path="/docs/assets",
    template_folder="templates",
)


URLS: Final = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/health",
    "metrics": "/metrics",
    "jobs": "/v1/jobs",
}


@blueprint.get("/")
@describe(
    Operation(
        summary="Where to go on from here",
        tag="documentation",
        answers={200: Answer("Name, version and places.", RootBody)},
        reads_store=False,
    )
)
def root() -> Response:
    """A pointer for whoever comes without a path."""
    body: RootBody = {"name": "voicemill", "version": __version__, "urls": URLS}
    return jsonify(body)


@blueprint.get("/openapi.json")
@describe(
    Operation(
        summary="This document",
        tag="documentation",
        answers={200: Answer("OpenAPI 3.1.", dict[str, object])},
        reads_store=False,
    )
)
def openapi() -> Response:
    """The OpenAPI document."""
    return jsonify(document(current_app))


@blueprint.get("/docs")
@describe(
    Operation(
        summary="This document as a page",
        tag="documentation",
        answers={200: Answer("A page for a browser.", media_type="text/html")},
        reads_store=False,
    )
)
def show() -> Response:
    """The page; its policy keeps a browser from fetching anything from elsewhere."""
    nonce = secrets.token_urlsafe(16)
    response = make_response(render_template("docs.html", nonce=nonce))
    response.headers["Content-Security-Policy"] = (
        f"default-src 'self'; script-src 'self' 'nonce-{nonce}'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return response


@blueprint.get("/problems/<code>")
@describe(
    Operation(
        summary="What a problem means",
        tag="documentation",
        answers={200: Answer("The type of a problem.", ProblemTypeBody)},
        problems=(RouteNotFoundError,),
        reads_store=False,
    )
)
def explain(code: str) -> Response:
    """What the ``type`` of a problem points at."""
    for kind in leaves():
        if kind.code == code:
            body: ProblemTypeBody = {
                "code": kind.code,
                "title": kind.title,
                "status": kind.http_status,
                "retryable": kind.retryable,
                "description": getdoc(kind) or kind.title,
            }
            return jsonify(body)
    raise RouteNotFoundError(f"There is no problem {code[:80]!r}.")

"""Is this process alive; is the stack ready; how is it."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Response, jsonify

from api.context import context
from api.openapi import Answer, Operation, describe
from api.problems import RETRY_AFTER_SECONDS
from api.shapes import AliveBody, HealthBody, ReadyBody
from voicemill import health

blueprint = Blueprint("health", __name__)

NOT_READY = HTTPStatus.SERVICE_UNAVAILABLE


@blueprint.get("/healthz")
@describe(
    Operation(
        summary="Whether this process is alive",
        tag="health",
        answers={200: Answer("It is.", AliveBody)},
        reads_store=False,
    )
)
def alive() -> Response:
    """True as long as it can be said; looks at nothing else."""
    return jsonify({"status": "ok"})


@blueprint.get("/readyz")
@describe(
    Operation(
        summary="Whether the stack is ready for work",
        tag="health",
        answers={
            200: Answer("It is.", ReadyBody),
            503: Answer("It is not; `checks` says why.", ReadyBody),
        },
        reads_store=False,
    )
)
def ready() -> Response:
    """The verdict alone."""
    verdict = observe()
    wire = verdict.to_wire()
    return answer(verdict, {"status": wire["status"], "checks": wire["checks"]})


@blueprint.get("/health")
@describe(
    Operation(
        summary="How the stack is: GPU memory, children, queue",
        tag="health",
        answers={
            200: Answer("The stack is ready.", HealthBody),
            503: Answer("It is not; `checks` says why.", HealthBody),
        },
        reads_store=False,
    )
)
def show() -> Response:
    """The verdict with everything it rests on."""
    verdict = observe()
    return answer(verdict, verdict.to_wire())


def observe() -> health.Health:
    """The verdict on the stack, now."""
    return health.observe(context().store, context().settings)


def answer(verdict: health.Health, body: dict[str, object]) -> Response:
    """A verdict as a response."""
    response = jsonify(body)
    if not verdict.ready:
        response.status_code = NOT_READY
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS[NOT_READY])
    return response

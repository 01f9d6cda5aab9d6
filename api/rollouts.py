"""Rollouts: another revision of a model, for a few children first."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Literal

from flask import Blueprint, Response, jsonify, request

from api.context import context
from api.openapi import Answer, Operation, describe
from api.reading import read_json, read_part
from api.requests import CanaryBody, RolloutCreate, RuleBody
from api.rollout_shapes import RolloutBody, rollout_body
from api.shapes import ListBody
from api.wire import page
from voicemill.errors import (
    Fault,
    InvalidInputError,
    PayloadTooLargeError,
    RequestError,
    RolloutConflictError,
    RolloutNotFoundError,
    UnsupportedMediaTypeError,
)
from voicemill.rollouts import Canary, Rule, new_rollout_id
from voicemill.store import measured_with

logger = logging.getLogger(__name__)

blueprint = Blueprint("rollouts", __name__)

BY_HAND = "By hand."


@blueprint.post("/v1/rollouts")
@describe(
    Operation(
        summary="Have a few children change to another revision of their model",
        tag="rollouts",
        body=RolloutCreate,
        answers={201: Answer("The rollout has begun.", RolloutBody)},
        problems=(
            RequestError,
            PayloadTooLargeError,
            UnsupportedMediaTypeError,
            RolloutConflictError,
        ),
    )
)
def create() -> Response:
    """Begin a rollout; children change within seconds, one after the other."""
    faults: list[Fault] = []
    asked, _ = read_part(RolloutCreate, read_json(request), "", faults)
    if faults or asked is None:
        raise InvalidInputError(faults)
    rollout_id = new_rollout_id()
    context().store.start_rollout(
        rollout_id,
        asked.model,
        asked.revision,
        asked.options,
        canary_of(asked.canary),
        None if asked.rule is None else rule_of(asked.rule),
    )
    logger.info("rollout %s of %s to %s begins", rollout_id, asked.model, asked.revision)
    response = jsonify(body_of(rollout_id))
    response.status_code = HTTPStatus.CREATED
    response.headers["Location"] = f"/v1/rollouts/{rollout_id}"
    return response


@blueprint.get("/v1/rollouts")
@describe(
    Operation(
        summary="List the last rollouts, newest first",
        tag="rollouts",
        answers={200: Answer("The rollouts.", ListBody[RolloutBody])},
    )
)
def index() -> Response:
    """How each of the last rollouts goes or went."""
    store = context().store
    children = store.fleet().children.values()
    bodies = [rollout_body(measured_with(one, children)) for one in store.rollouts()]
    return jsonify(page(bodies, [body["id"] for body in bodies]))


@blueprint.get("/v1/rollouts/<rollout_id>")
@describe(
    Operation(
        summary="Look at a rollout, and at what both revisions do",
        tag="rollouts",
        answers={200: Answer("The rollout now.", RolloutBody)},
        problems=(RolloutNotFoundError,),
    )
)
def show(rollout_id: str) -> Response:
    """One rollout."""
    return jsonify(body_of(rollout_id))


@blueprint.post("/v1/rollouts/<rollout_id>/promote")
@describe(
    Operation(
        summary="Have all children change to the new revision, one after the other",
        tag="rollouts",
        answers={200: Answer("It is being promoted.", RolloutBody)},
        problems=(RolloutNotFoundError, RolloutConflictError),
    )
)
def promote(rollout_id: str) -> Response:
    """Decide for the new revision."""
    return move(rollout_id, "promote")


@blueprint.post("/v1/rollouts/<rollout_id>/rollback")
@describe(
    Operation(
        summary="Have the children that changed change back",
        tag="rollouts",
        answers={200: Answer("It is being rolled back.", RolloutBody)},
        problems=(RolloutNotFoundError, RolloutConflictError),
    )
)
def roll_back(rollout_id: str) -> Response:
    """Decide for the old revision."""
    return move(rollout_id, "roll_back")


def move(rollout_id: str, action: Literal["promote", "roll_back"]) -> Response:
    """Move a rollout on by hand."""
    store = context().store
    status = store.rollout(rollout_id).rollout.status
    if not store.move_rollout(rollout_id, action, BY_HAND):
        raise RolloutConflictError(
            f"The rollout {rollout_id[:80]} is {status.replace('_', ' ')}; to go back to a "
            "revision once it has ended, start another one."
        )
    logger.info("rollout %s: %s", rollout_id, action)
    return jsonify(body_of(rollout_id))


def body_of(rollout_id: str) -> RolloutBody:
    """A rollout as it is now."""
    store = context().store
    return rollout_body(measured_with(store.rollout(rollout_id), store.fleet().children.values()))


def canary_of(asked: CanaryBody | None) -> Canary:
    """Who goes first; one child where nothing is said."""
    if asked is None:
        return Canary(children=1)
    is_said = asked.percent is not None or asked.children is not None
    return Canary(asked.children if is_said else 1, asked.percent, tuple(asked.tenants))


def rule_of(asked: RuleBody) -> Rule:
    """What decides."""
    return Rule(
        asked.min_attempts, asked.max_failure_increase, asked.max_slowdown, asked.max_memory
    )

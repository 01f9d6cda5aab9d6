"""Workers: how they are, and what an operator may ask of them."""

from __future__ import annotations

import logging
from http import HTTPStatus

from flask import Blueprint, Response, jsonify

from api.context import context
from api.fleet import OrderBody, QueueBody, WorkerBody, loading_children, worker_body
from api.openapi import Answer, Operation, describe
from api.shapes import ListBody
from api.wire import page
from voicemill.errors import ChildLoadingError, RequestError, WorkerNotFoundError
from voicemill.workers import Order

logger = logging.getLogger(__name__)

blueprint = Blueprint("workers", __name__)


@blueprint.get("/v1/workers")
@describe(
    Operation(
        summary="List the workers that live, with their children",
        tag="workers",
        answers={200: Answer("All workers, by node.", ListBody[WorkerBody])},
    )
)
def index() -> Response:
    """Every worker heard of lately."""
    fleet = context().store.fleet()
    workers = sorted(fleet.workers, key=lambda worker: worker.node)
    bodies = [worker_body(worker, fleet) for worker in workers]
    return jsonify(page(bodies, [worker.node for worker in workers]))


@blueprint.get("/v1/workers/<path:worker_id>")
@describe(
    Operation(
        summary="Show one worker",
        tag="workers",
        answers={200: Answer("The worker now.", WorkerBody)},
        problems=(WorkerNotFoundError,),
    )
)
def show(worker_id: str) -> Response:
    """One worker by its node name."""
    fleet = context().store.fleet()
    for worker in fleet.workers:
        if worker.node == worker_id:
            return jsonify(worker_body(worker, fleet))
    raise WorkerNotFoundError(f"There is no worker {worker_id[:80]!r}.")


def refusal(worker_id: str) -> RequestError:
    """Why nobody of this id hears an order."""
    if worker_id in loading_children(context().store.fleet()):
        return ChildLoadingError(
            f"Child {worker_id[:80]} still loads its engine and hears no order; try again when "
            "/v1/workers shows it as ready."
        )
    return WorkerNotFoundError(f"There is no worker or child {worker_id[:80]!r}.")


def order(worker_id: str, what: Order) -> Response:
    """Note an order for a worker or one of its children; it is heard within a second or two."""
    if not context().store.order(worker_id, what):
        raise refusal(worker_id)
    logger.info("%s asked of %s", what, worker_id)
    response = jsonify({"object": "order", "id": worker_id, "order": what})
    response.status_code = HTTPStatus.ACCEPTED
    return response


ACCEPTED = {202: Answer("The order is noted; it is heard within two seconds.", OrderBody)}


@blueprint.post("/v1/workers/<path:worker_id>/recycle")
@describe(
    Operation(
        summary="Replace the children of a worker, or one child, without a pause",
        tag="workers",
        answers=ACCEPTED,
        problems=(WorkerNotFoundError, ChildLoadingError),
    )
)
def recycle(worker_id: str) -> Response:
    """Ask for new processes."""
    return order(worker_id, "recycle")


@blueprint.post("/v1/workers/<path:worker_id>/drain")
@describe(
    Operation(
        summary="Give a worker, or one child, no more work; it finishes what it holds",
        tag="workers",
        answers=ACCEPTED,
        problems=(WorkerNotFoundError, ChildLoadingError),
    )
)
def drain(worker_id: str) -> Response:
    """Let it run dry."""
    return order(worker_id, "drain")


@blueprint.post("/v1/workers/<path:worker_id>/resume")
@describe(
    Operation(
        summary="Give a drained worker or child work again",
        tag="workers",
        answers=ACCEPTED,
        problems=(WorkerNotFoundError, ChildLoadingError),
    )
)
def resume(worker_id: str) -> Response:
    """Take back a drain."""
    return order(worker_id, "resume")


@blueprint.post("/v1/queue/pause")
@describe(
    Operation(
        summary="Admit no more work; running batches finish, new jobs are accepted and wait",
        tag="workers",
        answers={200: Answer("The queue is paused.", QueueBody)},
    )
)
def pause_queue() -> Response:
    """Stop admission as a whole."""
    context().store.pause(True)
    return jsonify({"object": "queue", "paused": True})


@blueprint.post("/v1/queue/resume")
@describe(
    Operation(
        summary="Admit work again",
        tag="workers",
        answers={200: Answer("The queue is open.", QueueBody)},
    )
)
def resume_queue() -> Response:
    """Open admission, and admit what there are slots for."""
    here = context()
    here.store.pause(False)
    here.dispatcher.admit()
    return jsonify({"object": "queue", "paused": False})

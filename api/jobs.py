"""Jobs: create, list, look at, cancel."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Iterable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from flask import Blueprint, Response, jsonify, request

from api.audio import AUDIO_ANSWERS, send_audio
from api.context import context
from api.openapi import Answer, Operation, describe
from api.reading import read_json, read_query
from api.requests import (
    DeadLettersQuery,
    DeleteQuery,
    JobCreate,
    JobQuery,
    JobsQuery,
    RetryQuery,
)
from api.shapes import ItemBody, JobBody, ListBody
from api.submission import Submission, unlisted_voices
from api.tenants import current_tenant
from api.wire import item_body, job_body, page, retry_after
from voicemill.errors import (
    AudioGoneError,
    AudioUnreadableError,
    DataRemovedError,
    InvalidInputError,
    JobActiveError,
    JobNotFoundError,
    NoAudioError,
    NotReadyError,
    NoWorkersError,
    PayloadTooLargeError,
    QueueFullError,
    QuotaExceededError,
    RangeNotSatisfiableError,
    RequestError,
    RevisionNotFoundError,
    UnsupportedMediaTypeError,
    VoicemillError,
)
from voicemill.health import MEBIBYTE, Snapshot
from voicemill.jobs import Job, JobAudio, is_terminal, new_job_id
from voicemill.rollouts import engine_of, lane, revision_of

logger = logging.getLogger(__name__)

blueprint = Blueprint("jobs", __name__)

JOB_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
FIRST_LOOK_SECONDS: Final = 0.01
LONGEST_LOOK_SECONDS: Final = 0.5
"""Between two looks at a job that a request waits for: short at first, for small jobs."""

RETRY_AFTER: Final = {"Retry-After": "Seconds after which to look again, while it goes on."}
LOCATION: Final = {"Location": "Where the job is followed."}


@blueprint.post("/v1/jobs")
@describe(
    Operation(
        summary="Submit texts to be spoken",
        tag="jobs",
        body=JobCreate,
        answers={202: Answer("The job is stored.", JobBody, headers={**LOCATION, **RETRY_AFTER})},
        problems=(
            RequestError,
            PayloadTooLargeError,
            UnsupportedMediaTypeError,
            QuotaExceededError,
            QueueFullError,
            NoWorkersError,
        ),
    )
)
def create() -> Response:
    """Store a job, let in what may run, and answer at once."""
    here = context()
    raw = read_json(request)
    key = request.headers.get("X-Fairness-Key")
    tenant, job_id = current_tenant(), new_job_id()
    submission = Submission(
        here.store.engines(), here.settings, partial(here.store.voices_for, tenant)
    )
    items, head = submission.read(raw, key)
    models = {item.model for item in items}
    revision, trials = head.revision, {} if head.revision else here.store.trials(tenant)
    if revision is not None:
        check_revision(revision, models)
    if here.settings.without_workers == "refuse":
        refuse_unserved({lane(model, revision or trials.get(model)) for model in models})
    here.store.keep_voices(tenant, unlisted_voices(items), job_id)
    job = here.store.create_job(
        job_id,
        tenant,
        items,
        head.metadata,
        rules=head.rules,
        standing=head.standing,
        reuse=head.reuse,
        max_queued_bytes=here.settings.max_queued_mb * MEBIBYTE or math.inf,
        revision=revision,
        revisions=trials,
    )
    logger.info("job %s created with %d items", job.id, len(items))
    return accepted(job)


@blueprint.get("/v1/jobs")
@describe(
    Operation(
        summary="List jobs, newest first",
        tag="jobs",
        query=JobsQuery,
        answers={200: Answer("A page of jobs.", ListBody[JobBody])},
        problems=(JobNotFoundError,),
    )
)
def index() -> Response:
    """One page of the jobs."""
    query = read_query(JobsQuery, request)
    found = context().store.jobs(
        current_tenant(), status=query.status, after=query.after, limit=query.limit
    )
    fleet = fleet_for(found.jobs)
    bodies = [job_body(job, fleet) for job in found.jobs]
    return jsonify(page(bodies, [job.id for job in found.jobs], has_more=found.has_more))


@blueprint.get("/v1/jobs/<job_id>")
@describe(
    Operation(
        summary="Look at a job, or wait for its end",
        tag="jobs",
        query=JobQuery,
        answers={200: Answer("The job as it stands.", JobBody, headers=RETRY_AFTER)},
        problems=(JobNotFoundError,),
    )
)
def show(job_id: str) -> Response:
    """The job, as soon as it has ended or the wait is over."""
    query = read_query(JobQuery, request)
    job = find_job(job_id)
    if query.wait and context().waiters.acquire(blocking=False):
        try:
            job = wait_for(job, query.wait)
        finally:
            context().waiters.release()
    return answer(job, fleet_for([job]))


@blueprint.get("/v1/jobs/<job_id>/audio")
@describe(
    Operation(
        summary="Fetch the audio of all items in one file, of a job that asked for it",
        tag="jobs",
        answers=AUDIO_ANSWERS,
        problems=(
            JobNotFoundError,
            NotReadyError,
            NoAudioError,
            AudioGoneError,
            AudioUnreadableError,
            RangeNotSatisfiableError,
        ),
    )
)
def audio(job_id: str) -> Response:
    """The audio, whole or in part."""
    job = find_job(job_id)
    recorded = recorded_audio(job)
    return send_audio(recorded, job.id, recorded.response_format)


@blueprint.post("/v1/jobs/<job_id>/cancel")
@describe(
    Operation(
        summary="Cancel a job; one that has ended stays as it is, one that is only joined yet is "
        "completed without its one file",
        tag="jobs",
        answers={200: Answer("The job as it stands now.", JobBody, headers=RETRY_AFTER)},
        problems=(JobNotFoundError,),
    )
)
def cancel(job_id: str) -> Response:
    """Stop what has not been spoken yet."""
    job = context().store.cancel(find_job(job_id).id)
    logger.info("job %s cancelled by its client", job.id)
    return answer(job, fleet_for([job]))


@blueprint.post("/v1/jobs/<job_id>/retry")
@describe(
    Operation(
        summary="Run the failed items of a job that has ended once more",
        tag="jobs",
        query=RetryQuery,
        answers={202: Answer("The job as it stands now.", JobBody, headers=RETRY_AFTER)},
        problems=(JobNotFoundError, JobActiveError, DataRemovedError, QuotaExceededError),
    )
)
def retry(job_id: str) -> Response:
    """Queue what failed; what succeeded stays, and so does a job without failed items."""
    query = read_query(RetryQuery, request)
    job = context().store.retry(find_job(job_id).id, run=query.run)
    logger.info("job %s runs again, for %d items", job.id, job.counts.queued)
    return accepted(job)


@blueprint.delete("/v1/jobs/<job_id>")
@describe(
    Operation(
        summary="Delete a job with its audio and texts",
        tag="jobs",
        query=DeleteQuery,
        answers={204: Answer("It is gone, its files within seconds.")},
        problems=(JobNotFoundError, JobActiveError),
    )
)
def delete(job_id: str) -> Response:
    """Hide the job at once and have the rest removed."""
    query = read_query(DeleteQuery, request)
    job = find_job(job_id)
    context().store.delete(job.id, cancel=query.cancel)
    logger.info("job %s deleted by its client", job.id)
    return Response(status=HTTPStatus.NO_CONTENT)


@blueprint.get("/v1/dead-letters")
@describe(
    Operation(
        summary="List items that failed for good, of the newest job first",
        tag="jobs",
        query=DeadLettersQuery,
        answers={
            200: Answer("A page of items; retry their job to run them again.", ListBody[ItemBody])
        },
        problems=(JobNotFoundError,),
    )
)
def dead_letters() -> Response:
    """One page of the failed items of all jobs."""
    query = read_query(DeadLettersQuery, request)
    found = context().store.dead_letters(current_tenant(), after=query.after, limit=query.limit)
    bodies = [item_body(letter.item) for letter in found.letters]
    ids = [letter.id for letter in found.letters]
    return jsonify(page(bodies, ids, has_more=found.has_more))


def find_job(job_id: str) -> Job:
    """The tenant's job; raises ``JobNotFoundError``."""
    # Other characters could name a key of the store that is no job.
    job = context().store.job(job_id) if JOB_ID.fullmatch(job_id) else None
    if job is None or job.tenant != current_tenant():
        raise JobNotFoundError(f"There is no job {job_id[:80]!r}.")
    return job


def recorded_audio(job: Job) -> JobAudio:
    """The one file of a job that has one; raises ``NotReadyError`` or ``NoAudioError``."""
    asked = job.concatenation
    if asked is None:
        raise NoAudioError("The job did not ask for `concatenate`; its items have their audio.")
    if asked.audio is not None:
        return asked.audio
    if not is_terminal(job.status):
        raise NotReadyError(f"The job {job.id} is {job.status}; ask again later.")
    why = f": {asked.error.code}" if asked.error else ""
    raise NoAudioError(f"The job {job.id} is {job.status}{why}; it has no audio of its own.")


def wait_for(job: Job, seconds: float) -> Job:
    """The job once it has ended, or as it stands when the time is over."""
    end = time.monotonic() + seconds
    look = FIRST_LOOK_SECONDS
    while not is_terminal(job.status) and (left := end - time.monotonic()) > 0:
        time.sleep(min(look, left))
        look = min(look * 1.5, LONGEST_LOOK_SECONDS)
        job = context().store.job(job.id)
    return job


def check_revision(revision: str, models: Iterable[str]) -> None:
    """Raise for a revision that one of the models never had."""
    for model in sorted(models):
        if not context().store.has_revision(model, revision):
            error = RevisionNotFoundError(
                f"{model} has no revision {revision!r}; /v1/rollouts lists those it had."
            )
            raise InvalidInputError([error.at("/revision")])


def is_served(lane: str, fleet: Snapshot) -> bool:
    """Whether a child takes work from a lane, or would as soon as there is some."""
    engine, revision = engine_of(lane), revision_of(lane)
    return bool(fleet.slots.get(lane)) or any(
        child["engine"] == engine and child.get("revision") == revision and child["takes_work"]
        for child in fleet.children
    )


def refuse_unserved(lanes: Iterable[str]) -> None:
    """Raise ``NoWorkersError`` where a model, or a revision of it, has no child that takes work."""
    fleet = context().store.snapshot()
    unserved = sorted(lane for lane in lanes if not is_served(lane, fleet))
    if unserved:
        raise NoWorkersError(
            f"No child of {', '.join(unserved)} takes work now, and a job does not wait for "
            "one here; try again later, or name a model that /v1/models shows as live."
        )


def fleet_for(jobs: Sequence[Job]) -> Snapshot | None:
    """Who there is to work, where one of the jobs still goes on."""
    if all(is_terminal(job.status) for job in jobs):
        return None
    return context().store.snapshot()


def accepted(job: Job) -> Response:
    """A job that is stored; from here on nothing may make that an error."""
    try:
        context().dispatcher.admit()
        fleet = fleet_for([job])
    except VoicemillError as error:
        logger.warning("job %s is stored, admission waits for the clerk: %s", job.id, error.code)
        fleet = None
    response = answer(job, fleet)
    response.status_code = HTTPStatus.ACCEPTED
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return response


def answer(job: Job, fleet: Snapshot | None) -> Response:
    """A job as a response; tells when to look again while it goes on."""
    body = job_body(job, fleet)
    response = jsonify(body)
    seconds = retry_after(job, body["status_reason"], time.time())
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    return response

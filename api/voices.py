"""Voices: how the models can sound, and those that clients enrol."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any, Final

from flask import Blueprint, Response, jsonify, request

from api.audio import AUDIO_ANSWERS, send_recorded
from api.context import context
from api.enrolment import VoiceChange, VoiceForm, read_form, voice_of
from api.openapi import Answer, Operation, describe
from api.reading import read_json, read_part, read_query
from api.requests import (
    VoiceQuery,
    VoicesQuery,
)
from api.shapes import ListBody, VoiceBody
from api.tenants import current_tenant
from api.wire import enrolled_body, page, voice_body
from voicemill.enrolment import (
    VOICE_NAME,
    EnrolledVoice,
    VoiceStatus,
    clip_path,
)
from voicemill.errors import (
    AudioGoneError,
    Fault,
    InvalidInputError,
    NoAudioError,
    NoSampleError,
    NoSuchVoiceError,
    NotReadyError,
    PayloadTooLargeError,
    QueueFullError,
    RangeNotSatisfiableError,
    RequestError,
    TooManyVoicesError,
    UnsupportedMediaTypeError,
    VoiceExistsError,
)
from voicemill.tenants import SHARED_TENANT

logger = logging.getLogger(__name__)

blueprint = Blueprint("voices", __name__)

VERDICT_SECONDS: Final = 10.0
"""How long a request waits for a clerk to check its prompt."""
LOOK_SECONDS: Final = 0.05
LOCATION: Final = {"Location": "Where the voice is."}


@blueprint.get("/v1/voices")
@describe(
    Operation(
        summary="List the voices",
        tag="voices",
        query=VoicesQuery,
        answers={
            200: Answer(
                "The voices of the models, a model's default first; then yours, then shared ones.",
                ListBody[VoiceBody],
            )
        },
        problems=(NoSuchVoiceError,),
    )
)
def index() -> Response:
    """Every voice that the tenant may speak with, or those for one model."""
    query = read_query(VoicesQuery, request)
    wanted = query.model
    store, tenant = context().store, current_tenant()
    engines = {name: engine for name, engine in store.engines().items() if wanted in {None, name}}
    bodies = [
        voice_body(engine, voice)
        for _, engine in sorted(engines.items())
        for voice in engine.voices
    ]
    if wanted is None or any(engine.cloning for engine in engines.values()):
        own = store.voices(tenant)
        others = [] if tenant == SHARED_TENANT else store.voices(SHARED_TENANT)
        hidden = {voice.name for voice in own}
        bodies += [
            enrolled_body(voice, tenant)
            for voice in (*own, *(one for one in others if one.name not in hidden))
        ]
    names = [cursor_of(body) for body in bodies]
    first = names.index(query.after) + 1 if query.after in names else 0
    if query.after is not None and not first:
        raise NoSuchVoiceError(f"There is no voice {query.after[:80]!r} to continue after.")
    until = first + query.limit
    has_more = len(bodies) > until
    return jsonify(page(bodies[first:until], names[first:until], has_more=has_more))


def cursor_of(voice: VoiceBody) -> str:
    """What a page names a voice by: several models may have one of the same name."""
    return f"{voice['model'] or ''}/{voice['id']}"


@blueprint.post("/v1/voices")
@describe(
    Operation(
        summary="Enrol a voice that is cloned from a clip",
        tag="voices",
        body=VoiceForm,
        body_type="multipart/form-data",
        answers={
            201: Answer("The voice can be used.", VoiceBody, headers=LOCATION),
            202: Answer("The prompt is still being checked.", VoiceBody, headers=LOCATION),
        },
        problems=(
            RequestError,
            PayloadTooLargeError,
            UnsupportedMediaTypeError,
            VoiceExistsError,
            TooManyVoicesError,
            QueueFullError,
        ),
    )
)
def create() -> Response:
    """Keep a prompt, have it checked, and answer with the verdict if that comes soon."""
    form = read_form(request)
    voice = voice_of(form, current_tenant())
    context().store.add_voice(voice, form.prompt_audio)
    voice = await_verdict(voice)
    if voice.error is not None:
        error = voice.error
        context().store.delete_voice(voice.tenant, voice.name, token=voice.token)
        raise InvalidInputError([Fault(error.code, error.message, "/prompt_audio")])
    is_ready = voice.status is VoiceStatus.READY
    response = jsonify(enrolled_body(voice, voice.tenant))
    response.status_code = HTTPStatus.CREATED if is_ready else HTTPStatus.ACCEPTED
    response.headers["Location"] = f"/v1/voices/{voice.name}"
    if not is_ready:
        response.headers["Retry-After"] = "1"
    logger.info("voice %s of %s is %s", voice.name, voice.tenant, voice.status)
    return response


@blueprint.get("/v1/voices/<voice_id>")
@describe(
    Operation(
        summary="Look at a voice",
        tag="voices",
        query=VoiceQuery,
        answers={200: Answer("The voice.", VoiceBody)},
        problems=(NoSuchVoiceError,),
    )
)
def show(voice_id: str) -> Response:
    """A voice that was enrolled, else a model's own."""
    return jsonify(find_body(voice_id, read_query(VoiceQuery, request).model))


@blueprint.get("/v1/voices/<voice_id>/sample")
@describe(
    Operation(
        summary="Fetch the clip that a voice is cloned from",
        tag="voices",
        answers=AUDIO_ANSWERS,
        problems=(
            NoSuchVoiceError,
            NoSampleError,
            NotReadyError,
            NoAudioError,
            AudioGoneError,
            RangeNotSatisfiableError,
        ),
    )
)
def sample(voice_id: str) -> Response:
    """The clip, whole or in part."""
    voice = find_enrolled(voice_id)
    if voice is None:
        find_body(voice_id, None)
        raise NoSampleError(
            f"The voice {voice_id[:80]!r} is its model's own and has no sample; have it speak."
        )
    if voice.error is not None:
        raise NoAudioError(f"The voice {voice.name} was refused: {voice.error.message}")
    if voice.clip is None:
        raise NotReadyError(f"The prompt of {voice.name} is still being checked; ask again later.")
    path = clip_path(context().settings.output_dir, voice)
    return send_recorded(voice.clip, path, voice.name, "wav")


@blueprint.patch("/v1/voices/<voice_id>")
@describe(
    Operation(
        summary="Change what is said about a voice of yours",
        tag="voices",
        body=VoiceChange,
        answers={200: Answer("The voice as it is now.", VoiceBody)},
        problems=(
            RequestError,
            PayloadTooLargeError,
            UnsupportedMediaTypeError,
            NoSuchVoiceError,
        ),
    )
)
def change(voice_id: str) -> Response:
    """Change its description or consent; the prompt stays."""
    faults: list[Fault] = []
    body, _ = read_part(VoiceChange, read_json(request), "", faults)
    if faults or body is None:
        raise InvalidInputError(faults)
    voice = find_own(voice_id)
    store, tenant = context().store, current_tenant()
    said = {name: value for name, value in body.model_dump().items() if value is not None}
    if not store.change_voice(tenant, voice.name, said):
        raise unknown(voice_id)
    return jsonify(enrolled_body(find_own(voice_id), tenant))


@blueprint.delete("/v1/voices/<voice_id>")
@describe(
    Operation(
        summary="Delete a voice of yours for good; items that still wait for it fail",
        tag="voices",
        answers={204: Answer("It is gone, its clip within seconds.")},
        problems=(NoSuchVoiceError,),
    )
)
def delete(voice_id: str) -> Response:
    """Forget it at once and have the rest removed."""
    voice = find_own(voice_id)
    if not context().store.delete_voice(voice.tenant, voice.name, token=voice.token):
        raise unknown(voice_id)
    logger.info("voice %s of %s deleted by its client", voice.name, voice.tenant)
    return Response(status=HTTPStatus.NO_CONTENT)


def await_verdict(voice: EnrolledVoice) -> EnrolledVoice:
    """The voice once a clerk has judged its prompt, or as it stands when the time is over."""
    here = context()
    found = here.store.voice(voice.tenant, voice.name)
    if not here.waiters.acquire(blocking=False):
        return found or voice
    try:
        end = time.monotonic() + VERDICT_SECONDS
        while found and found.status is VoiceStatus.VALIDATING and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
            found = here.store.voice(voice.tenant, voice.name)
    finally:
        here.waiters.release()
    if found is None:
        raise unknown(voice.name)
    return found


def find_body(voice_id: str, model: str | None) -> dict[str, Any] | VoiceBody:
    """A voice as it goes out; raises ``NoSuchVoiceError``."""
    voice = find_enrolled(voice_id) if model is None else None
    if voice is not None:
        return enrolled_body(voice, current_tenant())
    for name, engine in sorted(context().store.engines().items()):
        if model in {None, name} and engine.has_voice(voice_id):
            return voice_body(engine, engine.voice(voice_id))
    raise unknown(voice_id)


def find_enrolled(voice_id: str) -> EnrolledVoice | None:
    """An enrolled voice that the tenant may speak with."""
    # Other characters could name a key of the store that is no voice.
    if not VOICE_NAME.fullmatch(voice_id):
        return None
    return context().store.voices_for(current_tenant(), [voice_id]).get(voice_id)


def find_own(voice_id: str) -> EnrolledVoice:
    """An enrolled voice of the tenant itself; raises ``NoSuchVoiceError``."""
    voice = find_enrolled(voice_id)
    if voice is None or voice.tenant != current_tenant():
        raise unknown(voice_id)
    return voice


def unknown(voice_id: str) -> NoSuchVoiceError:
    """There is none for this tenant."""
    return NoSuchVoiceError(f"You have no voice {voice_id[:80]!r}.")

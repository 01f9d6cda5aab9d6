"""The form that enrols a voice, and what may be wrong with it."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from flask import Request
from pydantic import Field, ValidationError, WithJsonSchema

from api.context import context
from api.reading import escape, printable, to_fault
from api.requests import (
    Body,
    Language,
    Query,
    Text,
)
from voicemill.enrolment import EnrolledVoice, check_voice_name, unlisted_name
from voicemill.errors import (
    Fault,
    InputError,
    InvalidInputError,
    MissingFieldError,
    UnsupportedMediaTypeError,
    VoiceExistsError,
)
from voicemill.text import check_text

Transcript = Annotated[Text, Field(min_length=1, max_length=1000)]
Consent = Annotated[Text, Field(max_length=1000)]
Description = Annotated[Text, Field(max_length=500)]


class VoiceForm(Query):
    """A voice to enrol, as the fields of a form."""

    prompt_audio: Annotated[
        bytes,
        WithJsonSchema({"type": "string", "format": "binary"}),
        Field(description="The clip: wav, flac, mp3 or ogg, 1 to 30 s, 16 kHz or more."),
    ]
    prompt_text: Transcript = Field(description="What is said in the clip, word for word.")
    language: Language = Field(description="BCP 47 tag of what is said in it.")
    name: Text | None = Field(
        None, description="1 to 64 of A-Z a-z 0-9 . _ -, which items then give as their voice."
    )
    consent: Consent = Field(
        "", description="Who agreed that the voice is cloned, and when. A listed voice needs it."
    )
    description: Description = ""
    unlisted: bool = Field(
        False,
        description="A voice without a name of yours, in no list, kept as long as jobs that use it "
        "are; the same prompt has the same id.",
    )


class VoiceChange(Body):
    """What may be changed of a voice; to change its prompt, delete it and enrol another."""

    description: Description | None = None
    consent: Annotated[Consent, Field(min_length=1)] | None = None


def read_form(request: Request) -> VoiceForm:
    """A form with a file; raises ``InvalidInputError`` or the ``RequestError`` that says why."""
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMediaTypeError("Send the form with Content-Type: multipart/form-data.")
    names = [name for name, _ in request.form.items(multi=True)]
    names += (name for name, _ in request.files.items(multi=True))
    faults = [
        Fault(InputError.code, f"The field {printable(name)!r} is given twice.", f"/{escape(name)}")
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]
    if faults:
        raise InvalidInputError(faults)
    values: dict[str, Any] = {**request.form}
    values |= {name: file.read() for name, file in request.files.items()}
    if isinstance(values.get("prompt_audio"), str):
        detail = "prompt_audio: send it as a file (curl: -F prompt_audio=@clip.wav)."
        raise InvalidInputError([Fault(InputError.code, detail, "/prompt_audio")])
    try:
        return VoiceForm.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise InvalidInputError([to_fault(one, "") for one in found]) from error


def voice_of(form: VoiceForm, tenant: str) -> EnrolledVoice:
    """The voice that a form asks for; raises ``InvalidInputError`` and ``VoiceExistsError``."""
    faults = list(faults_of(form))
    if faults:
        raise InvalidInputError(faults)
    name = form.name or unlisted_name(form.prompt_audio, form.prompt_text, form.language)
    for engine in context().store.engines().values():
        if engine.has_voice(name):
            raise VoiceExistsError(f"{engine.engine} has a voice {name!r}; take another name.")
    return EnrolledVoice(
        tenant=tenant,
        name=name,
        token=uuid.uuid4().hex[:16],
        language=form.language,
        prompt_text=form.prompt_text,
        consent=form.consent,
        description=form.description,
    )


def faults_of(form: VoiceForm) -> list[Fault]:
    """What is wrong with a form whose fields are right, each by itself."""
    faults = []
    try:
        check_text(form.prompt_text)
    except InputError as error:
        faults.append(error.at("/prompt_text"))
    if form.unlisted:
        named = form.name is not None
        detail = "name: an unlisted voice is given its name; leave this out."
        return [*faults, InputError(detail).at("/name")] if named else faults
    if form.name is None:
        faults.append(MissingFieldError("The field 'name' is missing.").at("/name"))
    else:
        try:
            check_voice_name(form.name)
        except InputError as error:
            faults.append(error.at("/name"))
    if not form.consent.strip():
        detail = (
            "The field 'consent' is missing: say who agreed that the voice is cloned, and when."
        )
        faults.append(MissingFieldError(detail).at("/consent"))
    return faults

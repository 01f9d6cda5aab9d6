"""The OpenAPI document, made from the routes and what stands beside each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from flask import Flask
from pydantic import BaseModel, TypeAdapter
from werkzeug.routing import Rule

from api.problems import MEDIA_TYPE
from api.shapes import ProblemBody
from api.tenants import PROTECTED
from voicemill import __version__
from voicemill.errors import (
    InvalidInputError,
    StoreUnavailableError,
    UnauthorizedError,
    VoicemillError,
)

ViewT = TypeVar("ViewT", bound=Callable[..., Any])
REF_TEMPLATE: Final = "#/components/schemas/{model}"
SHOWN_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
API_KEY: Final = "api_key"
UNDESCRIBED: Final = frozenset({"docs.static"})
"""Endpoints that serve files of the docs page, not the API."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a route may answer with."""

    description: str
    body: Any = None
    """A type that pydantic can describe; nothing where the body is not JSON."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Descriptions by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One route, for a reader who has only the document."""

    summary: str
    tag: str
    answers: Mapping[int, Answer]
    body: type[BaseModel] | None = None
    body_type: str = "application/json"
    query: type[BaseModel] | None = None
    problems: tuple[type[VoicemillError], ...] = ()
    reads_store: bool = True


OPERATIONS: Final[dict[Callable[..., Any], Operation]] = {}
"""By view function."""


def describe(operation: Operation) -> Callable[[ViewT], ViewT]:
    """Decorate a view with what the document says of it."""

    def keep(view: ViewT) -> ViewT:
        OPERATIONS[view] = operation
        return view

    return keep


def document(app: Flask) -> dict[str, Any]:
    """The OpenAPI 3.1 document of every route the app has."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for rule in sorted(app.url_map.iter_rules(), key=lambda rule: rule.rule):
        if rule.endpoint in UNDESCRIBED:
            continue
        operation = OPERATIONS[app.view_functions[rule.endpoint]]
        described = describe_operation(rule, operation, schemas)
        for method in methods_of(rule):
            paths.setdefault(path_of(rule), {})[method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Voicemill",
            "version": __version__,
            "description": "Batch speech synthesis through a task queue. Every error is a "
            "problem (RFC 9457) with a stable `code`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {API_KEY: []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.definitions.items())),
            "securitySchemes": {
                API_KEY: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed below /v1 where the operator requires it.",
                }
            },
        },
    }


class Schemas:
    """JSON schemas of the types asked for; the named ones gather in ``definitions``."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type, by reference where it has a name."""
        schema = TypeAdapter(kind).json_schema(ref_template=REF_TEMPLATE)
        self.definitions |= schema.pop("$defs", {})
        title = schema.get("title")
        if title is None or "properties" not in schema:
            return schema
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", title).strip("_")
        self.definitions[name] = schema
        return {"$ref": REF_TEMPLATE.format(model=name)}


def path_of(rule: Rule) -> str:
    """A rule's path as OpenAPI writes it."""
    return re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", rule.rule)


def methods_of(rule: Rule) -> Iterator[str]:
    """The methods of a rule that the document shows."""
    return (method for method in SHOWN_METHODS if method in (rule.methods or ()))


def describe_operation(rule: Rule, operation: Operation, schemas: Schemas) -> dict[str, Any]:
    """One operation object."""
    described: dict[str, Any] = {
        "operationId": rule.endpoint.replace(".", "_"),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in sorted(rule.arguments)
        ]
        + query_parameters(operation, schemas),
        "responses": {
            str(status): describe_answer(answer, schemas)
            for status, answer in sorted(answers_of(rule, operation).items())
        },
    }
    if operation.body is not None:
        content = {operation.body_type: {"schema": schemas.of(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def query_parameters(operation: Operation, schemas: Schemas) -> list[dict[str, Any]]:
    """The parameters of a query."""
    if operation.query is None:
        return []
    properties = operation.query.model_json_schema(ref_template=REF_TEMPLATE)["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "description": schema.pop("description", ""),
            "schema": schema,
        }
        for name, schema in properties.items()
    ]


def answers_of(rule: Rule, operation: Operation) -> dict[int, Answer]:
    """All a route may answer, problems included."""
    kinds = list(operation.problems)
    if rule.rule.startswith(PROTECTED):
        kinds.append(UnauthorizedError)
    if operation.query is not None or operation.body is not None:
        kinds.append(InvalidInputError)
    if operation.reads_store:
        kinds.append(StoreUnavailableError)
    codes: dict[int, list[str]] = {}
    for kind in kinds:
        codes.setdefault(kind.http_status, []).append(f"{kind.title} (`{kind.code}`).")
    problems = {
        status: Answer(" ".join(sentences), ProblemBody, MEDIA_TYPE)
        for status, sentences in codes.items()
    }
    return problems | dict(operation.answers)


def describe_answer(answer: Answer, schemas: Schemas) -> dict[str, Any]:
    """One response object."""
    schema = {} if answer.body is None else schemas.of(answer.body)
    described: dict[str, Any] = {
        "description": answer.description,
        "content": {answer.media_type: {"schema": schema}},
    }
    if answer.headers:
        described["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answer.headers.items()
        }
    return described

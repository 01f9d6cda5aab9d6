"""The OpenAPI document says what the API does, and its page needs nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.openapi import SHOWN_METHODS, UNDESCRIBED, path_of
from api.requests import JobCreate, JobInput
from voicemill import __version__
from voicemill.formats import RESPONSE_FORMATS


@pytest.fixture
def document(client: FlaskClient) -> dict[str, Any]:
    """The document as served."""
    body: dict[str, Any] = client.get("/openapi.json").get_json()
    return body


def walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from walk(value)


def test_every_route_is_in_the_document_and_nothing_else(
    app: Flask, document: dict[str, Any]
) -> None:
    routes = {
        (path_of(rule), method)
        for rule in app.url_map.iter_rules()
        if rule.endpoint not in UNDESCRIBED
        for method in SHOWN_METHODS
        if method in (rule.methods or ())
    }
    documented = {
        (path, method.upper()) for path, methods in document["paths"].items() for method in methods
    }
    assert documented == routes
    assert ("/v1/jobs/{job_id}/items/{custom_id}/audio", "GET") in documented


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = {node["$ref"] for node in walk(document) if isinstance(node.get("$ref"), str)}

    names = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references <= names
    assert "#/components/schemas/JobBody" in references


def test_operations_have_names_of_their_own_and_parameters_for_their_paths(
    document: dict[str, Any],
) -> None:
    operations = [
        (path, operation)
        for path, methods in document["paths"].items()
        for operation in methods.values()
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(set(names)) == len(names)
    for path, operation in operations:
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path))


def test_the_document_has_the_fields_that_are_validated(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    names = {field.alias or name for name, field in JobCreate.model_fields.items()}
    assert set(schemas["JobCreate"]["properties"]) == names
    assert set(schemas["JobInput"]["properties"]) == set(JobInput.model_fields)
    assert schemas["JobCreate"]["additionalProperties"] is False
    assert schemas["JobCreate"]["required"] == ["inputs"]


def test_answers_have_the_fields_that_the_document_says(
    client: FlaskClient, document: dict[str, Any]
) -> None:
    schemas = document["components"]["schemas"]
    job = client.post("/v1/jobs", json={"inputs": [{"input": "Hello."}]}).get_json()
    item = client.get(f"{job['urls']['items']}/row-000001").get_json()
    model = client.get("/v1/models").get_json()["data"][0]
    voice = client.get("/v1/voices").get_json()["data"][0]
    health = client.get("/health").get_json()

    for name, body in (
        ("JobBody", job),
        ("ItemBody", item),
        ("ModelBody", model),
        ("VoiceBody", voice),
        ("HealthBody", health),
    ):
        assert set(schemas[name]["properties"]) == set(body)


class References(HTMLParser):
    """Everything a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in {"src", "href", "action"}]


def test_the_root_points_at_places_that_are_there(client: FlaskClient) -> None:
    body = client.get("/").get_json()

    assert (body["name"], body["version"]) == ("voicemill", __version__)
    assert {"docs", "openapi", "health"} <= set(body["urls"])
    for url in body["urls"].values():
        assert client.get(url).status_code in ({200, 503} if url == "/health" else {200}), url


def test_the_formats_in_the_document_are_those_there_are(document: dict[str, Any]) -> None:
    field = document["components"]["schemas"]["JobInput"]["properties"]["response_format"]

    assert field["anyOf"][0]["enum"] == list(RESPONSE_FORMATS)


def test_the_docs_page_fetches_nothing_from_elsewhere(client: FlaskClient) -> None:
    response = client.get("/docs")
    references = References()
    references.feed(response.text)

    assert response.headers["Content-Type"].startswith("text/html")
    assert len(references.found) == 3
    for reference in references.found:
        assert reference.startswith("/docs/assets/")
        assert client.get(reference, buffered=True).status_code == 200
    assert "//" not in re.sub(r'(src|href)="[^"]*"', "", response.text)
    assert '"/openapi.json"' in response.text
    # The bundle asks a validator on the internet unless told not to.
    assert "validatorUrl: null" in response.text


def test_a_browser_is_told_to_load_nothing_from_elsewhere(client: FlaskClient) -> None:
    response = client.get("/docs")
    policy = response.headers["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert "http" not in policy
    nonce = re.search(r"'nonce-([^']+)'", policy)
    assert nonce is not None
    assert f'<script nonce="{nonce[1]}">' in response.text


def test_the_style_sheet_fetches_nothing_from_elsewhere(client: FlaskClient) -> None:
    style = client.get("/docs/assets/swagger-ui.css", buffered=True).text

    assert not [url for url in re.findall(r"url\(([^)]*)\)", style) if "data:" not in url]
    assert "@import" not in style

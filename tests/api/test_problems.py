"""Every error has one shape, and says nothing it should not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from flask import Flask, Response, abort
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from voicemill.errors import OutOfMemoryError, leaves

CODES = {kind.code for kind in leaves()}
ERRORS = [
    ("GET", "/nope", {}, 404),
    ("GET", "/v1/jobs/", {}, 404),
    ("DELETE", "/v1/jobs", {}, 405),
    ("BREW", "/v1/jobs", {}, 405),
    ("POST", "/", {}, 405),
    ("GET", "/" + "x" * 4000, {}, 404),
    ("POST", "/healthz", {}, 405),
    ("GET", "/v1/jobs/job_1", {}, 404),
    ("GET", "/v1/jobs/job_1/items/a/audio", {}, 404),
    ("GET", "/problems/nope", {}, 404),
    ("GET", "/docs/assets/nope.js", {}, 404),
    ("GET", "/docs/assets/../app.py", {}, 404),
    ("GET", "/v1/jobs?limit=x", {}, 422),
    ("POST", "/v1/jobs", {"data": "x", "content_type": "application/json"}, 400),
    ("POST", "/v1/jobs", {"data": "x"}, 415),
    ("POST", "/v1/jobs", {"json": None}, 415),
    ("POST", "/v1/jobs", {"json": []}, 422),
    ("POST", "/v1/jobs", {"json": {"inputs": [{"input": "a"}] * 10_001}}, 413),
]


def check_problem(response: TestResponse, status: int) -> None:
    """One shape for all."""
    body = response.get_json(force=True)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    assert set(body) - {"errors"} == {"type", "title", "status", "detail", "code"}
    assert body["status"] == status
    assert body["code"] in CODES
    assert body["type"] == f"/problems/{body['code']}"
    assert body["detail"].endswith(".")
    assert ("errors" in body) == (body["code"] == "invalid_input")
    for fault in body.get("errors", []):
        assert set(fault) == {"pointer", "code", "detail"}
        assert fault["code"] in CODES
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(("method", "path", "request_", "status"), ERRORS)
def test_every_error_is_a_problem(
    client: FlaskClient, method: str, path: str, request_: dict[str, Any], status: int
) -> None:
    check_problem(client.open(path, method=method, **request_), status)


def test_a_method_that_is_not_taken_says_which_are(client: FlaskClient) -> None:
    response = client.delete("/v1/jobs")

    assert {"GET", "POST"} <= set(response.headers["Allow"].split(", "))


def test_a_doubled_slash_is_led_to_the_right_place(client: FlaskClient) -> None:
    response = client.get("/v1//jobs")

    assert response.status_code == 308
    assert response.headers["Location"].endswith("/v1/jobs")


@pytest.fixture
def broken(app: Flask) -> FlaskClient:
    """A client of an app with three routes that fail, each in its way."""

    @app.get("/bug")
    def bug() -> Response:
        raise ZeroDivisionError("secret")

    @app.get("/teapot")
    def teapot() -> Response:
        abort(418)

    @app.get("/gateway")
    def gateway() -> Response:
        abort(502)

    @app.get("/named")
    def named() -> Response:
        raise OutOfMemoryError("secret")

    return app.test_client()


def test_a_bug_is_told_to_the_log_and_not_to_the_client(
    broken: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = broken.get("/bug")

    check_problem(response, 500)
    assert response.get_json(force=True)["code"] == "internal_error"
    assert "secret" not in response.text
    assert "Traceback" not in response.text
    (record,) = [one for one in caplog.records if one.name == "api.problems"]
    assert record.exc_info is not None
    assert "/bug" in record.getMessage()


def test_a_named_failure_of_ours_keeps_its_name_and_its_details_to_the_log(
    broken: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    response = broken.get("/named")

    check_problem(response, 500)
    assert response.get_json(force=True)["code"] == "out_of_memory"
    assert "secret" not in response.text
    assert "secret" in caplog.text


@pytest.mark.parametrize(("path", "status"), [("/teapot", 418), ("/gateway", 502)])
def test_other_errors_of_the_framework_keep_their_status(
    broken: FlaskClient, path: str, status: int
) -> None:
    check_problem(broken.get(path), status)


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_type_of_a_problem_can_be_looked_up(client: FlaskClient, code: str) -> None:
    body = client.get(f"/problems/{code}").get_json()

    assert body["code"] == code
    assert body["title"]
    assert body["description"]

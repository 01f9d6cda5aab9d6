"""The API on a real Valkey, with the ``tone`` engine on offer and nobody at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from api.app import create_app
from tests.api.fleet import Fleet
from tests.support import TONE
from voicemill.settings import Settings
from voicemill.store import Store

Post = Callable[..., dict[str, Any]]


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    """A stack that speaks with ``tone``."""
    return Settings(
        redis_url=redis_url,
        engine="tone",
        home=tmp_path,
        output_dir=tmp_path / "outputs",
        max_input_characters=1000,
        free_space_floor_mb=0,
    )


@pytest.fixture
def app(settings: Settings, store: Store) -> Flask:
    """The application; ``tone`` has been offered once."""
    store.publish_engine(TONE)
    return create_app(settings)


@pytest.fixture
def client(app: Flask) -> Iterator[FlaskClient]:
    """A client of the application."""
    with app.test_client() as client:
        yield client


@pytest.fixture
def fleet(store: Store, settings: Settings) -> Fleet:
    """Workers for the items of a test."""
    return Fleet(store, settings.output_dir)


@pytest.fixture
def post(client: FlaskClient) -> Post:
    """Submit texts; gives the job."""

    def send(*texts: str, **fields: Any) -> dict[str, Any]:
        response = client.post("/v1/jobs", json={"inputs": [{"input": t} for t in texts], **fields})
        assert response.status_code == 202, response.text
        body: dict[str, Any] = response.get_json()
        return body

    return send

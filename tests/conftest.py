"""A real Valkey for every test that needs one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.stub import StubDriver, compile_libraries
from tests.support import Valkey
from voicemill.store import Store


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A server shared by the session; ``redis_url`` empties it for each test."""
    server = Valkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A server of this test's own, to stop, freeze and kill."""
    folder = tmp_path / "valkey"
    folder.mkdir()
    server = Valkey(folder)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(valkey: Valkey) -> str:
    """The URL of an empty database."""
    with socket.create_connection(("127.0.0.1", valkey.port), 5) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        assert connection.recv(16).startswith(b"+OK")
    return valkey.url


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """A store on an empty database."""
    store = Store.connect(redis_url)
    yield store
    store.close()


@pytest.fixture(scope="session")
def gpu_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub driver's libraries, compiled once."""
    return compile_libraries(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def stub_driver(gpu_libraries: Path, tmp_path: Path) -> StubDriver:
    """A driver without GPUs yet, for the processes that are given its ``env``."""
    folder = tmp_path / "gpus"
    folder.mkdir()
    return StubDriver(gpu_libraries, folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which engine the conformance suite is run for, where it is none of ours."""
    parser.addoption("--engine", help="name of an engine, for tests/conformance")
    parser.addoption("--engine-python", type=Path, help="the interpreter that it runs in")
    parser.addoption("--engine-options", default="{}", help="its VOICEMILL_ENGINE_OPTIONS, JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Tests never read the settings of whoever runs them."""
    for name in [name for name in os.environ if name.startswith("VOICEMILL_")]:
        del os.environ[name]

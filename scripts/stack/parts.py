"""The parts of a stack: what is started, with which environment, and how it is stopped. Pure."""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from voicemill.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: ``api`` and ``worker`` run from it."""

FLOWER_ADDRESS = "127.0.0.1"
FLOWER_LOGIN = "FLOWER_BASIC_AUTH"
API_THREADS = 32
"""Twice what long polls may hold (`api.context.MAX_WAITERS`)."""
API_GRACEFUL_SECONDS = 10
"""Longer than any request but a long poll, which its client repeats."""
FLOWER_TASKS = 10_000
"""Tasks Flower remembers; its own default of ten times as many costs hundreds of MB."""
FLOWER_PURGE_SECONDS = 60
WORKER_NOT_LOADED = 3
"""Exit status of a worker that tried and has no child with an engine."""
WORKER_MISCONFIGURED = 4
"""Exit status of a worker whose engine refuses its settings."""
MARGIN_SECONDS = 5.0
"""Time to leave that a part has beyond what it promises to need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of the stack."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    """The whole environment; it holds the password of Redis."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    """Time it has after the stop signal; then it is killed."""
    hopeless_status: int | None = None
    """Ending with it before the stack is ready ends the stack: another start would not help."""
    misconfigured_status: int | None = None
    """The same, and a setting is to blame: its log says which, as ``CRITICAL``."""


def part_environ(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """What every part inherits: the user's environment, with these settings and no others.

    One thread of arithmetic per process: there is a child for each core.
    """
    inherited = {name: value for name, value in environ.items() if not name.startswith(PREFIX)}
    paths = [str(ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **inherited,
        **settings.to_env(),
        "PYTHONPATH": ":".join(paths),
        "PYTHONUNBUFFERED": "1",
    }


def node_name(home: Path) -> str:
    """Celery's name of the worker: the same at every start, and no other home's."""
    return f"voicemill-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}@%h"


def host_for_url(host: str) -> str:
    """The host as a URL on this machine writes it: loopback for "any address", IPv6 in brackets."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def api_url(settings: Settings) -> str:
    """Where the API answers on this machine."""
    return f"http://{host_for_url(settings.host)}:{settings.port}"


def flower_url(settings: Settings) -> str:
    """Where Flower answers."""
    return f"http://{FLOWER_ADDRESS}:{settings.flower_port}"


def redis_part(binary: Path, config: Path, env: Mapping[str, str]) -> Part:
    """The embedded Valkey; its password is in ``config``, not among its arguments."""
    # TERM ends it as SHUTDOWN does: the append-only file is flushed first.
    return Part(name="redis", argv=(str(binary), str(config)), env=env, stop_seconds=20)


def clerk_part(env: Mapping[str, str]) -> Part:
    """The timed loops over the store."""
    return Part(name="clerk", argv=(sys.executable, "-m", "worker.clerk"), env=env)


def worker_part(settings: Settings, env: Mapping[str, str]) -> Part:
    """The Celery parent with its synthesis children."""
    return Part(
        name="worker",
        argv=(
            *(sys.executable, "-m", "celery", "-A", "worker.app", "worker"),
            *("--concurrency", str(settings.workers), "--hostname", node_name(settings.home)),
            # One worker has nobody to gossip with; both cost it seconds at start.
            *("-E", "--without-gossip", "--without-mingle", "--loglevel", settings.log_level),
        ),
        env=env,
        stop_seconds=settings.stop_seconds + MARGIN_SECONDS,
        hopeless_status=WORKER_NOT_LOADED,
        misconfigured_status=WORKER_MISCONFIGURED,
    )


def flower_part(settings: Settings, env: Mapping[str, str], login: str) -> Part:
    """Flower on loopback; ``login`` is ``user:password``."""
    return Part(
        name="flower",
        argv=(
            *(sys.executable, "-m", "celery", "-A", "worker.app", "flower"),
            *(f"--address={FLOWER_ADDRESS}", f"--port={settings.flower_port}"),
            f"--max_tasks={FLOWER_TASKS}",
            f"--purge_offline_workers={FLOWER_PURGE_SECONDS}",
        ),
        env={**env, FLOWER_LOGIN: login},
    )


def api_part(settings: Settings, env: Mapping[str, str]) -> Part:
    """The Flask API under gunicorn."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return Part(
        name="api",
        argv=(
            *(sys.executable, "-m", "gunicorn", "api.wsgi:app"),
            *("--worker-class", "gthread", "--workers", "1", "--threads", str(API_THREADS)),
            *("--bind", f"{host}:{settings.port}"),
            *("--graceful-timeout", str(API_GRACEFUL_SECONDS)),
            # Its control socket would lie outside the home.
            "--no-control-socket",
        ),
        env=env,
        stop_seconds=API_GRACEFUL_SECONDS + MARGIN_SECONDS,
    )


def served_parts(settings: Settings, environ: Mapping[str, str], login: str) -> list[Part]:
    """Everything that stands on Redis, in the order of starting; stopped in reverse."""
    env = part_environ(settings, environ)
    return [
        clerk_part(env),
        worker_part(settings, env),
        flower_part(settings, env, login),
        api_part(settings, env),
    ]

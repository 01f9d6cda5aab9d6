"""The parts of a stack: what is started, with which environment, and how it is stopped. Pure."""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from voicemill.errors import SettingsError
from voicemill.pools import Pool
from voicemill.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: ``api`` and ``worker`` run from it."""

FLOWER_ADDRESS = "127.0.0.1"
FLOWER_LOGIN = "FLOWER_BASIC_AUTH"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""For parts that have no arithmetic to do; a worker tells its children how many they may have."""
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
    """What every part inherits: the user's environment, with these settings and no others."""
    inherited = {name: value for name, value in environ.items() if not name.startswith(PREFIX)}
    paths = [str(ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        **inherited,
        **settings.to_env(),
        "PYTHONPATH": ":".join(paths),
        "PYTHONUNBUFFERED": "1",
    }


def node_name(home: Path, engine: str | None = None) -> str:
    """Celery's name of a worker: the same at every start, and no other home's.

    ``engine`` tells it from the other workers of its stack, where it has several.
    """
    name = f"voicemill-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}"
    return f"{name}-{engine}@%h" if engine else f"{name}@%h"


def worker_name(settings: Settings, engine: str) -> str:
    """The part that an engine's worker is: ``worker``, or one of several."""
    return f"worker-{engine}" if len(settings.pools) > 1 else "worker"


def worker_settings(settings: Settings) -> list[Settings]:
    """What each worker of the stack goes by: one engine, its children, its options.

    Raises ``SettingsError`` for options of no engine of a stack with several.
    """
    pools, options = settings.pools, settings.engine_options
    if len(pools) == 1:
        ((engine, children),) = pools.items()
        return [replace(settings, engine=engine, engines=(), workers=children)]
    wrong = [
        name for name in options if name not in pools or not isinstance(options[name], Mapping)
    ]
    if wrong:
        raise SettingsError(
            f"{PREFIX}ENGINE_OPTIONS: {wrong[0]!r} can't be used: a stack with several engines "
            f"takes a JSON object of options for each by its name, of {', '.join(pools)}."
        )
    engines = tuple(Pool(*pool) for pool in pools.items())
    return [
        replace(
            settings,
            engine=engine,
            engines=engines,
            workers=children,
            engine_options=options.get(engine, {}),
        )
        for engine, children in pools.items()
    ]


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
    """The Celery parent of one engine, with its synthesis children."""
    name = worker_name(settings, settings.engine)
    node = node_name(settings.home, settings.engine if name != "worker" else None)
    return Part(
        name=name,
        argv=(
            *(sys.executable, "-m", "celery", "-A", "worker.app", "worker"),
            *("--concurrency", str(settings.workers), "--hostname", node),
            # Nobody here has to gossip; both cost a worker seconds at start.
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
    env = {**ONE_THREAD, **part_environ(settings, environ)}
    return [
        clerk_part(env),
        *(worker_part(one, part_environ(one, environ)) for one in worker_settings(settings)),
        flower_part(settings, env, login),
        api_part(settings, env),
    ]

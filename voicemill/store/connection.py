"""One connection pool, the scripts, and Redis errors in our own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.retry import Retry

from voicemill.errors import StoreRefusedError, StoreUnavailableError

KEY_PREFIX = "voicemill:"
SCRIPTS = files("voicemill") / "lua"
USES = re.compile("^-- uses: (.+)$", re.MULTILINE)
"""How a script, or a part of many, names the parts in ``lua/parts`` that it stands on."""
REFUSALS = ("MISCONF", "NOREPLICAS", "OOM")
"""Refusals to write that redis-py has no class for: a full disk under the AOF, too few replicas."""


@cache
def script_text(name: str) -> str:
    """The Lua of one script, behind that of the parts it uses and of those that they use."""
    texts: dict[str, str] = {}

    def add(path: str) -> None:
        if path in texts:
            return
        text = (SCRIPTS / path).read_text("utf-8")
        if uses := USES.search(text):
            for part in uses[1].split(", "):
                add(f"parts/{part}.lua")
        texts[path] = text

    add(f"{name}.lua")
    return "\n".join(texts.values())


@contextmanager
def translated() -> Iterator[None]:
    """Turn the errors of redis-py into ours."""
    try:
        yield
    except (redis.exceptions.OutOfMemoryError, redis.exceptions.ReadOnlyError) as error:
        raise StoreRefusedError(f"Redis takes no writes: {sentence(error)}") from error
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        raise StoreUnavailableError(f"Redis can't be reached: {sentence(error)}") from error
    except redis.exceptions.ResponseError as error:
        if not str(error).startswith(REFUSALS):
            raise
        raise StoreRefusedError(f"Redis takes no writes: {sentence(error)}") from error


def sentence(error: Exception) -> str:
    """What an error says, with one full stop."""
    return f"{str(error).rstrip('. ')}."


class Connection:
    """A Redis client with our scripts on it."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis: Any = client
        """Untyped on purpose: redis-py types every answer as the union over all its options."""
        self._scripts: dict[str, Script] = {}

    @classmethod
    def connect(cls, url: str, *, timeout: float = 1.0) -> Self:
        """A store on the Redis at ``url``; a call waits ``timeout`` seconds at most."""
        return cls(
            redis.Redis.from_url(
                url,
                decode_responses=False,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                retry=Retry(NoBackoff(), 0),
                health_check_interval=0,
            )
        )

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def ping(self) -> None:
        """Raise ``StoreUnavailableError`` unless Redis answers."""
        with translated():
            self._redis.ping()

    def script(self, name: str) -> Script:
        """A script by its file name; it is loaded again by itself after a restart of Redis."""
        if name not in self._scripts:
            self._scripts[name] = self._redis.register_script(script_text(name))
        return self._scripts[name]

    def run(self, name: str, *args: str | int | float | bytes) -> Any:
        """The answer of one script."""
        with translated():
            return self.script(name)(args=args)


def key(*parts: str) -> str:
    """The Redis key of these parts, as ``parts/keys.lua`` builds it."""
    return KEY_PREFIX + ":".join(parts)

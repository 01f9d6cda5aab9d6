"""A Redis that would lose jobs is refused, with what to do about it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support import Valkey
from voicemill.errors import SettingsError
from voicemill.store import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(own_valkey: Valkey) -> Iterator[Store]:
    store = Store.connect(own_valkey.url)
    yield store
    store.close()


def configure(server: Valkey, **settings: str) -> None:
    client: Any = redis.Redis.from_url(server.url)
    for name, value in settings.items():
        client.config_set(name.replace("_", "-"), value)
    client.close()


def test_a_server_as_we_ship_it_is_taken(store: Store) -> None:
    store.refuse_forgetful()


@pytest.mark.parametrize(
    ("settings", "faults", "cures"),
    [
        (
            {"maxmemory_policy": "allkeys-lru"},
            ["throws records away when it is full (allkeys-lru)"],
            ["`CONFIG SET maxmemory-policy noeviction`"],
        ),
        (
            {"appendonly": "no"},
            ["has no append-only file"],
            ["`CONFIG SET appendonly yes`"],
        ),
        (
            {"maxmemory_policy": "volatile-ttl", "appendonly": "no"},
            ["volatile-ttl", "append-only"],
            ["noeviction` and `CONFIG SET appendonly yes`"],
        ),
    ],
)
def test_a_forgetful_server_is_refused_until_it_is_cured(
    own_valkey: Valkey,
    store: Store,
    settings: dict[str, str],
    faults: list[str],
    cures: list[str],
) -> None:
    configure(own_valkey, **settings)
    with pytest.raises(SettingsError) as refused:
        store.refuse_forgetful()
    for part in (*faults, *cures, "VOICEMILL_REDIS_CHECK=off"):
        assert part in refused.value.message
    configure(own_valkey, maxmemory_policy="noeviction", appendonly="yes")
    store.refuse_forgetful()


def test_a_server_that_tells_nothing_is_taken(own_valkey: Valkey, store: Store) -> None:
    client: Any = redis.Redis.from_url(own_valkey.url)
    client.acl_setuser("quiet", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all"])
    client.execute_command("ACL", "SETUSER", "quiet", "-info")
    url = own_valkey.url.replace("://", "://quiet:x@")
    quiet = Store.connect(url)
    quiet.refuse_forgetful()
    quiet.close()
    client.close()


PARTS = {
    "clerk": ["-m", "worker.clerk"],
    "worker": ["-m", "celery", "-A", "worker.app", "worker", "--without-mingle"],
    "api": ["-c", "import api.wsgi"],
}


@pytest.mark.full
@pytest.mark.parametrize("part", PARTS)
def test_no_part_starts_on_a_forgetful_server(
    own_valkey: Valkey, tmp_path: Path, part: str
) -> None:
    configure(own_valkey, appendonly="no")
    ended = subprocess.run(
        [sys.executable, *PARTS[part]],
        cwd=ROOT,
        env={
            **os.environ,
            "VOICEMILL_REDIS_URL": own_valkey.url,
            "VOICEMILL_ENGINE": "tone",
            "VOICEMILL_HOME": str(tmp_path),
            "VOICEMILL_WORKERS": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 4, ended.stderr
    assert "`CONFIG SET appendonly yes`" in ended.stderr


def test_a_forgetful_server_is_taken_where_that_is_asked_for(
    own_valkey: Valkey, tmp_path: Path
) -> None:
    configure(own_valkey, appendonly="no")
    ended = subprocess.run(
        [sys.executable, *PARTS["api"]],
        cwd=ROOT,
        env={
            **os.environ,
            "VOICEMILL_REDIS_URL": own_valkey.url,
            "VOICEMILL_HOME": str(tmp_path),
            "VOICEMILL_REDIS_CHECK": "off",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr

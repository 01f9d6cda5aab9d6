"""``scripts/tenants.py`` on a real store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from voicemill.limits import Limits
from voicemill.store import Store
from voicemill.tenants import Tenant

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "tenants.py"


def tenants(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )


def test_a_tenant_is_created_listed_and_revoked(store: Store, redis_url: str) -> None:
    on_store = ("--redis-url", redis_url)
    caps = ("--weight", "2.5", "--max-running-items", "8", "--max-queued-characters", "1000")
    limits = ("--max-output-seconds", "60", "--max-item-seconds", "7.5", "--max-memory-mb", "900")
    made = tenants(*on_store, "create", "books", *caps, *limits)
    assert (made.returncode, made.stderr) == (0, "")
    assert store.tenant_of(made.stdout.strip()) == "books"
    assert [one.tenant for one in store.tenants()] == [
        Tenant("books", 2.5, 8, None, 1000, Limits(60.0, 7.5, 900))
    ]

    again = tenants(*on_store, "create", "books")
    assert (again.returncode, again.stdout) == (1, "")
    assert "revoke it first" in again.stderr

    listed = tenants(*on_store, "list").stdout.splitlines()
    assert [" ".join(line.split()) for line in listed] == [
        "tenant key weight running queued characters an item may take",
        "books yes 2.5 0/8 0 0/1000 60s audio, 7.5s device, 900 MiB",
    ]
    assert tenants(*on_store, "revoke", "books").returncode == 0
    assert tenants(*on_store, "revoke", "books").returncode == 1
    assert store.tenant_of(made.stdout.strip()) is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["create"],
        ["create", "No"],
        ["create", "a:b"],
        ["create", "a", "--weight", "0"],
        ["create", "a", "--weight", "nan"],
        ["create", "a", "--max-queued-items", "0"],
        ["create", "a", "--max-output-seconds", "0"],
        ["create", "a", "--max-item-seconds", "nan"],
    ],
)
def test_a_command_line_that_can_not_be_used_says_so(arguments: list[str]) -> None:
    ended = tenants(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "error:" in ended.stderr


def test_a_store_that_is_away_is_named() -> None:
    ended = tenants("--redis-url", "redis://127.0.0.1:1/0", "list")
    assert ended.returncode == 3
    assert "Redis can't be reached" in ended.stderr
    assert "Traceback" not in ended.stderr

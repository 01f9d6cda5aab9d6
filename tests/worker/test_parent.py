"""What the parent of a worker says of its slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import wait_until
from voicemill.settings import Settings
from voicemill.store import Store
from worker.parent import Parent


@pytest.fixture
def parent(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parent]:
    """One that tells how it is, often."""
    monkeypatch.setattr("worker.heartbeat.LONGEST_PAUSE_SECONDS", 0.05)
    parent = Parent(Settings(redis_url=redis_url, engine="tone"), "node@host")
    parent.start()
    yield parent
    parent.stop()


def failure(store: Store) -> str | None:
    """What the record of the only worker names."""
    told: list[str | None] = [record["failure"] for record in store.snapshot().workers]
    return told[0] if told else None


def test_an_empty_slot_is_told_until_a_child_of_that_very_slot_is_up(
    parent: Parent, store: Store
) -> None:
    parent.load_failed(11, 0, 3)
    parent.load_failed(12, 1, 3)
    wait_until(lambda: "Child 12" in (failure(store) or ""))
    assert "Child 11" in (failure(store) or "")
    parent.child_up(1)
    wait_until(lambda: "Child 12" not in (failure(store) or ""))
    assert "Child 11" in (failure(store) or "")
    parent.child_up(0)
    wait_until(lambda: failure(store) is None)


def test_a_slot_that_is_given_up_is_told_of_no_more(parent: Parent, store: Store) -> None:
    parent.load_failed(11, 0, 3)
    parent.load_failed(12, 1, 3)
    parent.slots_given_up(1)
    wait_until(lambda: "Child 11" in (failure(store) or ""))
    assert "Child 12" not in (failure(store) or "")

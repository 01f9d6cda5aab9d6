"""What the environment says, as engines read it."""

from __future__ import annotations

import pytest

from worker.environment import THREADS, thread_share


@pytest.mark.parametrize(
    ("said", "threads"),
    [("3", 3), (" 4 , 2", 4), ("0", 1), ("-2", 1), ("", 1), ("many", 1)],
)
def test_an_engine_has_the_threads_that_openmp_would_have(
    monkeypatch: pytest.MonkeyPatch, said: str, threads: int
) -> None:
    monkeypatch.setenv(THREADS, said)
    assert thread_share() == threads


def test_an_engine_that_is_told_nothing_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    assert thread_share() == 1

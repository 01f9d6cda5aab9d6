"""The private names of Celery and billiard that ``worker/pool.py`` stands on, one by one.

A failure here after an upgrade says which of them moved.
"""

from __future__ import annotations

import inspect

import billiard.pool
import pytest
from celery.concurrency import asynpool, prefork
from celery.worker import state

METHODS = [
    (asynpool.Worker, "_make_child_methods", ["self", "loads"]),
    (asynpool.AsynPool, "on_process_alive", ["self", "pid"]),
    (asynpool.AsynPool, "_event_process_exit", ["self", "hub", "proc"]),
    (asynpool.AsynPool, "_join_exited_workers", ["self", "shutdown"]),
    (asynpool.AsynPool, "maintain_pool", ["self"]),
]
ATTRIBUTES = [
    (billiard.pool.Worker.__init__, "self.maxtasks ="),
    (billiard.pool.Worker.__init__, "self.max_memory_per_child ="),
    (billiard.pool.Worker.workloop, "wait_for_job = self.wait_for_job"),
    (billiard.pool.Pool.__init__, "self._pool ="),
    (billiard.pool.Pool.__init__, "self._state ="),
]


@pytest.mark.parametrize(("owner", "name", "parameters"), METHODS)
def test_the_methods_that_are_overridden_take_what_they_took(
    owner: type, name: str, parameters: list[str]
) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


@pytest.mark.parametrize(("function", "line"), ATTRIBUTES)
def test_the_attributes_that_are_read_are_still_set(function: object, line: str) -> None:
    assert line in inspect.getsource(function)  # type: ignore[arg-type]


def test_the_pools_are_found_through_the_class() -> None:
    assert prefork.TaskPool.Pool is asynpool.AsynPool
    assert asynpool.AsynPool.Worker is asynpool.Worker


def test_the_constants_are_there() -> None:
    assert billiard.pool.EX_RECYCLE == 155
    assert billiard.pool.RUN == 0
    assert billiard.pool.GUARANTEE_MESSAGE_CONSUMPTION_RETRY_LIMIT in (30, 300)
    assert state.should_stop is None

"""The names of Celery, kombu and billiard that pool and intake stand on, one by one.

A failure here after an upgrade says which of them moved.
"""

from __future__ import annotations

import inspect

import billiard.pool
import billiard.process
import billiard.queues
import pytest
from billiard.semaphore_tracker import SemaphoreTracker
from celery.concurrency import asynpool, prefork
from celery.worker import state
from celery.worker.consumer import Consumer
from celery.worker.consumer.tasks import Tasks
from kombu import Consumer as MessageConsumer
from kombu.asynchronous.hub import Hub
from kombu.common import QoS

METHODS = [
    (asynpool.Worker, "__call__", ["self"]),
    (asynpool.Worker, "_make_child_methods", ["self", "loads"]),
    (asynpool.Worker, "on_loop_start", ["self", "pid"]),
    (asynpool.AsynPool, "register_with_event_loop", ["self", "hub"]),
    (asynpool.AsynPool, "on_process_alive", ["self", "pid"]),
    (
        asynpool.AsynPool,
        "_create_write_handlers",
        ["self", "hub", "pack", "dumps", "protocol"],
    ),
    (asynpool.AsynPool, "flush", ["self"]),
    (asynpool.AsynPool, "create_process_queues", ["self"]),
    (asynpool.AsynPool, "_create_worker_process", ["self", "i"]),
    (asynpool.AsynPool, "_repopulate_pool", ["self", "exitcodes"]),
    (asynpool.AsynPool, "_event_process_exit", ["self", "hub", "proc"]),
    (asynpool.AsynPool, "_join_exited_workers", ["self", "shutdown"]),
    (asynpool.AsynPool, "on_job_ready", ["self", "job", "i", "obj", "inqW_fd"]),
    (asynpool.AsynPool, "_on_hard_timeout", ["self", "job"]),
    (asynpool.AsynPool, "maintain_pool", ["self"]),
    (asynpool.AsynPool, "close", ["self"]),
    (billiard.pool.ApplyResult, "worker_pids", ["self"]),
    (
        Consumer,
        "add_task_queue",
        ["self", "queue", "exchange", "exchange_type", "routing_key", "options"],
    ),
    (MessageConsumer, "cancel_by_queue", ["self", "queue"]),
    (MessageConsumer, "consuming_from", ["self", "queue"]),
    (QoS, "update", ["self"]),
    (Hub, "call_soon", ["self", "callback", "args"]),
    (Hub, "call_later", ["self", "delay", "callback", "args"]),
    (Hub, "remove_writer", ["self", "fd"]),
]
ATTRIBUTES = [
    (billiard.pool.Worker.__init__, "self.maxtasks ="),
    (billiard.pool.Worker.__init__, "self.max_memory_per_child ="),
    (billiard.pool.Worker.workloop, "wait_for_job = self.wait_for_job"),
    (billiard.pool.Worker.contribute_to_object, "obj.inqW_fd ="),
    (billiard.pool.Worker.contribute_to_object, "obj.inq, obj.outq"),
    (billiard.pool.Pool.__init__, "self._pool ="),
    (billiard.pool.Pool.__init__, "self._state ="),
    (billiard.pool.Pool.__init__, "self._cache ="),
    (billiard.pool.Pool.__init__, "self._processes ="),
    (billiard.pool.Pool.__init__, "self.restart_state ="),
    (billiard.pool.Pool.__init__, "self._result_handler ="),
    (billiard.pool.Pool._create_worker_process, "w.index = i"),
    (billiard.pool.Pool._join_exited_workers, "_controlled_termination"),
    (billiard.pool.ApplyResult.__init__, "self._accepted ="),
    (billiard.pool.ResultHandler._make_methods, "self.state_handlers ="),
    (asynpool.AsynPool._create_write_handlers, "job._write_to = proc"),
    (asynpool.AsynPool._create_write_handlers, "self._quick_put = send_job"),
    (asynpool.AsynPool._create_write_handlers, "put_message = outbound.append\n"),
    (asynpool.AsynPool._create_write_handlers, "hub.consolidate_callback = schedule_writes"),
    (asynpool.AsynPool.__init__, "self.outbound_buffer ="),
    (billiard.pool.Pool.apply_async, "(TASK, (result._job, None, func, args, kwds))"),
    (asynpool.AsynPool.__init__, "self._queues ="),
    (asynpool.AsynPool.__init__, "self._all_inqueues ="),
    (asynpool.AsynPool.__init__, "self._active_writes ="),
    (asynpool.AsynPool.__init__, "self._busy_workers ="),
    (asynpool.AsynPool.__init__, "self._fileno_to_inq ="),
    (asynpool.AsynPool.__init__, "self._waiting_to_start ="),
    (asynpool.AsynPool._create_process_handlers, "self.on_process_up = on_process_up"),
    (asynpool.AsynPool.register_with_event_loop, "self.timers.items()"),
    (asynpool.AsynPool.get_process_queues, "if owner is None"),
    (billiard.pool.Worker.contribute_to_object, "self.inq, self.outq, self.synq"),
    (billiard.queues._SimpleQueue.__init__, "self._reader"),
    (billiard.process.BaseProcess._is_alive, "self._popen.poll()"),
    (SemaphoreTracker.ensure_running, "if self._fd is not None:"),
    (Tasks.start, "c.task_consumer ="),
    (Tasks.start, "c.qos ="),
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

"""What the running worker says of its own settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

from tests.e2e.stack import Worker
from tests.support import Valkey, inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.jobs import new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, valkey: Valkey) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("worker")
    with Worker(valkey.url, folder, "--max-tasks-per-child", "7") as worker:
        yield worker


EXPECTED = {
    "task_ignore_result": False,
    "worker_pool": "worker.pool:TaskPool",
    "worker_pool_start_method": "spawn",
    "worker_prefetch_multiplier": 1,
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": False,
    "task_track_started": True,
    "worker_send_task_events": True,
    "task_send_sent_event": True,
    "accept_content": ["json"],
    "result_backend_always_retry": True,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "result_expires": 604800,
    "worker_proc_alive_timeout": 300.0,
}


def test_the_running_worker_holds_the_settings_of_celeryconfig(worker: Worker) -> None:
    conf = worker.inspect("conf")
    assert {name: conf.get(name) for name in EXPECTED} == EXPECTED
    assert conf["broker_transport_options"]["visibility_timeout"] >= 3600


def test_the_command_line_wins_over_max_tasks_per_child(worker: Worker) -> None:
    pool: dict[str, Any] = worker.inspect("stats")["pool"]
    assert pool["max-tasks-per-child"] == 7
    assert pool["implementation"] == "worker.pool:TaskPool"
    assert len(pool["processes"]) == 1


def test_the_parent_has_loaded_no_engine(worker: Worker) -> None:
    maps = Path(f"/proc/{worker.pid}/maps").read_text()
    assert "onnxruntime" not in maps
    assert "libtorch" not in maps


def test_a_pickled_message_is_refused_and_the_worker_goes_on(worker: Worker) -> None:
    worker.send_pickled()
    assert worker.inspect("stats")["pool"]["max-tasks-per-child"] == 7
    assert not worker.pickle_ran()


def test_a_second_copy_of_a_message_does_not_take_the_place_of_the_result(
    worker: Worker, valkey: Valkey
) -> None:
    store = Store.connect(valkey.url)
    settings = Settings.from_env({"VOICEMILL_REDIS_URL": valkey.url, "VOICEMILL_ENGINE": "tone"})
    job_id = new_job_id()
    store.create_job(job_id, "default", inputs("Take your time. {tone:seconds=1}"), {})
    queue = Queue(settings)
    Dispatcher(store, queue, settings).admit()
    wait_until(lambda: store.job(job_id).counts.in_progress == 1)
    task_id = store.item(job_id, "row-000001").task_id
    assert task_id is not None
    queue.send("tone", task_id, time_limit=60)
    with Celery(backend=valkey.url, set_as_current=False) as app:
        result = AsyncResult(task_id, app=app)
        wait_until(lambda: f"{task_id} is not ours" in worker.log or result.ready(), 20)
        (outcome,) = result.get(timeout=20)
    assert outcome["status"] == "succeeded"

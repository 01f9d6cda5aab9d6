"""What the running worker says of its own settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from celery import Celery
from celery.result import AsyncResult

from api.app import create_app
from tests.e2e.stack import ROOT, Worker
from tests.support import Valkey, inputs, wait_until
from voicemill.dispatch import Dispatcher
from voicemill.jobs import JobStatus, new_job_id
from voicemill.queue import Queue
from voicemill.settings import Settings
from voicemill.store import Store


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, valkey: Valkey) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("worker")
    limit = {"VOICEMILL_HOST_MEMORY_LIMIT": "900MiB"}
    with Worker(valkey.url, folder, "--max-tasks-per-child", "7", **limit) as worker:
        yield worker


EXPECTED = {
    "accept_content": ["json"],
    "broker_channel_error_retry": True,
    "broker_connection_max_retries": None,
    "broker_connection_retry_on_startup": True,
    "enable_utc": True,
    "imports": ["worker.tasks"],
    "redis_backend_health_check_interval": 30,
    "result_backend_always_retry": True,
    "result_backend_max_retries": 200,
    "result_backend_transport_options": {"visibility_timeout": 14400},
    "result_expires": 604800,
    "result_serializer": "json",
    "task_acks_late": True,
    "task_default_queue": "synthesis.tone",
    "task_ignore_result": False,
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": False,
    "task_send_sent_event": True,
    "task_serializer": "json",
    "task_track_started": True,
    "visibility_timeout": 14400,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_concurrency": 1,
    "worker_deduplicate_successful_tasks": True,
    "worker_hijack_root_logger": True,
    "worker_max_memory_per_child": 900 * 1024,
    "worker_max_tasks_per_child": 1000,
    "worker_pool": "worker.pool:TaskPool",
    "worker_pool_putlocks": False,
    "worker_pool_start_method": "spawn",
    "worker_prefetch_multiplier": 1,
    "worker_proc_alive_timeout": 300.0,
    "worker_send_task_events": True,
}
ASKED_APART = {"broker_url", "result_backend", "broker_transport_options"}


def test_the_running_worker_holds_every_key_of_celeryconfig(worker: Worker, valkey: Valkey) -> None:
    conf = worker.inspect("conf")
    assert {name: conf.get(name) for name in EXPECTED} == EXPECTED
    assert conf["result_backend"] == valkey.url
    assert conf["broker_url"] == valkey.url.replace("//", "//:********@")
    transport = conf["broker_transport_options"]
    assert transport["visibility_timeout"] == 14400
    assert transport["health_check_interval"] == 25
    assert transport["socket_keepalive"] is True
    keys = re.findall(r"^(\w+) = ", (ROOT / "celeryconfig.py").read_text("utf-8"), re.MULTILINE)
    assert {key for key in keys if not key.startswith("_")} == EXPECTED.keys() | ASKED_APART


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
        result: AsyncResult[Any] = AsyncResult(task_id, app=app)
        wait_until(lambda: f"{task_id} is not ours" in worker.log or result.ready(), 20)
        (outcome,) = result.get(timeout=20)
    assert outcome["status"] == "succeeded"


@pytest.mark.full
def test_a_child_leaves_after_as_many_tasks_as_the_command_line_says(
    tmp_path: Path, own_valkey: Valkey
) -> None:
    settings = Settings.from_env(
        {"VOICEMILL_REDIS_URL": own_valkey.url, "VOICEMILL_ENGINE": "tone"}, home=tmp_path
    )
    recycles = 'voicemill_recycles_total{reason="tasks"}'
    with (
        closing(Store.connect(own_valkey.url)) as store,
        create_app(settings).test_client() as api,
        Worker(own_valkey.url, tmp_path, "--max-tasks-per-child", "2") as worker,
    ):

        def children() -> list[int]:
            found: list[int] = worker.inspect("stats")["pool"]["processes"]
            return found

        def run_a_task() -> None:
            job_id = new_job_id()
            store.create_job(job_id, "default", inputs("One."), {})
            Dispatcher(store, Queue(settings), settings).admit()
            wait_until(lambda: store.job(job_id).status is JobStatus.COMPLETED)

        first = children()
        run_a_task()
        assert children() == first
        assert recycles not in api.get("/metrics").text
        run_a_task()
        wait_until(lambda: f"{recycles} 1.0" in api.get("/metrics").text, 20, "the recycle")
        wait_until(lambda: len(children()) == 1 and children() != first, 20, "a successor")
        run_a_task()
        assert not psutil.pid_exists(first[0])
        assert f"child {first[0]} recycles: tasks after 2 tasks" in worker.log

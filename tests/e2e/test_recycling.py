"""Children leave for each reason, between batches, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, tone
from tests.e2e.stack import Worker
from tests.support import wait_until
from voicemill.health import observe
from voicemill.jobs import ItemStatus
from voicemill.settings import Settings

LINES = [f"Line {n}." for n in range(8)]


ONE_BY_ONE = tone(seconds_per_segment=0.05)
"""Each item costs more than a batch may, so none shares a call of the engine with another."""
BY_WORK = {
    "tasks": {"VOICEMILL_MAX_TASKS_PER_CHILD": "2"},
    "items": {"VOICEMILL_MAX_ITEMS_PER_CHILD": "2"},
    "host_memory": {"VOICEMILL_HOST_MEMORY_LIMIT": "1.3x", **tone(leak_host_mb=20)},
    "celery_max_memory": {"VOICEMILL_HOST_MEMORY_LIMIT": "600MiB", **tone(leak_host_mb=100)},
}
QUICK = {"tasks"}
COUNTED = {"items": "tasks", "celery_max_memory": "host_memory"}


@pytest.mark.parametrize(
    "cause",
    [one if one in QUICK else pytest.param(one, marks=pytest.mark.full) for one in BY_WORK],
)
def test_work_wears_a_child_out_and_each_item_is_spoken_once(
    cause: str, tmp_path: Path, redis_url: str
) -> None:
    reason = COUNTED.get(cause, cause)
    with SoloWorker(redis_url, tmp_path, **BY_WORK[cause]) as worker:
        items = worker.wait_for(worker.submit(*LINES))
        worker.wait_until("a recycle", lambda: worker.recycles().get(reason))
        assert worker.recycles().keys() == {reason}
        assert worker.stop() == 0
    assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}
    assert f"recycles: {reason}" in worker.log


@pytest.mark.full
def test_an_idle_child_is_replaced_when_it_is_old(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path, VOICEMILL_MAX_AGE_SECONDS="1") as worker:
        worker.wait_until("a recycle", lambda: worker.recycles().get("age"))
        worker.wait_until("its record", lambda: worker.record.recycles)
        assert worker.record.recycles[0].reason == "age"
        assert worker.record.recycles[0].successor is not None
        assert worker.stop() == 0


@pytest.mark.full
def test_a_child_over_its_limit_stays_until_it_has_lived_for_a_while(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**BY_WORK["host_memory"], "VOICEMILL_MIN_AGE_SECONDS": "600"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        (child,) = worker.store.snapshot().children
        worker.wait_for(worker.submit(*LINES))

        def is_over() -> bool:
            (now,) = worker.store.snapshot().children
            over: bool = now["next_reason"] == "host_memory" and now["nearness"] >= 1
            return over and now["pid"] == child["pid"]

        worker.wait_until("a child over its limit", is_over)
        worker.wait_for(worker.submit("One more."))
        assert is_over()
        assert worker.recycles() == {}
        assert [one.pid for one in worker.record.processes] == [child["pid"]]
        assert worker.stop() == 0
    assert "should be replaced" not in worker.log, "it has not even asked"


@pytest.mark.full
def test_a_child_that_has_grown_slow_is_replaced(tmp_path: Path, redis_url: str) -> None:
    env = tone(seconds_per_segment=0.01, slow_factor=1.02)
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        lines = [f"This is line number {n} of a long job." for n in range(120)]
        items = worker.wait_for(worker.submit(*lines))
        worker.wait_until("a recycle", lambda: worker.recycles())
        assert worker.recycles().keys() == {"slow"}
        assert worker.stop() == 0
    assert {(item.status, item.attempts) for item in items} == {(ItemStatus.SUCCEEDED, 1)}


@pytest.mark.full
@pytest.mark.parametrize(("max_errors", "recycles"), [("3", {"errors": 1}), ("off", {})])
def test_an_engine_that_does_not_speak_any_more_is_replaced(
    max_errors: str, recycles: dict[str, int], tmp_path: Path, redis_url: str
) -> None:
    limits = {"VOICEMILL_MAX_ERRORS": max_errors, "VOICEMILL_MAX_ATTEMPTS": "1"}
    with SoloWorker(redis_url, tmp_path, **limits, **tone(fail="always")) as worker:
        old = worker.the_child()
        job_id = worker.submit(*LINES[:3])
        worker.wait_until("its end", lambda: worker.has_ended(job_id))
        assert {item.status for item in worker.store.items(job_id)} == {ItemStatus.FAILED}
        worker.wait_until("the recycles", lambda: worker.recycles() == recycles)
        worker.wait_until("a child", lambda: worker.processes("ready"))
        assert (worker.the_child()["pid"] != old["pid"]) is bool(recycles)
        assert worker.stop() == 0


@pytest.mark.full
def test_texts_that_fail_in_a_row_replace_no_engine_that_speaks(
    tmp_path: Path, redis_url: str
) -> None:
    lines = [*(f"{{tone:fail}} Bad {n}." for n in range(7)), *LINES]
    env = {"VOICEMILL_MAX_ERRORS": "3", "VOICEMILL_MAX_ATTEMPTS": "2", **ONE_BY_ONE}
    with SoloWorker(redis_url, tmp_path, "-l", "INFO", **env) as worker:
        old = worker.the_child()
        items = worker.wait_for(worker.submit(*lines))
        before, said, _ = worker.log.partition("though the engine speaks")
        assert said
        assert before.count("succeeded in") == 2, "the engine is tried within the third batch"
        assert worker.recycles() == {}
        assert worker.the_child()["pid"] == old["pid"]
        assert worker.stop() == 0
    assert [item.status for item in items] == [
        *[ItemStatus.FAILED] * 7,
        *[ItemStatus.SUCCEEDED] * len(LINES),
    ]


@pytest.mark.full
def test_a_text_that_finds_no_memory_leaves_no_slot_empty(tmp_path: Path, redis_url: str) -> None:
    env = {"VOICEMILL_MIN_AGE_SECONDS": "60", "VOICEMILL_RETRY_SECONDS": "off"}
    with SoloWorker(redis_url, tmp_path, **env, **tone(memory_characters=50)) as worker:
        old = worker.the_child()
        items = worker.wait_for(worker.submit(*LINES, f"{'A' * 80} {'B' * 80}", *LINES))
        assert worker.recycles() == {}
        assert worker.the_child()["pid"] == old["pid"]
        assert worker.record.failure is None
        assert worker.stop() == 0
    failed = items.pop(len(LINES))
    assert failed.error is not None
    assert (failed.status, failed.error.code) == (ItemStatus.FAILED, "out_of_memory")
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}


@pytest.mark.full
def test_a_child_that_breaks_soon_after_its_start_is_not_replaced_at_once_and_it_is_said(
    tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_MIN_AGE_SECONDS": "60", "VOICEMILL_MAX_ATTEMPTS": "1", **ONE_BY_ONE}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        (child,) = worker.processes("ready")
        job_id = worker.submit("{tone:poison} One.", *LINES)
        worker.wait_until("the warning", lambda: worker.record.failure)
        said = f"Child {child.pid} left soon after its start (errors); its slot is empty"
        assert str(worker.record.failure).startswith(said)
        worker.wait_until("an empty slot", lambda: worker.record.processes == [])
        items = worker.wait_for(job_id)
        worker.wait_until("no warning", lambda: worker.record.failure is None)
        assert worker.recycles() == {"errors": 1}
        assert worker.stop() == 0
    assert [item.status for item in items] == [
        ItemStatus.FAILED,
        *[ItemStatus.SUCCEEDED] * len(LINES),
    ]


@pytest.mark.full
def test_a_fresh_child_over_a_limit_works_on_and_health_says_so(
    tmp_path: Path, redis_url: str
) -> None:
    settings = Settings.from_env({"VOICEMILL_ENGINE": "tone"})
    with SoloWorker(redis_url, tmp_path, VOICEMILL_HOST_MEMORY_LIMIT="10MiB") as worker:
        items = worker.wait_for(worker.submit(*LINES))
        assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
        assert worker.recycles() == {}
        worker.wait_until("the warning", lambda: observe(worker.store, settings).warnings)
        (warning,) = observe(worker.store, settings).warnings
        assert "raise VOICEMILL_HOST_MEMORY_LIMIT" in warning
        assert worker.log.count("MiB used of 10MiB. The limit is not obeyed; raise ") == 1
        assert worker.stop() == 0


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (tone(no_such_option=1), "no_such_option"),
        ({"VOICEMILL_RECYCLE_AT": "at two"}, "VOICEMILL_RECYCLE_AT='at two'"),
    ],
    ids=["engine option", "schedule"],
)
@pytest.mark.full
def test_a_bad_setting_ends_the_worker_and_says_why(
    env: dict[str, str], reason: str, tmp_path: Path, redis_url: str
) -> None:
    with Worker(redis_url, tmp_path, **env) as worker:
        wait_until(lambda: worker.exit_status is not None, 30, "the end of the worker")
        assert worker.exit_status == 4
        assert reason in worker.log

"""A child's successor is ready before the child leaves, and nothing is lost whoever dies."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once, tone
from tests.e2e.stack import alive
from tests.gpu.stub import StubDriver
from tests.support import Valkey, wait_until
from voicemill.jobs import ItemStatus
from voicemill.rollouts import Canary
from worker.exits import EXIT_NOT_LOADED

TWO_TASKS = {"VOICEMILL_MAX_TASKS_PER_CHILD": "2"}
LINES = [f"Line {n}." for n in range(24)]


def test_children_are_replaced_by_warm_ones_and_each_item_is_spoken_once(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=0.5, seconds_per_segment=0.1)}
    with SoloWorker(redis_url, tmp_path, "--loglevel=INFO", **env) as worker:
        items = worker.wait_for(worker.submit(*LINES[:8]))
        while len(recycles := worker.record.recycles) < 3:
            items += worker.wait_for(worker.submit("One more.", "And another."))
        assert worker.stop() == 0
    assert_each_spoken_once(items)
    assert {one.reason for one in recycles} == {"tasks"}
    for one in recycles:
        assert one.successor is not None
        assert one.handover_seconds is not None
        assert one.warmup_seconds is not None
        assert one.handover_seconds > one.warmup_seconds >= 0.5
    for earlier, later in pairwise(recycles):
        assert later.pid == earlier.successor, "each successor is the next to be replaced"
    ready = worker.log.index(f"child {recycles[0].successor} ready")
    assert ready < worker.log.index(f"child {recycles[0].pid} recycles: tasks")


@pytest.mark.full
def test_a_successor_killed_while_it_loads_is_tried_again_and_the_old_child_goes_on(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=2, seconds_per_segment=0.1)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        job_id = worker.submit(*LINES)
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        (successor,) = worker.processes("loading")
        os.kill(successor.pid, signal.SIGKILL)
        worker.wait_until("the failure", lambda: worker.record.failure)
        assert str(successor.pid) in str(worker.record.failure)
        items = worker.wait_for(job_id)
        worker.wait_until("a hand-over", lambda: worker.record.recycles)
        assert worker.record.failure is None
        assert worker.record.recycles[0].successor not in (None, successor.pid)
        failures = [n for name, _, n in worker.store.metrics() if "handover_failures" in name]
        assert failures == [1.0]
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
@pytest.mark.parametrize(
    ("obstacle", "failure", "logged"),
    [
        ("fail_load_while", "status 3 (its engine did not load", "told to fail"),
        ("fail_warm_up_while", "status 3 (its engine did not load, or did not speak", "told to"),
        ("hang_load_while", "-9 (killed, maybe because VOICEMILL_LOAD_TIMEOUT", "Timed out"),
    ],
)
def test_successors_that_do_not_come_up_change_nothing_until_one_does(
    obstacle: str, failure: str, logged: str, tmp_path: Path, redis_url: str
) -> None:
    path = tmp_path / "obstacle"
    env = {**tone(**{obstacle: str(path)}), "VOICEMILL_LOAD_TIMEOUT_SECONDS": "10"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        (old,) = worker.processes("ready")
        path.touch()
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("a try", lambda: worker.processes("loading") or worker.record.failure)
        items = worker.wait_for(worker.submit(*LINES[:4]))
        worker.wait_until("the failure", lambda: worker.record.failure)
        assert failure in str(worker.record.failure)
        assert logged in worker.log
        items += worker.wait_for(worker.submit(*LINES[4:8]))
        assert old.pid in {one.pid for one in worker.processes("ready", "busy")}
        path.unlink()
        worker.wait_until("a hand-over", lambda: worker.record.recycles)
        assert (worker.record.recycles[0].pid, worker.record.failure) == (old.pid, None)
        failures = [n for name, _, n in worker.store.metrics() if "handover_failures" in name]
        assert failures == [1.0]
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
def test_a_first_child_that_hangs_while_it_loads_is_killed_and_no_stop_waits_for_it(
    tmp_path: Path, redis_url: str
) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    env = {"VOICEMILL_LOAD_TIMEOUT_SECONDS": "4", "VOICEMILL_STOP_SECONDS": "600"}
    worker = SoloWorker(redis_url, tmp_path, **env, **tone(hang_load_while=str(obstacle)))
    with ExitStack() as stack:
        worker.launch()
        stack.push(worker)
        worker.wait_until("a child that loads", lambda: worker.processes("loading"))
        (first,) = worker.processes("loading")
        worker.wait_until(
            "the next one",
            lambda: any(one.pid != first.pid for one in worker.processes("loading")),
        )
        assert "Timed out waiting" in worker.log
        assert worker.stop() == 0


@pytest.mark.full
def test_a_worker_none_of_whose_children_ever_loads_gives_up_and_says_why(
    tmp_path: Path, redis_url: str
) -> None:
    obstacle = tmp_path / "obstacle"
    obstacle.touch()
    env = {"VOICEMILL_LOAD_TIMEOUT_SECONDS": "2", **tone(hang_load_while=str(obstacle))}
    worker = SoloWorker(redis_url, tmp_path, **env)
    with ExitStack() as stack:
        worker.launch()
        stack.push(worker)
        worker.wait_until("its end", lambda: worker.exit_status == EXIT_NOT_LOADED)
    assert "no child could load the engine: the last ended with status -9" in worker.log


@pytest.mark.full
def test_an_empty_slot_is_filled_again_once_the_engine_loads(
    tmp_path: Path, redis_url: str
) -> None:
    obstacle = tmp_path / "obstacle"
    with SoloWorker(redis_url, tmp_path, **tone(fail_load_while=str(obstacle))) as worker:
        (old,) = worker.processes("ready")
        obstacle.touch()
        os.kill(old.pid, signal.SIGKILL)
        worker.wait_until("the failure", lambda: worker.record.failure)
        assert "its slot is empty" in str(worker.record.failure)
        job_id = worker.submit("Later.")
        obstacle.unlink()
        assert_each_spoken_once(worker.wait_for(job_id))
        worker.wait_until("no complaint", lambda: worker.record.failure is None)
        assert worker.log.count("could not be loaded") <= 3, "it pauses between its tries"
        assert worker.stop() == 0


@pytest.mark.full
def test_a_child_killed_while_its_successor_loads_is_replaced_by_it(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=2, seconds_per_segment=0.1)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        job_id = worker.submit(*LINES)
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        (successor,) = worker.processes("loading")
        (old,) = worker.processes("ready", "busy")
        os.kill(old.pid, signal.SIGKILL)
        worker.wait_until(
            "the successor alone",
            lambda: [one.pid for one in worker.processes("ready", "busy")] == [successor.pid],
        )
        items = worker.wait_for(job_id)
        assert worker.stop() == 0
    assert {item.status for item in items} == {ItemStatus.SUCCEEDED}
    assert sum(item.attempts - 1 for item in items) <= 1


@pytest.mark.full
def test_a_stop_during_a_hand_over_does_not_wait_for_the_load(
    tmp_path: Path, redis_url: str
) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=2)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_for(worker.submit("One.", "Two.", "Three."))
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        children = psutil.Process(worker.pid).children()
        assert worker.stop() == 0
        wait_until(lambda: not any(alive(child) for child in children), 5, "the end of all")


@pytest.mark.full
def test_orphans_die_with_their_worker(tmp_path: Path, redis_url: str) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=2, seconds_per_segment=0.2)}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.submit(*LINES)
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        children = [psutil.Process(one.pid) for one in worker.record.processes]
        assert len(children) == 2
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(child) for child in children), 10, "the end of orphans")


@pytest.mark.full
def test_a_restart_of_redis_during_hand_overs_loses_nothing(
    tmp_path: Path, own_valkey: Valkey
) -> None:
    env = {**TWO_TASKS, **tone(load_seconds=2, seconds_per_segment=0.1)}
    with SoloWorker(own_valkey.url, tmp_path, **env) as worker:
        job_id = worker.submit(*LINES)
        worker.wait_until("a successor that loads", lambda: worker.processes("loading"))
        own_valkey.stop()
        own_valkey.start()
        items = worker.wait_for(job_id)
        worker.wait_until("a hand-over", lambda: worker.record.recycles)
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
def test_where_two_do_not_fit_the_old_child_leaves_first_and_it_is_said(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    stub_driver.add_gpu("GPU-a0", total_mib=150)
    env = {
        **stub_driver.env,
        **tone(leak_device_mb=10),
        "VOICEMILL_GPU_MEMORY_LIMIT": "70%",
    }
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        items = worker.wait_for(worker.submit(*LINES[:6]))
        worker.wait_until("a recycle", lambda: worker.record.recycles)
        recycles = worker.record.recycles
        assert {(one.reason, one.successor) for one in recycles} == {("gpu_memory", None)}
        worker.wait_until("its count", lambda: worker.counts("voicemill_handover_breaks_total"))
        assert worker.counts("voicemill_handover_breaks_total").keys() == {"gpu_memory"}
        assert "leaves before its successor starts" in worker.log
        assert "MiB of GPU memory needed" in worker.log
        assert worker.stop() == 0
    assert_each_spoken_once(items)


@pytest.mark.full
def test_where_two_do_not_fit_a_revision_that_can_not_load_never_takes_the_last_child(
    stub_driver: StubDriver, tmp_path: Path, redis_url: str
) -> None:
    for uuid in ("GPU-a0", "GPU-a1"):
        stub_driver.add_gpu(uuid, total_mib=150)
    env = {**stub_driver.env, **tone(leak_device_mb=30), "VOICEMILL_GPU_MEMORY_LIMIT": "off"}
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    with SoloWorker(redis_url, tmp_path, **env, CUDA_VISIBLE_DEVICES="0") as worker:
        bad, store = {"no_such_option": 1}, worker.store
        store.start_rollout("rollout_1", "tone", "bad", bad, Canary(children=1), None)
        worker.wait_until("its refusal", lambda: worker.record.alerts)
        assert "keeps its revision" in worker.record.alerts[0]
        with SoloWorker(redis_url, other_folder, **env, CUDA_VISIBLE_DEVICES="1") as other:
            worker.wait_until(
                "the way back",
                lambda: store.rollout("rollout_1").rollout.status == "rolling_back",
            )
            worker.wait_until("both", lambda: worker.processes("ready"))
            assert [(one.reason, one.successor) for one in worker.record.recycles] == [
                ("model", None)
            ]
            assert other.record.recycles == []
            assert {child.revision for child in store.fleet().children.values()} == {"base"}


@pytest.mark.full
def test_siblings_never_leave_together(tmp_path: Path, redis_url: str) -> None:
    env = {**tone(load_seconds=2, seconds_per_segment=0.2), "VOICEMILL_WORKERS": "2"}
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        worker.wait_until("both", lambda: len(worker.processes("ready")) == 2)
        before = {one.pid for one in worker.processes("ready")}
        job_id = worker.submit(*LINES)
        assert worker.store.order(worker.node, "recycle")
        work: set[int] = set()
        go: set[int] = set()

        def both_are_new() -> bool:
            processes = worker.record.processes
            states = Counter(one.state for one in processes)
            work.add(states["ready"] + states["busy"])
            go.add(states["loading"] + states["leaving"])
            return not before & {one.pid for one in processes}

        worker.wait_until("two new children", both_are_new)
        assert min(work) == 2, "two took work all the time"
        assert max(go) == 1, "one hand-over at a time"
        assert worker.recycles() == {"requested": 2}
        assert_each_spoken_once(worker.wait_for(job_id))
        assert worker.stop() == 0


@pytest.mark.full
def test_children_are_renewed_after_the_keeper_of_semaphores_was_killed(
    tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        (keeper,) = (
            one
            for one in psutil.Process(worker.pid).children()
            if "semaphore_tracker" in " ".join(one.cmdline())
        )
        keeper.kill()
        wait_until(lambda: not alive(keeper), 10, "its end")
        first = worker.the_child()["pid"]
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("another child", lambda: worker.the_child()["pid"] != first)
        assert worker.recycles() == {"requested": 1}
        assert_each_spoken_once(worker.wait_for(worker.submit(*LINES[:4])))
        assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize("whom", ["worker", "child"])
def test_a_drained_worker_finishes_what_it_holds_and_takes_nothing_until_resumed(
    whom: str, tmp_path: Path, redis_url: str
) -> None:
    with SoloWorker(redis_url, tmp_path, **tone(seconds_per_segment=0.1)) as worker:
        first = worker.submit(*LINES[:4])
        (child,) = worker.store.snapshot().children
        name = worker.node if whom == "worker" else child["id"]
        assert worker.store.order(name, "drain")
        worker.wait_until("draining", lambda: worker.processes("draining"))
        worker.wait_until("no slot", lambda: not worker.store.snapshot().slots["tone"])
        worker.wait_until(
            "the end of what it held",
            lambda: not any(i.status is ItemStatus.IN_PROGRESS for i in worker.store.items(first)),
        )
        second = worker.submit("Later.")
        spoken = {item.status for item in worker.store.items(second)}
        assert spoken == {ItemStatus.QUEUED}
        assert worker.store.order(name, "resume")
        assert_each_spoken_once(worker.wait_for(first) + worker.wait_for(second))
        assert worker.stop() == 0


@pytest.mark.full
@pytest.mark.parametrize("trouble", ["hang", "seize"])
def test_a_hung_batch_is_killed_and_its_guilty_item_named(
    trouble: str, tmp_path: Path, redis_url: str
) -> None:
    env = {"VOICEMILL_MIN_BATCH_LIMIT_SECONDS": "1", "VOICEMILL_MAX_BATCH_LIMIT_SECONDS": "2"}
    env["VOICEMILL_BATCH_SECONDS"] = "5"
    with SoloWorker(redis_url, tmp_path, **env) as worker:
        hung = worker.the_child()["pid"]
        hangs = f"{{tone:{trouble}}} Two."
        items = worker.wait_for(worker.submit("One.", hangs, "Three.", "Four."))
        assert_each_spoken_once(worker.wait_for(worker.submit("Next.")))
        assert worker.the_child()["pid"] != hung
        assert list(tmp_path.rglob("*.tmp")) == []
        assert worker.stop() == 0
    assert [item.status for item in items] == [
        ItemStatus.SUCCEEDED,
        ItemStatus.FAILED,
        ItemStatus.SUCCEEDED,
        ItemStatus.SUCCEEDED,
    ]
    guilty = items[1]
    assert guilty.error is not None
    assert (guilty.error.code, guilty.attempts) == ("synthesis_timeout", 3)
    # The first was in the same call of the engine; the others had not begun.
    assert [item.attempts for item in items if item is not guilty] == [2, 1, 1]


@pytest.mark.full
def test_a_paused_queue_admits_nothing_until_it_is_resumed(tmp_path: Path, redis_url: str) -> None:
    with SoloWorker(redis_url, tmp_path) as worker:
        worker.store.pause(True)
        job_id = worker.submit("Later.")
        assert [item.status for item in worker.store.items(job_id)] == [ItemStatus.QUEUED]
        assert worker.store.snapshot().tasks["tone"] == 0
        worker.store.pause(False)
        assert_each_spoken_once(worker.wait_for(job_id))
        assert worker.stop() == 0

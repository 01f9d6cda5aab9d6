"""The verdict on the stack, and what it rests on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import TONE, Valkey, inputs, wait_until
from voicemill.errors import StoreUnavailableError
from voicemill.health import MEBIBYTE, Snapshot, free_bytes_at, judge, observe
from voicemill.pools import Pool
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import ChildRecord

SETTINGS = Settings(engine="tone", free_space_floor_mb=500)
CHILD: dict[str, Any] = {
    "id": "c1",
    "node": "w@host",
    "engine": "tone",
    "gpu": {"devices": [], "reason": "none"},
}
GOOD = Snapshot(at=1.0, clerks=1, children=(CHILD,), slots={"tone": 2}, queued={"tone": 7})
ROOM = 501 * MEBIBYTE


def failed(snapshot: Snapshot, free_bytes: int = ROOM) -> list[str]:
    health = judge(snapshot, free_bytes, SETTINGS)
    assert health.ready == all(check.ok for check in health.checks)
    return [check.name for check in health.checks if not check.ok]


def test_a_stack_with_a_child_a_clerk_and_room_is_ready() -> None:
    health = judge(GOOD, ROOM, SETTINGS)
    assert health.ready
    assert [check.name for check in health.checks] == ["store", "children", "clerk", "disk"]


def test_without_a_child_that_takes_work_it_is_not_ready() -> None:
    assert failed(Snapshot(at=1.0, clerks=1, children=(CHILD,), slots={"tone": 0})) == ["children"]


def test_children_that_drain_are_to_be_resumed() -> None:
    drained = replace(GOOD, slots={"tone": 0}, draining=("w@host",))
    (lack,) = [check for check in judge(drained, ROOM, SETTINGS).checks if not check.ok]
    assert lack.detail == "1 of tone are loaded and drain; resume their worker."


def test_children_of_another_engine_do_not_count() -> None:
    assert failed(Snapshot(at=1.0, clerks=1, children=(), slots={"hibari": 2})) == ["children"]


SEVERAL = replace(SETTINGS, engine="hibari", engines=(Pool("hibari"), Pool("tone")))


def test_of_several_engines_one_is_enough_and_the_other_is_warned_of() -> None:
    health = judge(GOOD, ROOM, SEVERAL)
    assert (health.ready, health.status) == (True, "degraded")
    assert health.checks[1].detail == "0 of hibari, 2 of tone take work."
    assert health.warnings == ("No child of hibari is ready; see the worker's log.",)
    assert health.to_wire()["queue"] == {
        "hibari": {"slots": 0, "queued_items": 0},
        "tone": {"slots": 2, "queued_items": 7},
    }
    both = judge(replace(GOOD, slots={"hibari": 1, "tone": 2}), ROOM, SEVERAL)
    assert (both.status, both.warnings) == ("ready", ())


def test_without_a_child_of_any_engine_it_is_not_ready_and_says_so_of_each() -> None:
    drained = replace(GOOD, slots={"tone": 0}, draining=("w@host",))
    health = judge(drained, ROOM, SEVERAL)
    assert not health.ready
    assert health.checks[1].detail == (
        "No child of hibari is ready; see the worker's log. "
        "1 of tone are loaded and drain; resume their worker."
    )


def test_a_worker_of_another_engine_that_drains_is_not_why_none_is_ready() -> None:
    other = {**CHILD, "engine": "hibari"}
    drained = replace(GOOD, children=(other,), slots={}, draining=("w@host",))
    assert judge(drained, ROOM, SETTINGS).checks[1].detail == (
        "No child of tone is ready; see the worker's log."
    )


def test_without_a_clerk_it_is_not_ready() -> None:
    assert failed(Snapshot(at=1.0, clerks=0, children=(CHILD,), slots={"tone": 2})) == ["clerk"]


def test_below_the_floor_of_free_space_it_is_not_ready() -> None:
    assert failed(GOOD, 500 * MEBIBYTE) == []
    assert failed(GOOD, 500 * MEBIBYTE - 1) == ["disk"]


def test_a_floor_that_is_off_lets_a_full_disk_pass() -> None:
    off = Settings(engine="tone", free_space_floor_mb=0)
    assert judge(GOOD, 0, off).ready


def test_the_wire_shows_gpu_children_and_queue() -> None:
    wire = judge(GOOD, ROOM, SETTINGS).to_wire()
    assert wire["status"] == "ready"
    assert wire["gpu"] == {"w@host": {"devices": [], "reason": "none"}}
    assert wire["children"] == [CHILD]
    assert wire["queue"] == {"tone": {"slots": 2, "queued_items": 7}}
    assert wire["disk_free_bytes"] == ROOM
    assert {"name": "store", "ok": True, "detail": "Redis answers."} in wire["checks"]


def test_a_device_is_shown_once_with_what_each_child_has_of_it() -> None:
    def child(pid: int, uuid: str, used: int, own: int | None, reason: str | None) -> Any:
        use = {"own_bytes": own, "measured_by": own and "process", "reason": reason}
        device = {"uuid": uuid, "name": "GPU", "total_bytes": 100, "used_bytes": used, **use}
        gpu = {"devices": [device], "reason": None if own else "GPU-b: GPU is lost"}
        return {"id": str(pid), "pid": pid, "node": "w@host", "gpu": gpu}

    seen = (
        child(1, "GPU-a", 50, 20, None),
        child(2, "GPU-a", 60, None, "not listed"),
        child(3, "GPU-c", 7, 5, None),
    )
    wire = judge(replace(GOOD, children=seen), ROOM, SETTINGS).to_wire()
    shared = [
        {"pid": 1, "own_bytes": 20, "measured_by": "process", "reason": None},
        {"pid": 2, "own_bytes": None, "measured_by": None, "reason": "not listed"},
    ]
    alone = [{"pid": 3, "own_bytes": 5, "measured_by": "process", "reason": None}]
    sizes = {"name": "GPU", "total_bytes": 100}
    assert wire["gpu"]["w@host"] == {
        "devices": [
            {"uuid": "GPU-a", **sizes, "used_bytes": 60, "children": shared},
            {"uuid": "GPU-c", **sizes, "used_bytes": 7, "children": alone},
        ],
        "reason": "GPU-b: GPU is lost",
    }


def test_free_space_is_known_before_the_folder_is_made(tmp_path: Path) -> None:
    found = free_bytes_at(tmp_path / "not" / "yet" / "there")
    assert isinstance(found, int)
    assert found > 0


def test_a_folder_that_can_never_be_made_is_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = Settings(engine="tone", output_dir=tmp_path / "file" / "out", free_space_floor_mb=0)

    found = free_bytes_at(settings.output_dir)

    assert isinstance(found, NotADirectoryError)
    health = judge(GOOD, found, settings)
    assert [check.name for check in health.checks if not check.ok] == ["disk"]
    assert health.checks[-1].detail == f"{settings.output_dir} can't be looked at: Not a directory."


def test_a_store_that_is_away_is_a_verdict_and_not_an_error(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    own_valkey.stop()
    with pytest.raises(StoreUnavailableError):
        store.ping()
    health = observe(store, SETTINGS)
    assert [(check.name, check.ok) for check in health.checks] == [("store", False)]
    assert health.checks[0].detail.startswith("Redis can't be reached: ")
    assert health.to_wire()["status"] == "not_ready"
    assert health.to_wire()["gpu"] == {"reason": "No child has reported."}


def test_what_children_and_clerks_say_of_themselves_is_what_is_judged(
    store: Store, tmp_path: Path
) -> None:
    settings = Settings(engine="tone", output_dir=tmp_path, free_space_floor_mb=0)
    assert [c.name for c in observe(store, settings).checks if not c.ok] == ["children", "clerk"]
    gpu = {"devices": [], "reason": "no NVIDIA driver"}
    child = ChildRecord("c1", "w@host", 1, "tone", "1", ready_at=0.0, gpu=gpu)
    store.publish_engine(TONE)
    store.beat_child(child, 60, takes_work=True)
    store.beat_clerk("k1", 60)
    store.create_job("job_1", "default", inputs("one", "two"), {})
    wire = observe(store, settings).to_wire()
    assert wire["status"] == "ready"
    assert wire["queue"] == {"tone": {"slots": 1, "queued_items": 2}}
    assert wire["gpu"] == {"w@host": gpu}


def test_who_is_silent_for_a_lease_no_longer_counts(store: Store, tmp_path: Path) -> None:
    settings = Settings(engine="tone", output_dir=tmp_path, free_space_floor_mb=0)
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "n", 1, "tone", "1", 0.0), 0.05, takes_work=True)
    store.beat_clerk("k1", 0.05)
    wait_until(lambda: not observe(store, settings).ready)
    wait_until(
        lambda: [c.ok for c in observe(store, settings).checks] == [True, False, False, True]
    )


def test_a_child_that_leaves_is_shown_and_is_no_slot(store: Store) -> None:
    store.publish_engine(TONE)
    child = ChildRecord("c1", "n", 1, "tone", "1", ready_at=0.0)
    store.beat_child(child, 60, takes_work=True)
    store.beat_child(child, 60, takes_work=False)
    snapshot = store.snapshot()
    assert snapshot.slots == {"tone": 0}
    assert [(one["id"], one["takes_work"]) for one in snapshot.children] == [("c1", False)]


def test_a_folder_that_takes_no_audio_is_why_no_child_takes_work() -> None:
    detail = "/out has 3 MiB free; 500 MiB are needed."
    stuck = {**CHILD, "engine": "tone", "pid": 7, "trouble": "disk_full", "trouble_detail": detail}
    health = judge(replace(GOOD, slots={"tone": 0}, children=(stuck,)), ROOM, SETTINGS)
    (lack,) = [check for check in health.checks if not check.ok]
    assert (lack.name, lack.detail) == ("children", detail)
    some = judge(replace(GOOD, children=(CHILD, stuck)), ROOM, SETTINGS)
    assert some.ready
    assert some.warnings == (f"Child 7 of w@host: {detail}",)

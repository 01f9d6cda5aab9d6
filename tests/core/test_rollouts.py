"""Rollouts: who gets the new revision, what decides, and which lane items wait in."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import redis

from tests.support import TONE, Valkey, inputs
from voicemill.costs import CostModel
from voicemill.errors import (
    InputError,
    RevisionNotFoundError,
    RolloutConflictError,
    RolloutNotFoundError,
    WorkerLostError,
)
from voicemill.jobs import ItemAudio, ItemError
from voicemill.rollouts import (
    BASE,
    Canary,
    Figures,
    Revision,
    RolloutStatus,
    Rule,
    engine_of,
    judge,
    lane,
    revision_of,
)
from voicemill.store import MisplacedTask, StartedTask, Store
from voicemill.workers import ChildRecord

ONE = Canary(children=1)
RULE = Rule(min_attempts=100)
GOOD = Figures(1000, {"synthesis_failed": 5}, 2000.0, 100.0, 3, 300)
AUDIO = ItemAudio("/out/a.wav", "0" * 64, 100, 2.0, 24000, 0.5, "tone", "1")


# --- the rule -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "action", "says"),
    [
        (replace(GOOD, attempts=99), None, ""),
        (GOOD, "promote", "0.5% (before: 0.5%) of its attempts failed"),
        (replace(GOOD, failures={"engine": 15}), "promote", "1.5%"),
        (replace(GOOD, failures={"engine": 12, "other": 4}), "roll_back", "1.6% (before: 0.5%)"),
        (replace(GOOD, device_seconds=119.0), "promote", "1.19 times the device time"),
        (replace(GOOD, device_seconds=121.0), "roll_back", "1.21 times as slow and may be 1.2"),
        (replace(GOOD, host_bytes=361), "roll_back", "1.20 times the memory"),
        (replace(GOOD, host_bytes=150), "promote", "0.50 times the memory"),
    ],
)
def test_a_rule_compares_failures_time_and_memory(
    new: Figures, action: str | None, says: str
) -> None:
    verdict = judge(RULE, GOOD, new)
    assert (verdict.action if verdict else None) == action
    assert says in (verdict.reason if verdict else "")


def test_the_memory_of_a_device_counts_where_it_is_known() -> None:
    old, new = replace(GOOD, gpu_bytes=1000), replace(GOOD, gpu_bytes=1300)
    verdict = judge(RULE, old, new)
    assert verdict is not None
    assert verdict.reason == "It takes 1.30 times the memory and may take 1.2."


def test_one_that_fails_is_rolled_back_before_the_old_one_has_done_as_much() -> None:
    few, bad = replace(GOOD, attempts=10, failures={}), replace(GOOD, failures={"engine": 500})
    assert judge(RULE, few, GOOD) is None
    verdict = judge(RULE, few, bad)
    assert verdict is not None
    assert verdict.action == "roll_back"


def test_where_no_old_child_is_left_the_new_one_is_judged_alone() -> None:
    verdict = judge(RULE, Figures(), GOOD)
    assert verdict is not None
    assert verdict.action == "promote"


def test_lanes_name_an_engine_and_maybe_a_revision() -> None:
    assert [lane("tone", None), lane("tone", "r2")] == ["tone", "tone@r2"]
    assert [engine_of("tone"), engine_of("tone@r2")] == ["tone", "tone"]
    assert [revision_of("tone"), revision_of("tone@r2")] == [None, "r2"]


def test_records_name_the_model_and_the_revision() -> None:
    assert Revision().of_model("1.2") == "1.2"
    assert Revision("fp16").of_model("1.2") == "1.2+fp16"


# --- who gets it ----------------------------------------------------------------


def start(store: Store, revision: str = "r2", canary: Canary = ONE, **options: Any) -> str:
    """Begin a rollout of ``tone``; gives its id."""
    store.publish_engine(TONE)
    store.start_rollout(f"rollout_{revision}", "tone", revision, options, canary, None)
    return f"rollout_{revision}"


def beat(store: Store, name: str, revision: str = BASE, node: str = "n1") -> str | None:
    """A child of the place of its name beats; gives the revision it is to have."""
    child = ChildRecord(name, node, 1, "tone", "1", 0.0, revision=revision)
    return store.beat_child(child, 60, takes_work=True, place=f"{node}/{name}").revision


def wanted(store: Store, *names: str, revision: str = BASE) -> dict[str, str | None]:
    return {name: beat(store, name, revision) for name in names}


@pytest.mark.parametrize(
    ("canary", "count"),
    [
        (Canary(children=1), 1),
        (Canary(children=3), 3),
        (Canary(children=99), 10),
        (Canary(percent=10), 1),
        (Canary(percent=39), 3),
        (Canary(percent=1), 1),
        (Canary(percent=100), 10),
        (Canary(percent=100, tenants=("ann",)), 9),
    ],
)
def test_so_many_places_are_canaries_and_they_stay(
    store: Store, canary: Canary, count: int
) -> None:
    names = [f"c{n}" for n in range(10)]
    assert set(wanted(store, *names).values()) == {BASE}
    start(store, canary=canary)
    first = wanted(store, *names)
    assert sum(revision == "r2" for revision in first.values()) == count
    assert wanted(store, *reversed(names)) == first


def test_a_successor_in_a_canary_s_place_gets_its_revision_with_the_options(store: Store) -> None:
    wanted(store, "c1", "c2")
    start(store, fp16=True)
    assert wanted(store, "c1", "c2") == {"c1": "r2", "c2": BASE}
    assert store.assign_revision("tone", "n1/c1", 300) == Revision("r2", {"fp16": True})
    assert store.assign_revision("tone", "n1/c2", 300) == Revision()
    assert store.assign_revision("other", "n1/c1", 300) == Revision()


def test_all_get_it_once_it_is_promoted_also_those_that_join_later(store: Store) -> None:
    wanted(store, "c1", "c2")
    rollout = start(store)
    assert store.move_rollout(rollout, "promote", "good")
    assert wanted(store, "c1", "c2", "c3") == dict.fromkeys(("c1", "c2", "c3"), "r2")
    assert store.move_rollout(rollout, "end", "")
    assert beat(store, "c4") == "r2"
    one = store.rollout(rollout).rollout
    assert (one.status, one.reason) == (RolloutStatus.COMPLETED, "good")
    assert store.current_revision("tone") == "r2"


@pytest.mark.parametrize("promoted", [False, True])
def test_all_go_back_when_it_is_rolled_back(store: Store, promoted: bool) -> None:
    wanted(store, "c1", "c2")
    rollout = start(store)
    wanted(store, "c1", "c2")
    if promoted:
        assert store.move_rollout(rollout, "promote", "")
    assert store.move_rollout(rollout, "roll_back", "bad")
    assert wanted(store, "c1", "c2", revision="r2") == {"c1": BASE, "c2": BASE}
    assert store.move_rollout(rollout, "end", "bad")
    assert store.rollout(rollout).rollout.status is RolloutStatus.ROLLED_BACK
    assert store.current_revision("tone") == BASE


def test_what_is_not_so_far_or_is_over_does_not_move(store: Store) -> None:
    rollout = start(store)
    assert not store.move_rollout(rollout, "end", "")
    assert store.move_rollout(rollout, "promote", "")
    assert not store.move_rollout(rollout, "promote", "")
    assert store.move_rollout(rollout, "end", "")
    assert not store.move_rollout(rollout, "roll_back", "")
    with pytest.raises(RolloutNotFoundError):
        store.rollout("rollout_none")


def test_one_revision_after_another_and_back_to_what_the_settings_say(store: Store) -> None:
    for revision in ("r2", "r3", BASE, "r2"):
        known = revision == BASE or store.has_revision("tone", revision)
        store.publish_engine(TONE)
        name = f"rollout_{revision}_{known}"
        options = None if known else {"n": 1}
        store.start_rollout(name, "tone", revision, options, ONE, None)
        assert store.move_rollout(name, "promote", "")
        assert store.move_rollout(name, "end", "")
        assert beat(store, "c1") == revision
    assert store.assign_revision("tone", "n1/c1", 1) == Revision("r2", {"n": 1})
    assert [one.rollout.revision.name for one in store.rollouts()] == ["r2", BASE, "r3", "r2"]


@pytest.mark.parametrize(
    ("before", "begun", "error", "says"),
    [
        (None, ("r2", None), RevisionNotFoundError, "no revision 'r2'"),
        (None, (BASE, None), RolloutConflictError, "in use already"),
        ("r2", ("r3", {}), RolloutConflictError, "promote it or roll it back first"),
    ],
)
def test_a_rollout_that_can_not_begin_says_why(
    store: Store, before: str | None, begun: tuple[str, Any], error: type[Exception], says: str
) -> None:
    store.publish_engine(TONE)
    if before:
        start(store, before)
    with pytest.raises(error, match=says):
        store.start_rollout("rollout_x", "tone", *begun, ONE, None)
    assert [one.rollout.revision.name for one in store.rollouts()] == ([before] if before else [])


def test_a_name_means_one_set_of_options(store: Store) -> None:
    rollout = start(store, n=1)
    assert store.move_rollout(rollout, "roll_back", "")
    assert store.move_rollout(rollout, "end", "")
    with pytest.raises(RolloutConflictError, match="known with other options"):
        start(store, n=2)
    start(store, n=1)


def test_one_child_can_not_be_a_canary_for_some_tenants(store: Store) -> None:
    wanted(store, "c1")
    with pytest.raises(InputError, match="fewer than two children"):
        start(store, canary=Canary(children=1, tenants=("ann",)))


def test_a_model_that_nobody_offered_has_no_rollouts(store: Store) -> None:
    with pytest.raises(InputError, match="no worker has offered"):
        store.start_rollout("rollout_x", "tone", "r2", {}, ONE, None)


# --- one that can't be loaded -----------------------------------------------------


@pytest.mark.parametrize("promoted", [False, True])
@pytest.mark.parametrize("revision", ["r2", None])
def test_a_revision_that_a_child_can_not_load_is_taken_back(
    store: Store, revision: str | None, promoted: bool
) -> None:
    wanted(store, "c1", "c2")
    rollout = start(store)
    wanted(store, "c1", "c2")
    if promoted:
        store.move_rollout(rollout, "promote", "")
    assert store.revision_failed("tone", "n1/c1", "no such file", revision=revision)
    assert wanted(store, "c1", "c2") == {"c1": BASE, "c2": BASE}
    assert store.move_rollout(rollout, "end", "no such file")
    one = store.rollout(rollout).rollout
    assert (one.status, one.reason) == (RolloutStatus.FAILED, "no such file")


def test_a_child_that_fails_with_the_old_revision_says_nothing_of_the_new_one(
    store: Store,
) -> None:
    assert not store.revision_failed("tone", "n1/c1", "why")
    wanted(store, "c1", "c2")
    rollout = start(store)
    wanted(store, "c1", "c2")
    assert not store.revision_failed("tone", "n1/c2", "why")
    assert not store.revision_failed("tone", "n1/c1", "why", revision=BASE)
    assert store.rollout(rollout).rollout.status is RolloutStatus.CANARY


# --- what they can do -------------------------------------------------------------


def test_what_a_model_can_do_is_what_its_revision_in_use_can(store: Store) -> None:
    new = replace(TONE, model_revision="1+r2", sample_rate=48000)
    rollout = start(store)
    store.publish_engine(new, "r2")
    assert store.engines()["tone"] == TONE
    store.move_rollout(rollout, "promote", "")
    assert store.engines()["tone"] == new
    store.move_rollout(rollout, "roll_back", "")
    assert store.engines()["tone"] == TONE


# --- lanes ------------------------------------------------------------------------


def admit(store: Store, lane: str = "tone") -> list[str]:
    admitted = store.admit(lane, CostModel(0.01, 0.0), 100.0, most=5)
    assert {one.engine for one in admitted} <= {lane}
    return [one.id for one in admitted]


def take(store: Store, task: str, child: str, revision: str) -> StartedTask | MisplacedTask | None:
    return store.start_task(task, child, 60, revision=revision)


def test_a_job_that_asks_for_a_revision_is_spoken_by_children_that_have_it(store: Store) -> None:
    wanted(store, "c1", "c2")
    start(store)
    store.create_job("job_1", "ann", inputs("Hello."), {}, revision="r2")
    assert store.job("job_1").revision == "r2"
    wanted(store, "c1", "c2")
    assert (admit(store), admit(store, "tone@r2")) == ([], [])
    beat(store, "c1", "r2")
    assert store.snapshot().slots == {"tone": 2, "tone@r2": 1}
    (task,) = admit(store, "tone@r2")
    for detours in (1, 2):
        misplaced = take(store, task, "c2", BASE)
        assert isinstance(misplaced, MisplacedTask)
        assert (misplaced.task.id, misplaced.task.engine) == (task, "tone@r2")
        assert misplaced.detours == detours
    started = take(store, task, "c1", "r2")
    assert isinstance(started, StartedTask)
    assert (started.lane, started.indexes) == ("tone@r2", (0,))


def test_batches_of_a_job_without_a_revision_go_to_any_child(store: Store) -> None:
    wanted(store, "c1", "c2")
    start(store)
    store.create_job("job_1", "ann", inputs("One.", "Two."), {}, reuse=False)
    wanted(store, "c1", "c2")
    beat(store, "c1", "r2")
    tasks = admit(store)
    assert len(tasks) == 2
    for task, child, revision in zip(tasks, ("c1", "c2"), ("r2", BASE), strict=True):
        assert isinstance(take(store, task, child, revision), StartedTask)


def start_trial(store: Store) -> str:
    """Begin a rollout whose one canary, ``c1``, speaks for ann; gives its id."""
    wanted(store, "c1", "c2")
    rollout = start(store, canary=Canary(children=1, tenants=("ann",)))
    assert store.trials("ann") == {}, "no child has it yet"
    assert wanted(store, "c1", "c2") == {"c1": "r2", "c2": BASE}
    beat(store, "c1", "r2")
    return rollout


def gone(store: Store, child: str) -> None:
    """Its process has ended."""
    store.release_child(child, "tone", error=WorkerLostError("It died."), max_attempts=3)


def test_canaries_for_some_tenants_speak_for_them_alone(store: Store) -> None:
    start_trial(store)
    assert store.trials("ann") == {"tone": "r2"}
    assert store.trials("bob") == {}
    store.create_job("job_1", "ann", inputs("Hers."), {}, revisions=store.trials("ann"))
    store.create_job("job_2", "bob", inputs("His."), {}, revisions=store.trials("bob"))
    assert store.job("job_1").revision is None
    assert store.snapshot().slots == {"tone": 1, "tone@r2": 1}
    (his,), (hers,) = admit(store), admit(store, "tone@r2")
    assert isinstance(take(store, his, "c1", "r2"), MisplacedTask)
    assert isinstance(take(store, hers, "c2", BASE), MisplacedTask)
    assert isinstance(take(store, his, "c2", BASE), StartedTask)
    assert isinstance(take(store, hers, "c1", "r2"), StartedTask)


def test_what_waits_for_a_tenant_s_canaries_waits_with_all_others_once_they_are_gone(
    store: Store,
) -> None:
    rollout = start_trial(store)
    trials = store.trials("ann")
    store.create_job("job_1", "ann", inputs("Hers.", "Too."), {}, revisions=trials, reuse=False)
    store.create_job("job_2", "ann", inputs("Pinned."), {}, revision="r2")
    assert store.move_lanes("tone") == 0, "they are tried"
    store.move_rollout(rollout, "roll_back", "")
    assert store.move_lanes("tone") == 1
    assert store.move_lanes("tone") == 0
    snapshot = store.snapshot()
    assert snapshot.queued == {"tone": 2, "tone@r2": 1}
    assert snapshot.queued_characters == {"tone": 9, "tone@r2": 7}
    wanted(store, "c1", "c2")
    tasks = admit(store)
    assert len(tasks) == 2
    assert isinstance(take(store, tasks[0], "c1", BASE), StartedTask)
    assert store.cancel("job_1").counts.cancelled == 2


def test_a_tenant_whose_canary_is_gone_waits_with_all_others_until_there_is_one(
    store: Store,
) -> None:
    start_trial(store)
    trials = store.trials("ann")
    store.create_job("job_1", "ann", inputs("Hers."), {}, revisions=trials, reuse=False)
    assert store.move_lanes("tone") == 0
    gone(store, "c1")
    assert store.trials("ann") == {}
    assert store.move_lanes("tone") == 1
    (task,) = admit(store)
    assert isinstance(take(store, task, "c2", BASE), StartedTask)
    beat(store, "c1", "r2")
    assert store.trials("ann") == {"tone": "r2"}


def test_canaries_speak_for_everybody_while_nobody_else_does(store: Store) -> None:
    start_trial(store)
    beat(store, "c3", "r2")
    store.create_job("job_1", "bob", inputs("His."), {})
    (task,) = admit(store)
    assert isinstance(take(store, task, "c1", "r2"), MisplacedTask)
    gone(store, "c2")
    for _ in range(2):
        beat(store, "c1", "r2")
        beat(store, "c3", "r2")
        assert store.snapshot().slots["tone"] == 2
    assert isinstance(take(store, task, "c1", "r2"), StartedTask)
    beat(store, "c2", BASE)
    beat(store, "c1", "r2")
    beat(store, "c3", "r2")
    assert store.snapshot().slots == {"tone": 1, "tone@r2": 2}


def test_a_place_that_is_heard_of_no_more_leaves_its_canary_to_another(
    store: Store, valkey: Valkey
) -> None:
    wanted(store, "c1", "c2")
    store.assign_revision("tone", "n1/c1", 1000)
    start(store)
    assert wanted(store, "c1", "c2") == {"c1": "r2", "c2": BASE}
    with closing(redis.Redis.from_url(valkey.url)) as client:
        (lapses,) = client.zrange("voicemill:canaries:tone", 0, -1, withscores=True)
        assert lapses[1] < time.time() + 100, "a beat says for how long, not the load before it"
        client.zadd("voicemill:canaries:tone", {"n1/c1": 1})
        client.zadd("voicemill:places:tone", {"n1/c1": 1})
        assert wanted(store, "c2") == {"c2": "r2"}
        assert client.zrange("voicemill:places:tone", 0, -1) == [b"n1/c2"]


def test_a_lane_is_forgotten_once_nothing_is_left_in_it_and_found_again(store: Store) -> None:
    wanted(store, "c1", "c2")
    start(store)
    beat(store, "c1", "r2")
    store.create_job("job_1", "ann", inputs("Hello."), {}, revision="r2")
    beat(store, "c1", "r2")
    store.move_lanes("tone")
    assert store.lanes() == ["tone", "tone@r2"]
    task = take(store, admit(store, "tone@r2")[0], "c1", "r2")
    store.move_lanes("tone")
    assert store.lanes() == ["tone", "tone@r2"], "there is a batch of it"
    assert isinstance(task, StartedTask)
    store.start_items(task, [0], 60)
    store.fail_item(task, 0, ItemError("synthesis_failed", "It failed.", True), max_attempts=1)
    store.end_task(task, max_attempts=1)
    store.move_lanes("tone")
    assert store.lanes() == ["tone"]
    assert store.snapshot().queued == {"tone": 0}
    assert store.retry("job_1").counts.queued == 1
    beat(store, "c1", "r2")
    assert store.snapshot().queued == {"tone": 0, "tone@r2": 1}
    assert isinstance(take(store, admit(store, "tone@r2")[0], "c1", "r2"), StartedTask)


def test_the_lane_of_a_trial_is_not_forgotten_while_its_canary_loads(store: Store) -> None:
    start_trial(store)
    gone(store, "c1")
    store.move_lanes("tone")
    beat(store, "c1", "r2")
    assert store.trials("ann") == {"tone": "r2"}


def test_what_runs_or_failed_in_a_lane_leaves_it_too(store: Store) -> None:
    rollout = start_trial(store)
    trials = store.trials("ann")
    texts = inputs("One.", "Two.", "Three.")
    store.create_job("job_1", "ann", texts, {}, revisions=trials, reuse=False)
    task = take(store, admit(store, "tone@r2")[0], "c1", "r2")
    assert isinstance(task, StartedTask)
    assert store.start_items(task, list(task.indexes), 60)
    store.move_rollout(rollout, "roll_back", "")
    store.move_lanes("tone")
    error = ItemError("synthesis_failed", "It failed.", True)
    store.fail_item(task, task.indexes[0], error, max_attempts=3)
    assert store.end_task(task, max_attempts=3)
    assert store.move_lanes("tone") == 1
    assert store.snapshot().queued == {"tone": 2, "tone@r2": 0}, "one is in a batch of its own"
    counts = store.cancel("job_1").counts
    assert (counts.cancelled, counts.queued) == (3, 0)
    assert store.snapshot().queued == {"tone": 0, "tone@r2": 0}


# --- what they do -----------------------------------------------------------------


def test_attempts_are_counted_by_revision_while_one_replaces_another(store: Store) -> None:
    def speak(job: str, child: str, revision: str, error: ItemError | None) -> None:
        store.create_job(job, "ann", inputs("Hello."), {})
        task = take(store, admit(store)[0], child, revision)
        assert isinstance(task, StartedTask)
        store.start_items(task, [0], 60)
        if error is None:
            assert store.succeed_item(task, 0, AUDIO)
        else:
            store.fail_item(task, 0, error, max_attempts=1)
        store.end_task(task, max_attempts=1)

    error = ItemError("out_of_memory", "Too large.", True)
    wanted(store, "c1", "c2")
    speak("job_0", "c1", BASE, None)
    rollout = start(store)
    wanted(store, "c1", "c2")
    speak("job_1", "c1", "r2", None)
    speak("job_2", "c1", "r2", error)
    speak("job_3", "c2", BASE, None)
    one = store.rollout(rollout)
    assert one.new == Figures(2, {"out_of_memory": 1}, 2.0, 0.5)
    assert one.old == Figures(1, {}, 2.0, 0.5)
    assert one.new.failure_share == 0.5
    assert one.old.real_time_factor == 0.25

"""When a child should be replaced, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.errors import SettingsError
from voicemill.health import MEBIBYTE
from voicemill.parsers import MemoryLimit
from voicemill.settings import Settings
from worker.cached_memory import CachedMemory
from worker.measurements import Measurements, MemoryUse
from worker.recycle import (
    NEEDS_A_LIFE,
    ROT,
    Policy,
    Reason,
    over_by_nature,
    pressures,
    reason_to_leave,
)
from worker.schedule import Schedule

GIBIBYTE = 1024 * MEBIBYTE
NOON = datetime(2026, 1, 10, 12, tzinfo=UTC).timestamp()
LIMITS = Policy(
    max_tasks=100,
    max_items=500,
    max_age_seconds=3600.0,
    host_memory=MemoryLimit("mebibytes", 2000),
    gpu_memory=MemoryLimit("share", 0.85),
    fragmentation=0.3,
    fragmentation_floor=GIBIBYTE,
    slowdown=1.5,
    max_errors=3,
    schedule=Schedule.parse("0 13 * * * UTC"),
)

sizes = st.integers(0, 200 * GIBIBYTE)
uses = st.builds(MemoryUse, used=sizes, total=sizes, baseline=sizes)
measurements = st.builds(
    Measurements,
    tasks=st.integers(0, 10**6),
    items=st.integers(0, 10**6),
    age_seconds=st.floats(0, 10**7),
    host_memory=st.none() | uses,
    gpu_memory=st.lists(uses, max_size=4).map(tuple),
    cached_memory=st.none()
    | st.builds(CachedMemory, sizes, sizes, sizes, failed_while_free=st.booleans()),
    slowdown=st.none() | st.floats(0.1, 100),
    errors_in_a_row=st.integers(0, 10),
    poisoned=st.booleans(),
    requested=st.booleans(),
    model_is_wanted=st.booleans(),
)
memory_limits = st.one_of(
    st.builds(MemoryLimit, st.just("mebibytes"), st.floats(1, 10**6)),
    st.builds(MemoryLimit, st.just("share"), st.floats(0.01, 1)),
    st.builds(MemoryLimit, st.just("baseline"), st.floats(1.01, 100)),
)
counts = st.none() | st.integers(1, 10**6)
policies = st.builds(
    Policy,
    max_tasks=counts,
    max_items=counts,
    min_age_seconds=st.floats(0, 100),
    max_age_seconds=st.none() | st.floats(1, 10**7),
    host_memory=st.none() | memory_limits,
    gpu_memory=st.none() | memory_limits,
    fragmentation=st.none() | st.floats(0.01, 1),
    fragmentation_floor=sizes,
    slowdown=st.none() | st.floats(1.01, 10),
    max_errors=counts,
)
OLD = {"tasks": 1, "age_seconds": 60.0}


def more(use: MemoryUse, extra: int) -> MemoryUse:
    return replace(use, used=use.used + extra)


@given(policy=policies, now=measurements, extra=st.integers(0, 10**12))
def test_more_of_anything_never_takes_a_reason_away(
    policy: Policy, now: Measurements, extra: int
) -> None:
    later = [
        replace(now, tasks=now.tasks + extra),
        replace(now, items=now.items + extra),
        replace(now, age_seconds=now.age_seconds + extra),
        replace(now, host_memory=now.host_memory and more(now.host_memory, extra)),
        replace(now, gpu_memory=tuple(more(use, extra) for use in now.gpu_memory)),
        replace(now, gpu_memory=(*now.gpu_memory, MemoryUse(extra, extra, extra))),
        replace(now, slowdown=now.slowdown and now.slowdown + extra),
        replace(now, errors_in_a_row=now.errors_in_a_row + extra),
        replace(now, poisoned=True),
        replace(now, requested=True),
        replace(now, model_is_wanted=False),
    ]
    if reason_to_leave(policy, now) is not None:
        assert None not in [reason_to_leave(policy, measured) for measured in later]


@given(policy=policies, now=measurements)
def test_the_reason_is_one_whose_limit_is_on_and_reached(policy: Policy, now: Measurements) -> None:
    reason = reason_to_leave(policy, now)
    assert reason is None or pressures(policy, now)[reason] >= 1
    off = {
        Reason.TASKS: policy.max_tasks is None and policy.max_items is None,
        Reason.AGE: policy.max_age_seconds is None,
        Reason.HOST_MEMORY: policy.host_memory is None or now.host_memory is None,
        Reason.GPU_MEMORY: policy.gpu_memory is None or not now.gpu_memory,
        Reason.FRAGMENTATION: policy.fragmentation is None or now.cached_memory is None,
        Reason.SLOW: policy.slowdown is None or now.slowdown is None,
        Reason.SCHEDULE: policy.schedule is None,
    }
    assert not {name for name, is_off in off.items() if is_off} & pressures(policy, now).keys()


@given(now=measurements)
def test_with_every_limit_off_only_what_is_no_limit_counts(now: Measurements) -> None:
    expected = None
    if now.poisoned:
        expected = Reason.ERRORS
    elif now.requested:
        expected = Reason.REQUESTED
    elif not now.model_is_wanted:
        expected = Reason.MODEL
    assert reason_to_leave(Policy(), now) is expected


@given(policy=policies, now=measurements)
def test_a_young_child_stays_unless_its_work_or_an_operator_says_so(
    policy: Policy, now: Measurements
) -> None:
    young = replace(now, age_seconds=policy.min_age_seconds / 2)
    if policy.min_age_seconds > 0:
        assert reason_to_leave(policy, young) not in NEEDS_A_LIFE


@given(policy=policies, now=measurements)
def test_a_child_that_did_nothing_does_not_rot(policy: Policy, now: Measurements) -> None:
    assert reason_to_leave(policy, replace(now, tasks=0)) not in ROT


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({"tasks": 99}, None),
        ({"tasks": 100}, Reason.TASKS),
        ({"items": 499}, None),
        ({"items": 500}, Reason.TASKS),
        ({"age_seconds": 3599.9}, None),
        ({"age_seconds": 3600.0}, Reason.AGE),
        ({"host_memory": MemoryUse(2000 * MEBIBYTE - 1, 64 * GIBIBYTE, MEBIBYTE)}, None),
        ({"host_memory": MemoryUse(2000 * MEBIBYTE, 1, 1)}, Reason.HOST_MEMORY),
        ({"gpu_memory": (MemoryUse(84, 100, 1),)}, None),
        ({"gpu_memory": (MemoryUse(86, 100, 86),)}, Reason.GPU_MEMORY),
        ({"gpu_memory": (MemoryUse(84, 100, 1), MemoryUse(84, 100, 1))}, None),
        ({"gpu_memory": (MemoryUse(1, 1000, 1), MemoryUse(86, 100, 1))}, Reason.GPU_MEMORY),
        ({"cached_memory": CachedMemory(10 * GIBIBYTE, 8 * GIBIBYTE)}, None),
        ({"cached_memory": CachedMemory(10 * GIBIBYTE, 7 * GIBIBYTE)}, Reason.FRAGMENTATION),
        ({"cached_memory": CachedMemory(2 * GIBIBYTE, GIBIBYTE + 1)}, None),
        ({"cached_memory": CachedMemory(10, 10, 4 * GIBIBYTE)}, Reason.FRAGMENTATION),
        ({"cached_memory": CachedMemory(9, 9, 0, failed_while_free=True)}, Reason.FRAGMENTATION),
        ({"slowdown": 1.49}, None),
        ({"slowdown": 1.5}, Reason.SLOW),
        ({"errors_in_a_row": 2}, None),
        ({"errors_in_a_row": 3}, Reason.ERRORS),
        ({"poisoned": True}, Reason.ERRORS),
        ({"requested": True}, Reason.REQUESTED),
        ({"model_is_wanted": False}, Reason.MODEL),
        ({"ready_at": NOON, "at": NOON + 3599}, None),
        ({"ready_at": NOON, "at": NOON + 3600}, Reason.SCHEDULE),
        ({"ready_at": NOON, "at": NOON + 86400 * 9}, Reason.SCHEDULE),
        ({"ready_at": NOON + 3600, "at": NOON + 86400}, None),
    ],
)
def test_each_limit_has_its_reason(measured: dict[str, Any], reason: Reason | None) -> None:
    assert reason_to_leave(LIMITS, Measurements(**{**OLD, "at": 1.0, **measured})) is reason


@pytest.mark.parametrize(
    ("limit", "at_limit"),
    [
        (MemoryLimit("mebibytes", 100), 100 * MEBIBYTE),
        (MemoryLimit("share", 0.5), 4 * GIBIBYTE),
        (MemoryLimit("baseline", 1.5), 3 * GIBIBYTE),
    ],
    ids=str,
)
def test_memory_is_held_against_mib_the_whole_or_the_warm_child(
    limit: MemoryLimit, at_limit: int
) -> None:
    use = MemoryUse(0, total=8 * GIBIBYTE, baseline=2 * GIBIBYTE)
    assert replace(use, used=at_limit // 2).share_of(limit) == 0.5
    assert replace(use, used=at_limit).share_of(limit) == 1.0
    assert replace(use, used=at_limit * 2).share_of(limit) == 2.0


@given(limit=memory_limits, found=st.lists(uses, max_size=4))
def test_gpu_memory_is_judged_on_each_device_by_itself(
    limit: MemoryLimit, found: list[MemoryUse]
) -> None:
    over = [use for use in found if use.share_of(limit) >= 1]
    reason = reason_to_leave(Policy(gpu_memory=limit), Measurements(**OLD, gpu_memory=tuple(found)))
    assert reason == (Reason.GPU_MEMORY if over else None)


def test_what_can_be_trusted_least_is_named_first() -> None:
    everything = Measurements(
        tasks=1000,
        age_seconds=1e6,
        host_memory=MemoryUse(10**12, 1, 1),
        gpu_memory=(MemoryUse(10**12, 1, 1),),
        poisoned=True,
    )
    assert reason_to_leave(LIMITS, everything) is Reason.ERRORS
    assert reason_to_leave(LIMITS, replace(everything, poisoned=False)) is Reason.GPU_MEMORY


def test_a_child_that_is_fresh_and_over_a_limit_of_memory_is_so_by_nature() -> None:
    warm = Measurements(
        host_memory=MemoryUse(2 * GIBIBYTE, 64 * GIBIBYTE, 2 * GIBIBYTE),
        gpu_memory=(MemoryUse(90, 100, 90),),
    )
    assert over_by_nature(LIMITS, warm) == [Reason.GPU_MEMORY, Reason.HOST_MEMORY]
    obeyed = LIMITS.without(over_by_nature(LIMITS, warm))
    assert (obeyed.gpu_memory, obeyed.host_memory) == (None, None)
    assert obeyed.max_tasks == LIMITS.max_tasks
    relative = Policy(host_memory=MemoryLimit("baseline", 1.01))
    assert over_by_nature(relative, warm) == []


@given(policy=policies, drawn=st.floats(0, 1, exclude_max=True))
def test_jitter_lowers_counts_and_ages_by_a_tenth_at_most(policy: Policy, drawn: float) -> None:
    jittered = policy.with_jitter(drawn)
    pairs = [
        (jittered.max_tasks, policy.max_tasks),
        (jittered.max_items, policy.max_items),
        (jittered.max_age_seconds, policy.max_age_seconds),
    ]
    for lower, limit in pairs:
        assert (lower is None) == (limit is None)
        if lower is not None and limit is not None:
            assert limit * 0.9 <= lower <= limit
            assert lower == limit or limit >= 10 or isinstance(limit, float)


def test_siblings_draw_limits_of_their_own() -> None:
    policy = Policy(max_tasks=1000)
    assert {policy.with_jitter(drawn).max_tasks for drawn in (0.0, 0.5, 0.99)} == {1000, 950, 901}


def test_the_policy_is_the_settings_with_celery_s_own_options_on_top() -> None:
    settings = Settings.from_env(
        {
            "VOICEMILL_MAX_ITEMS_PER_CHILD": "50",
            "VOICEMILL_MIN_AGE_SECONDS": "5",
            "VOICEMILL_MAX_AGE_SECONDS": "60",
            "VOICEMILL_HOST_MEMORY_LIMIT": "3x",
            "VOICEMILL_GPU_MEMORY_LIMIT": "off",
            "VOICEMILL_FRAGMENTATION_LIMIT": "25%",
            "VOICEMILL_FRAGMENTATION_FLOOR_MB": "10",
            "VOICEMILL_MAX_SLOWDOWN": "2",
            "VOICEMILL_MAX_ERRORS": "off",
            "VOICEMILL_RECYCLE_AT": "0 2 * * * UTC",
        }
    )
    plain = Policy.from_settings(settings)
    assert plain == Policy(
        max_items=50,
        min_age_seconds=5.0,
        max_age_seconds=60.0,
        host_memory=MemoryLimit("baseline", 3.0),
        fragmentation=0.25,
        fragmentation_floor=10 * MEBIBYTE,
        slowdown=2.0,
        schedule=Schedule.parse("0 2 * * * UTC"),
    )
    assert plain.with_celery(max_tasks=None, max_memory_kib=None) == plain
    flags = plain.with_celery(max_tasks=5, max_memory_kib=512 * 1024)
    assert flags.max_tasks == 5
    assert flags.host_memory == MemoryLimit("mebibytes", 512)


def test_a_schedule_that_is_none_stops_the_start() -> None:
    settings = Settings.from_env({"VOICEMILL_RECYCLE_AT": "at two"})
    with pytest.raises(SettingsError, match="VOICEMILL_RECYCLE_AT"):
        Policy.from_settings(settings)


def test_a_policy_reads_as_one_line() -> None:
    assert str(LIMITS) == (
        "tasks=100 items=500 gpu_memory=85% fragmentation=30% host_memory=2000MiB slow=1.5x "
        "errors=3 age=3600s schedule='0 13 * * * UTC'"
    )
    assert str(Policy()) == (
        "tasks=off items=off gpu_memory=off fragmentation=off host_memory=off slow=off "
        "errors=off age=off schedule=off"
    )

"""When a child should leave, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.settings import MemoryLimit, Settings
from worker.recycle import MEBIBYTE, Measurements, MemoryUse, Policy, Reason, reason_to_leave

GIBIBYTE = 1024 * MEBIBYTE
LIMITS = Policy(
    max_tasks=100,
    max_items=500,
    max_age_seconds=3600.0,
    host_memory=MemoryLimit("mebibytes", 2000),
    gpu_memory=MemoryLimit("share", 0.85),
)

sizes = st.integers(0, 200 * GIBIBYTE)
uses_known = st.builds(MemoryUse, used=sizes, total=sizes, baseline=sizes)
uses = st.none() | uses_known
measurements = st.builds(
    Measurements,
    tasks=st.integers(0, 10**6),
    items=st.integers(0, 10**6),
    age_seconds=st.floats(0, 10**7),
    host_memory=uses,
    gpu_memory=st.lists(uses_known, max_size=4).map(tuple),
    poisoned=st.booleans(),
)
memory_limits = st.one_of(
    st.builds(MemoryLimit, st.just("mebibytes"), st.floats(1, 10**6)),
    st.builds(MemoryLimit, st.just("share"), st.floats(0.01, 1)),
    st.builds(MemoryLimit, st.just("baseline"), st.floats(1.01, 100)),
)
limits = st.none() | memory_limits
policies = st.builds(
    Policy,
    max_tasks=st.none() | st.integers(1, 10**6),
    max_items=st.none() | st.integers(1, 10**6),
    max_age_seconds=st.none() | st.floats(1, 10**7),
    host_memory=limits,
    gpu_memory=limits,
)


def more(use: MemoryUse, extra: int) -> MemoryUse:
    return replace(use, used=use.used + extra)


@given(policy=policies, now=measurements, extra=st.integers(0, 10**12), poisoned=st.booleans())
def test_more_of_anything_never_takes_a_reason_away(
    policy: Policy, now: Measurements, extra: int, poisoned: bool
) -> None:
    later = [
        replace(now, tasks=now.tasks + extra),
        replace(now, items=now.items + extra),
        replace(now, age_seconds=now.age_seconds + extra),
        replace(now, host_memory=now.host_memory and more(now.host_memory, extra)),
        replace(now, gpu_memory=tuple(more(use, extra) for use in now.gpu_memory)),
        replace(now, gpu_memory=(*now.gpu_memory, MemoryUse(extra, extra, extra))),
        replace(now, poisoned=now.poisoned or poisoned),
    ]
    if reason_to_leave(policy, now) is not None:
        assert None not in [reason_to_leave(policy, measured) for measured in later]


@given(policy=policies, now=measurements)
def test_a_healthy_child_does_one_task_at_least(policy: Policy, now: Measurements) -> None:
    fresh = replace(now, tasks=0)
    assert reason_to_leave(policy, fresh) == (Reason.ERRORS if now.poisoned else None)


@given(now=measurements)
def test_with_every_limit_off_only_a_broken_engine_leaves(now: Measurements) -> None:
    assert reason_to_leave(Policy(), now) == (Reason.ERRORS if now.poisoned else None)


@given(policy=policies, now=measurements)
def test_the_reason_is_always_one_whose_limit_is_on(policy: Policy, now: Measurements) -> None:
    on = {
        Reason.TASKS: policy.max_tasks is not None or policy.max_items is not None,
        Reason.AGE: policy.max_age_seconds is not None,
        Reason.HOST_MEMORY: policy.host_memory is not None,
        Reason.GPU_MEMORY: policy.gpu_memory is not None,
        Reason.ERRORS: now.poisoned,
    }
    reason = reason_to_leave(policy, now)
    assert reason is None or on[reason]


@given(policy=policies)
def test_a_child_of_which_only_the_tasks_are_known_leaves_by_them_alone(policy: Policy) -> None:
    within = Measurements(tasks=(policy.max_tasks or 2) - 1)
    assert reason_to_leave(policy, within) is None


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        ({"tasks": 99}, None),
        ({"tasks": 100}, Reason.TASKS),
        ({"items": 499}, None),
        ({"items": 500}, Reason.TASKS),
        ({"age_seconds": 3599.9}, None),
        ({"age_seconds": 3600.0}, Reason.AGE),
        ({"host_memory": MemoryUse(2000 * MEBIBYTE, 64 * GIBIBYTE, MEBIBYTE)}, None),
        ({"host_memory": MemoryUse(2000 * MEBIBYTE + 1, 1, 1)}, Reason.HOST_MEMORY),
        ({"gpu_memory": (MemoryUse(85, 100, 1),)}, None),
        ({"gpu_memory": (MemoryUse(86, 100, 86),)}, Reason.GPU_MEMORY),
        ({"gpu_memory": (MemoryUse(85, 100, 1), MemoryUse(85, 100, 1))}, None),
        ({"gpu_memory": (MemoryUse(1, 1000, 1), MemoryUse(86, 100, 1))}, Reason.GPU_MEMORY),
        ({"poisoned": True}, Reason.ERRORS),
    ],
)
def test_each_limit_has_its_reason(measured: dict[str, Any], reason: Reason | None) -> None:
    assert reason_to_leave(LIMITS, Measurements(**{"tasks": 1, **measured})) is reason


@pytest.mark.parametrize(
    ("limit", "below", "over"),
    [
        (MemoryLimit("mebibytes", 100), 100 * MEBIBYTE, 100 * MEBIBYTE + 1),
        (MemoryLimit("share", 0.5), 4 * GIBIBYTE, 4 * GIBIBYTE + 1),
        (MemoryLimit("baseline", 1.5), 3 * GIBIBYTE, 3 * GIBIBYTE + 1),
    ],
    ids=str,
)
def test_memory_is_held_against_mib_the_whole_or_the_warm_child(
    limit: MemoryLimit, below: int, over: int
) -> None:
    use = MemoryUse(0, total=8 * GIBIBYTE, baseline=2 * GIBIBYTE)
    assert not replace(use, used=below).exceeds(limit)
    assert replace(use, used=over).exceeds(limit)


def test_gpu_memory_that_is_not_known_is_no_reason() -> None:
    assert reason_to_leave(LIMITS, Measurements(tasks=1, gpu_memory=())) is None


@given(limit=memory_limits, uses=st.lists(uses_known, max_size=4))
def test_gpu_memory_is_judged_on_each_device_by_itself(
    limit: MemoryLimit, uses: list[MemoryUse]
) -> None:
    over = [use for use in uses if use.exceeds(limit)]
    reason = reason_to_leave(
        Policy(gpu_memory=limit), Measurements(tasks=1, gpu_memory=tuple(uses))
    )
    assert reason == (Reason.GPU_MEMORY if over else None)


@given(limit=memory_limits, use=uses_known, devices=st.integers(1, 8))
def test_what_one_device_bears_each_of_many_bears(
    limit: MemoryLimit, use: MemoryUse, devices: int
) -> None:
    policy = Policy(gpu_memory=limit)
    one = reason_to_leave(policy, Measurements(tasks=1, gpu_memory=(use,)))
    assert reason_to_leave(policy, Measurements(tasks=1, gpu_memory=(use,) * devices)) == one


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


def test_the_policy_is_the_settings_with_celery_s_own_options_on_top() -> None:
    settings = Settings.from_env(
        {
            "VOICEMILL_MAX_ITEMS_PER_CHILD": "50",
            "VOICEMILL_MAX_AGE_SECONDS": "60",
            "VOICEMILL_HOST_MEMORY_LIMIT": "3x",
            "VOICEMILL_GPU_MEMORY_LIMIT": "off",
        }
    )
    plain = Policy.from_settings(settings, max_tasks=None, max_memory_kib=None)
    assert plain == Policy(
        max_items=50, max_age_seconds=60.0, host_memory=MemoryLimit("baseline", 3.0)
    )
    flags = Policy.from_settings(settings, max_tasks=5, max_memory_kib=512 * 1024)
    assert flags.max_tasks == 5
    assert flags.host_memory == MemoryLimit("mebibytes", 512)


def test_a_policy_reads_as_one_line() -> None:
    assert str(LIMITS) == "tasks=100 items=500 age=3600s host_memory=2000MiB gpu_memory=85%"
    assert str(Policy()) == "tasks=off items=off age=off host_memory=off gpu_memory=off"

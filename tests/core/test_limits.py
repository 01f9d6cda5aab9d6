"""What one item may take, and how it travels to whoever speaks it."""

from __future__ import annotations

import pytest

from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.jobs import JobRules
from voicemill.limits import Limits
from voicemill.store import StartedTask, Store
from voicemill.tenants import Tenant, new_api_key
from voicemill.workers import ChildRecord, SessionCounts

SOME = Limits(60.0, None, 900)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Limits(), Limits(), Limits()),
        (SOME, Limits(), SOME),
        (SOME, Limits(10.0, 5.0, 1000), Limits(10.0, 5.0, 900)),
        (Limits(0.5), Limits(60.0), Limits(0.5)),
    ],
)
def test_the_stricter_of_two_limits_counts(one: Limits, other: Limits, both: Limits) -> None:
    assert one.within(other) == both
    assert other.within(one) == both


def test_a_record_has_what_is_limited_and_one_of_another_release_is_read() -> None:
    assert SOME.to_record() == {"max_output_seconds": 60.0, "max_memory_mb": 900}
    assert Limits.from_record({**SOME.to_record(), "max_words": 7}) == SOME
    assert Limits.from_record({}) == Limits()


def test_limits_are_shown_to_a_person() -> None:
    assert str(Limits(60.0, 7.5, 900)) == "60s audio, 7.5s device, 900 MiB"
    assert str(Limits()) == ""


def begin(store: Store, limits: Limits, tenant: str = "ann") -> StartedTask:
    """The first task of a job with these limits."""
    store.create_job("job_1", tenant, inputs("Hello."), {}, rules=JobRules(limits=limits))
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", 0.0), 60, takes_work=True)
    (admitted,) = store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1)
    task = store.start_task(admitted.id, "c1", 60)
    assert task is not None
    return task


@pytest.mark.parametrize("of_tenant", [Limits(), Limits(10.0, 5.0, 1000)])
def test_a_task_has_the_limits_of_its_job_and_its_tenant(store: Store, of_tenant: Limits) -> None:
    store.create_tenant(Tenant("ann", limits=of_tenant), new_api_key())
    assert begin(store, SOME).limits == SOME.within(of_tenant)


def test_a_tenant_that_nobody_created_has_no_limits(store: Store) -> None:
    assert begin(store, Limits()).limits == Limits()


def test_sessions_are_counted_over_all_beats(store: Store) -> None:
    child = ChildRecord("c1", "node", 1, "tone", "1", 0.0, sessions=SessionCounts(7, 5))
    for news in (SessionCounts(4, 3), SessionCounts(), SessionCounts(3, 2)):
        store.beat_child(child, 60, takes_work=True, news=news)
    counted = {labels["event"]: value for name, labels, value in store.metrics() if "sess" in name}
    assert counted == {"opened": 7, "destroyed": 5}
    assert store.fleet().children["c1"].sessions == SessionCounts(7, 5)
    assert store.fleet().children["c1"].sessions.open == 2

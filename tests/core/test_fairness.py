"""Who goes next: the arithmetic, its twin in Lua, and what tenants get of a device."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.device import BULK, CENT_A_CHARACTER, Device
from tests.support import TONE, Valkey, inputs
from voicemill.fairness import (
    LEAD_SECONDS,
    JobClass,
    Standing,
    Tags,
    class_to_serve,
    default_class,
    kept_slots,
)
from voicemill.store import Store
from voicemill.store.connection import script_text

INTERACTIVE = Standing(JobClass.INTERACTIVE)
MEMBERS = ("ann", "bob", "cat")
costs = st.floats(0.001, 100.0)


# --- the arithmetic -----------------------------------------------------------


@given(
    weights=st.fixed_dictionaries(dict.fromkeys(MEMBERS, st.floats(0.1, 10.0))),
    served=st.lists(st.tuples(costs, costs), min_size=30, max_size=80),
)
def test_whatever_is_estimated_members_that_wait_get_shares_by_weight(
    weights: Mapping[str, float], served: Sequence[tuple[float, float]]
) -> None:
    tags, got, largest = Tags(weights), Counter[str](), Counter[str]()
    for member in MEMBERS:
        tags.enter(member)
    for estimate, real in served:
        member = tags.first()
        assert member is not None
        tags.charge(member, estimate)
        tags.correct(member, real - estimate)
        got[member] += real / weights[member]
        largest[member] = max(largest[member], real / weights[member])
    for one in MEMBERS:
        for other in MEMBERS:
            apart = abs(got[one] - got[other])
            assert apart <= max(largest[one], largest[other]) * (1 + 1e-9)


@given(before=st.lists(costs, min_size=1, max_size=20), cost=costs)
def test_who_comes_late_has_no_credit_and_goes_next(before: list[float], cost: float) -> None:
    tags = Tags()
    tags.enter("ann")
    for one in before:
        tags.charge("ann", one)
    tags.enter("bob")
    assert tags.start["bob"] == tags.virtual
    assert tags.first() == "bob"
    tags.charge("bob", cost)
    assert tags.start["bob"] == tags.virtual + cost


def test_who_leaves_and_comes_back_has_not_forgotten_its_debt() -> None:
    tags = Tags()
    tags.enter("ann")
    tags.enter("bob")
    tags.charge("ann", 10.0)
    tags.leave("ann")
    tags.enter("ann")
    assert (tags.start["ann"], tags.first()) == (10.0, "bob")


def test_a_refund_for_work_of_long_ago_gives_no_credit() -> None:
    tags = Tags()
    tags.enter("ann")
    tags.charge("ann", 10.0)
    tags.leave("ann")
    tags.enter("bob")
    for _ in range(5):
        tags.charge("bob", 10.0)
    tags.enter("ann")
    at = tags.start["ann"]
    assert at > 10.0
    tags.correct("ann", -9.0)
    assert tags.start["ann"] == at
    tags.correct("ann", 1000.0)
    assert tags.start["ann"] == 1001.0


@given(interactive=st.floats(0, 1e9), bulk=st.floats(0, 1e9))
def test_interactive_goes_first_unless_it_is_far_ahead_of_its_turn(
    interactive: float, bulk: float
) -> None:
    chosen = class_to_serve(interactive, bulk)
    assert chosen is (JobClass.BULK if interactive > bulk + LEAD_SECONDS else JobClass.INTERACTIVE)
    assert class_to_serve(interactive, None) is JobClass.INTERACTIVE
    assert class_to_serve(None, bulk) is JobClass.BULK
    assert class_to_serve(None, None) is None


@pytest.mark.parametrize(
    ("slots", "wanted", "kept"), [(1, 1, 0), (3, 1, 0), (4, 0, 0), (4, 1, 1), (4, 9, 3), (8, 2, 2)]
)
def test_slots_are_kept_for_interactive_work_from_four_up(
    slots: int, wanted: int, kept: int
) -> None:
    assert kept_slots(slots, wanted) == kept


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([1], "interactive"), ([1000], "interactive"), ([1001], "bulk"), ([1, 1], "bulk")],
)
def test_one_short_text_is_interactive(lengths: list[int], expected: str) -> None:
    assert default_class(lengths) == expected


# --- its twin in Lua ------------------------------------------------------------

Operation = tuple[str, int, float]
operations = st.lists(
    st.tuples(
        st.sampled_from(["enter", "leave", "charge", "correct"]),
        st.integers(0, 2),
        st.floats(-50.0, 100.0),
    ),
    max_size=60,
)
TWIN = {
    "enter": "enter(ARGV[1], {ARGV[1]}, ARGV[1], ARGV[2])",
    "leave": "leave(ARGV[1], ARGV[2])",
    "charge": "local _, tag = first_of(ARGV[1]) charge(ARGV[1], {ARGV[1]}, ARGV[2], tag, "
    "tonumber(ARGV[3]))",
    "correct": "correct(ARGV[1], {ARGV[1]}, ARGV[2], tonumber(ARGV[3]))",
}


@settings(deadline=None)
@given(made=operations)
def test_lua_keeps_the_same_tags(valkey: Valkey, made: list[Operation]) -> None:
    client: Any = redis.Redis.from_url(valkey.url, decode_responses=True)
    fair = script_text("parts/fair")
    node, tags = uuid.uuid4().hex, Tags()
    for name, pick, amount in made:
        member = MEMBERS[pick]
        if name == "charge":
            member, amount = tags.first() or "", abs(amount)
        if not member or (name == "correct" and member not in tags.finish):
            continue
        arguments = [amount] if name in {"charge", "correct"} else []
        getattr(tags, name)(member, *arguments)
        client.eval(f"{fair}\n{TWIN[name]}", 0, node, member, repr(amount))
    kept = dict(client.zrange(f"voicemill:ready:{node}", 0, -1, withscores=True))
    assert kept == pytest.approx(tags.start)
    first = client.zrange(f"voicemill:ready:{node}", 0, 0)
    assert first == ([tags.first()] if tags.start else [])
    client.close()


def test_what_was_finished_long_ago_is_forgotten(store: Store, redis_url: str) -> None:
    client: Any = redis.Redis.from_url(redis_url, decode_responses=True)
    fair = script_text("parts/fair")
    for member, seconds in (("ann", 10), ("bob", 4000), ("bob", 1)):
        for call in (TWIN["enter"], TWIN["charge"]):
            client.eval(f"{fair}\n{call}", 0, "n", member, seconds)
        if member == "ann":
            client.eval(f"{fair}\n{TWIN['leave']}", 0, "n", member)
    client.eval(f"{fair}\nforget_finished(ARGV[1])", 0, "n")
    assert client.zrange("voicemill:finish:n", 0, -1) == ["bob"]
    client.close()


# --- tenants on a device ----------------------------------------------------------


@pytest.fixture
def device(store: Store) -> Device:
    return Device(store)


def share(got: Mapping[str, float], tenant: str) -> float:
    return got[tenant] / sum(got.values())


@pytest.mark.parametrize("slots", [1, 4])
def test_long_texts_and_short_ones_get_half_each(store: Store, slots: int) -> None:
    device = Device(store, slots)
    device.submit("long", *["x" * 300] * 200)
    device.submit("short", *["x" * 20] * 3000)
    got = device.serve(120, lambda tenant, text: 0.01 * len(text))
    assert share(got, "long") == pytest.approx(0.5, abs=0.05)


def test_texts_that_take_three_times_what_is_estimated_get_no_more(device: Device) -> None:
    device.submit("dear", *["x" * 100] * 400)
    device.submit("cheap", *["x" * 100] * 400)
    got = device.serve(120, lambda tenant, text: 3.0 if tenant == "dear" else 1.0)
    assert share(got, "dear") == pytest.approx(0.5, abs=0.05)


def test_who_submits_while_others_wait_goes_next(device: Device) -> None:
    device.submit("old", *["x" * 100] * 50)
    device.serve(10, lambda tenant, text: 1.0)
    device.submit("new", "hello")
    assert device.store.job(device.admit(most=1)[0].job_id).tenant == "new"


def test_interactive_work_goes_before_bulk_work_of_anybody(device: Device) -> None:
    device.submit("ann", *"abcdefgh")
    mine = device.submit("bob", "hello", standing=INTERACTIVE)
    own = device.submit("ann", "hello", standing=INTERACTIVE)
    assert {task.job_id for task in device.admit()} == {mine, own}


def test_interactive_work_does_not_starve_bulk_work_of_others(device: Device) -> None:
    device.submit("flood", *["x" * 100] * 400, standing=INTERACTIVE)
    device.submit("quiet", *["x" * 100] * 400)
    first = device.serve(int(LEAD_SECONDS), lambda tenant, text: 1.0)
    assert first["quiet"] <= 1
    after = device.serve(100, lambda tenant, text: 1.0)
    assert share(after, "flood") == pytest.approx(0.5, abs=0.05)


def test_a_batch_never_mixes_jobs_voices_or_classes(device: Device) -> None:
    texts = "abcdefgh"
    mixed = [*inputs(*texts)[:3], *inputs(*texts, voice="high")[3:]]
    device.store.create_job("mixed", "ann", mixed, {})
    for standing in (INTERACTIVE, BULK, BULK):
        device.submit("ann", *texts, standing=standing)
    carried = Counter[str]()
    while tasks := device.admit(most=1):
        (task,) = tasks
        asked = device.store.inputs(task.job_id, task.indexes)
        assert len({one.voice for one in asked}) == 1
        carried[task.job_id] += len(asked)
        device.end(task, 0.01)
    assert sorted(carried.values()) == [8, 8, 8, 8]


def test_priority_orders_the_jobs_of_a_tenant_and_of_nobody_else(device: Device) -> None:
    low = device.submit("ann", "a", standing=Standing(priority=-2))
    plain = device.submit("ann", "a")
    high = device.submit("ann", "a", standing=Standing(priority=2))
    other = device.submit("bob", "a")
    order = []
    while tasks := device.admit(most=1):
        order.append(tasks[0].job_id)
        device.end(tasks[0], 1.0)
    assert [job for job in order if job != other] == [high, plain, low]
    assert order.index(other) <= 1


def test_fairness_keys_share_what_their_tenant_gets(device: Device) -> None:
    keyed = {
        key: device.submit("ann", *["x" * 100] * 300, standing=Standing(fairness_key=key))
        for key in ("k1", "k2", "k3")
    }
    device.submit("bob", *["x" * 100] * 300)
    got = device.serve(120, lambda tenant, text: 1.0)
    assert share(got, "bob") == pytest.approx(0.5, abs=0.05)
    done = [device.store.job(job).counts.succeeded for job in keyed.values()]
    assert max(done) - min(done) <= 1


def test_a_slot_is_kept_for_interactive_work_once_some_came(store: Store) -> None:
    device = Device(store, slots=4)
    device.submit("ann", *["x" * 100] * 50)
    first = device.admit(interactive_slots=1)
    assert len(first) == 5, "none came yet"
    mine = device.submit("bob", "hello", standing=INTERACTIVE)
    for task in first[:2]:
        device.end(task, 1.0)
    assert [task.job_id for task in device.admit(interactive_slots=1)] == [mine]
    assert device.admit(interactive_slots=1) == [], "three at work for ann, one for bob"
    device.end(first[2], 1.0)
    assert len(device.admit(interactive_slots=1)) == 1


def test_two_slots_are_all_for_bulk_work(store: Store) -> None:
    device = Device(store, slots=2)
    device.submit("bob", "hello", standing=INTERACTIVE)
    device.end(device.admit(interactive_slots=1)[0], 1.0)
    device.submit("ann", *["x" * 100] * 50)
    assert len(device.admit(interactive_slots=1)) == 3


def test_a_tenant_pays_nothing_for_what_was_admitted_and_cancelled(device: Device) -> None:
    cancelled = device.submit("ann", *["x" * 1000] * 4)
    device.store.admit("tone", CENT_A_CHARACTER, 1.0)
    device.store.cancel(cancelled)
    device.submit("ann", *["x" * 100] * 50)
    device.submit("bob", *["x" * 100] * 50)
    got = device.serve(10, lambda tenant, text: 1.0)
    assert got == {"ann": 5.0, "bob": 5.0} or abs(got["ann"] - got["bob"]) <= 1.0


@pytest.mark.parametrize("slope", [0.002, 0.05])
def test_a_voice_that_was_measured_is_estimated_by_itself(device: Device, slope: float) -> None:
    for characters in (100, 200, 300, 400, 500, 600):
        device.store.observe_cost("tone/high", characters, 0.1 + slope * characters)
    device.submit("ann", "x" * 250, voice="high")
    device.submit("bob", "x" * 250, voice="low")
    estimates = [task.seconds for task in device.store.admit("tone", CENT_A_CHARACTER, 1.0)]
    expected = [0.1 + slope * 250, CENT_A_CHARACTER.seconds(250)]
    assert sorted(estimates) == pytest.approx(sorted(expected), rel=1e-4)


pairs = st.lists(st.tuples(st.integers(1, 5000), st.floats(0.001, 100)), min_size=6, max_size=20)


@settings(deadline=None, max_examples=25)
@given(made=pairs, characters=st.integers(1, 5000))
def test_lua_fits_the_line_that_costs_fits(
    valkey: Valkey, made: list[tuple[int, float]], characters: int
) -> None:
    store = Store.connect(valkey.url)
    name = uuid.uuid4().hex
    for measured, seconds in made:
        store.observe_cost(name, measured, seconds)
    fitted = store.cost(name)
    store.publish_engine(TONE)
    client: Any = redis.Redis.from_url(valkey.url, decode_responses=True)
    text = script_text("parts/costs")
    base, slope = client.eval(
        f"{text}\nlocal a, b = fit_cost(ARGV[1]) return {{tostring(a), tostring(b)}}", 0, name
    )
    assert float(base) + float(slope) * characters == pytest.approx(
        fitted.seconds(characters), rel=1e-6
    )
    client.close()
    store.close()

"""Who may submit, how much, and what share of a device each gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tests.core.device import Device
from tests.support import Valkey, inputs
from voicemill.errors import JobNotFoundError, QueueFullError, QuotaExceededError
from voicemill.jobs import ItemError, JobStatus, is_terminal, new_job_id
from voicemill.store import Store
from voicemill.tenants import Tenant, Use, hash_of, key_in, new_api_key

FAILURE = ItemError("synthesis_failed", "It failed.", True)


@pytest.fixture
def device(store: Store) -> Device:
    return Device(store)


def use_of(store: Store, tenant: str) -> Use:
    (use,) = [one.use for one in store.tenants() if one.tenant.id == tenant]
    return use


def share(got: Any, tenant: str) -> float:
    return float(got[tenant] / sum(got.values()))


# --- keys -----------------------------------------------------------------------


def test_a_key_leads_to_its_tenant_and_is_kept_as_a_hash(store: Store, redis_url: str) -> None:
    api_key = new_api_key()
    assert store.create_tenant(Tenant("ann"), api_key)
    assert store.tenant_of(api_key) == "ann"
    assert store.tenant_of(new_api_key()) is None
    client: Any = redis.Redis.from_url(redis_url)
    kept = b" ".join(client.dump(name) for name in client.keys("*"))
    assert hash_of(api_key).encode() in kept
    assert api_key.encode() not in kept
    client.close()


def test_a_tenant_has_one_key_until_it_is_revoked(store: Store) -> None:
    first, second = new_api_key(), new_api_key()
    assert store.create_tenant(Tenant("ann", weight=2.0), first)
    assert not store.create_tenant(Tenant("ann"), second)
    assert store.tenant_of(second) is None
    assert store.revoke_tenant("ann")
    assert not store.revoke_tenant("ann")
    assert store.tenant_of(first) is None
    (record,) = store.tenants()
    assert (record.tenant, record.has_key) == (Tenant("ann", weight=2.0), False)
    assert store.create_tenant(Tenant("ann", max_running_items=5), second)
    (record,) = store.tenants()
    assert (record.tenant, record.has_key) == (Tenant("ann", max_running_items=5), True)


def test_no_two_keys_are_alike() -> None:
    keys = {new_api_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(one) >= 40 for one in keys)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer vm_a", "vm_a"),
        ("bearer  vm_a ", "vm_a"),
        ("", None),
        ("vm_a", None),
        ("Basic dm06YQ==", None),
        ("Bearer", None),
        ("Bearer a b", None),
        ("Bearer é", None),
    ],
)
def test_a_key_is_read_from_a_bearer_header_only(header: str, expected: str | None) -> None:
    assert key_in(header) == expected


# --- shares ---------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 3])
def test_shares_are_by_weight(store: Store, slots: int) -> None:
    device = Device(store, slots)
    store.create_tenant(Tenant("heavy", weight=3.0), new_api_key())
    store.create_tenant(Tenant("light"), new_api_key())
    for tenant in ("heavy", "light"):
        device.submit(tenant, *["x" * 100] * 400)
    got = device.serve(120, lambda tenant, text: 1.0)
    assert share(got, "heavy") == pytest.approx(0.75, abs=0.05)


def test_a_tenant_at_its_cap_of_running_items_leaves_its_turn_to_others(store: Store) -> None:
    device = Device(store, slots=4)
    store.create_tenant(Tenant("capped", max_running_items=2), new_api_key())
    device.submit("capped", *["x" * 100] * 50)
    first = device.admit()
    assert len(first) == 2
    assert use_of(store, "capped") == Use(2, 48, 4800)
    assert device.admit() == []
    device.submit("other", *["x" * 100] * 50)
    assert {store.job(task.job_id).tenant for task in device.admit()} == {"other"}
    device.end(first[0], 1.0)
    (task,) = device.admit()
    assert store.job(task.job_id).tenant == "capped"
    assert use_of(store, "capped").running_items == 2


def test_a_batch_is_cut_to_what_a_cap_leaves(device: Device) -> None:
    device.store.create_tenant(Tenant("capped", max_running_items=3), new_api_key())
    device.submit("capped", *"abcdefghijklmnopqrst")
    assert [len(task.indexes) for task in device.admit()] == [3]


def test_a_tenant_that_was_away_at_its_cap_gets_no_credit_for_it(store: Store) -> None:
    device = Device(store, slots=2)
    store.create_tenant(Tenant("capped", max_running_items=1), new_api_key())
    device.submit("capped", *["x" * 100] * 50)
    device.submit("other", *["x" * 100] * 400)
    held, *others = sorted(
        device.admit(), key=lambda task: store.job(task.job_id).tenant != "capped"
    )
    for _ in range(30):
        for task in others:
            device.end(task, 1.0)
        others = device.admit()
    for task in others:
        device.end(task, 1.0)
    device.end(held, 1.0)
    got = device.serve(20, lambda tenant, text: 1.0)
    assert got["other"] >= 9.0


# --- what waits -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "message"),
    [
        ({"max_queued_items": 5}, "may have 5 items waiting; it has 3, and the job has 3"),
        ({"max_queued_characters": 20}, "may have 20 characters waiting; it has 15"),
    ],
)
def test_a_tenant_with_too_much_waiting_may_not_submit_until_some_was_let_in(
    device: Device, cap: dict[str, int], message: str
) -> None:
    store = device.store
    store.create_tenant(Tenant("ann", **cap), new_api_key())
    device.submit("ann", *["hello"] * 3)
    with pytest.raises(QuotaExceededError, match=message):
        device.submit("ann", *["hello"] * 3)
    assert use_of(store, "ann") == Use(0, 3, 15)
    assert len(store.jobs("ann").jobs) == 1, "nothing was created"
    device.submit("bob", *["hello"] * 3)
    device.admit(most=2)
    device.submit("ann", *["hello"] * 3)


def test_what_failed_runs_again_once_its_tenant_has_room_for_it(device: Device) -> None:
    store = device.store
    store.create_tenant(Tenant("ann", max_queued_items=3), new_api_key())
    job_id = device.submit("ann", "hello")
    fail_for_good(device)
    assert store.job(job_id).status is JobStatus.FAILED
    waiting = device.submit("ann", *["hello"] * 3)
    with pytest.raises(QuotaExceededError, match="may have 3 items waiting; it has 3"):
        store.retry(job_id)
    assert store.job(job_id).status is JobStatus.FAILED, "nothing was changed"
    store.cancel(waiting)
    store.retry(job_id)
    assert use_of(store, "ann") == Use(0, 1, 5)


def fail_for_good(device: Device) -> None:
    (task,) = device.admit(most=1)
    device.store.start_items(task, task.indexes, 60)
    device.store.fail_item(task, task.indexes[0], FAILURE, max_attempts=1)
    device.store.end_task(task, max_attempts=1)


def fail_and_end(device: Device, job_id: str) -> None:
    (task, *_) = device.admit(most=1)
    device.store.start_items(task, task.indexes, 60)
    device.store.fail_item(task, task.indexes[0], FAILURE, max_attempts=3)
    device.store.end_task(task, max_attempts=1)


def cancel_and_end(device: Device, job_id: str) -> None:
    running = device.admit()
    device.store.cancel(job_id)
    for task in running:
        device.store.end_task(task, max_attempts=3)


ENDS: dict[str, Callable[[Device, str], object]] = {
    "cancelled": lambda device, job_id: device.store.cancel(job_id),
    "cancelled while some of it runs": cancel_and_end,
    "failed": fail_and_end,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_a_tenant_has_is_nothing_once_all_of_it_has_ended(
    device: Device, redis_url: str, end: Callable[[Device, str], object]
) -> None:
    store = device.store
    store.create_tenant(Tenant("ann"), new_api_key())
    job_id = device.submit("ann", *["hello"] * 7)
    end(device, job_id)
    while tasks := device.admit():
        for task in tasks:
            device.end(task, 0.1)
    assert is_terminal(store.job(job_id).status)
    assert use_of(store, "ann") == Use()
    assert queued_bytes(redis_url) == 0


def queued_bytes(redis_url: str) -> int:
    client: Any = redis.Redis.from_url(redis_url)
    count = int(client.get("voicemill:queued_bytes") or 0)
    client.close()
    return count


@pytest.mark.parametrize("end", ["abandoned", "cancelled"])
def test_a_submission_that_was_given_up_gives_back_what_it_had_reserved(
    store: Store, redis_url: str, end: str
) -> None:
    store.create_tenant(Tenant("ann"), new_api_key())
    head = ("job_x", "ann", "{}", '["tone"]', "bulk", 0, "", "", "", "", "")
    store.run("create_job", *head, 7, 70, 700, "inf")
    assert (use_of(store, "ann"), queued_bytes(redis_url)) == (Use(0, 7, 70), 700)
    if end == "abandoned":
        store.abandon_unfinished(0)
    else:
        store.cancel("job_x")
    assert (use_of(store, "ann"), queued_bytes(redis_url)) == (Use(), 0)


def test_what_waits_may_take_so_many_bytes_in_all(store: Store, redis_url: str) -> None:
    store.create_job("job_1", "ann", inputs("hello"), {})
    size = queued_bytes(redis_url)
    assert size > 0
    with pytest.raises(QueueFullError):
        store.create_job("job_2", "bob", inputs("hello"), {}, max_queued_bytes=2 * size - 1)
    with pytest.raises(JobNotFoundError):
        store.job("job_2")
    store.create_job("job_2", "bob", inputs("hello"), {}, max_queued_bytes=2 * size)
    assert queued_bytes(redis_url) == 2 * size
    store.cancel("job_1")
    assert queued_bytes(redis_url) == size


def test_a_redis_that_is_nearly_full_takes_no_job_and_still_ends_those_it_has(
    own_valkey: Valkey,
) -> None:
    store = Store.connect(own_valkey.url)
    device = Device(store)
    device.submit("ann", "hello")
    client: Any = redis.Redis.from_url(own_valkey.url)
    client.set("other", b"x" * 30_000_000)
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] / 0.93))
    with pytest.raises(QueueFullError):
        store.create_job(new_job_id(), "ann", inputs("hello"), {})
    (task,) = device.admit()
    device.end(task, 0.1)
    assert store.job(task.job_id).status is JobStatus.COMPLETED
    client.close()
    store.close()

"""A job whose items have all ended, and who may say how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_growth import Server
from tests.support import TONE, inputs, wait_until
from voicemill.costs import CostModel
from voicemill.errors import JobActiveError, JobNotFoundError
from voicemill.jobs import (
    Concatenation,
    Counts,
    ItemAudio,
    ItemError,
    JobAudio,
    JobRules,
    JobStatus,
)
from voicemill.store import Join, Store
from voicemill.workers import ChildRecord

LEASE = 60.0
FAILED = ItemError("unsupported_characters", "It can't be said.", False)
BROKEN = ItemError("concatenation_failed", "It can't be joined.", True)
WHOLE = JobAudio("/out/job_1/audio.1.wav", "cd" * 32, 200, 3.0, 24000, "wav", 1)
CONCATENATED = JobRules(concatenate_silence_ms=250)


def run_all(store: Store, *failing: int) -> None:
    """Run all that waits: each item takes a quarter of a second and lasts one and a half."""
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    while store.snapshot().queued["tone"]:
        (admitted,) = store.admit("tone", CostModel(1.0, 0.0), 100.0, most=1)
        task = store.start_task(admitted.id, "c1", 60)
        assert task is not None
        for index in store.start_items(task, task.indexes, 60):
            if index in failing:
                store.fail_item(task, index, FAILED, max_attempts=1)
            else:
                path = f"/out/{index}.wav"
                audio = ItemAudio(path, "ab" * 32, 100, 1.5, 24000, 0.25, "tone", "1")
                assert store.succeed_item(task, index, audio)
        store.end_task(task, max_attempts=1)


@pytest.fixture
def waiting(store: Store) -> Store:
    """With a job of which two items succeeded and one failed, and which waits for a clerk."""
    store.create_job("job_1", "default", inputs("ab", "cd", "ef"), {}, rules=CONCATENATED)
    run_all(store, 1)
    assert store.job("job_1").status is JobStatus.FINALIZING
    return store


def take(store: Store, lease_seconds: float = LEASE) -> Join:
    join = store.take_finalizing(lease_seconds)
    assert join is not None
    return join


def test_a_job_that_asks_for_nothing_ends_with_its_last_item(store: Store) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    run_all(store)
    job = store.job("job_1")
    assert job.status is JobStatus.COMPLETED
    assert job.finalizing_at is not None
    assert job.concatenation is None
    assert store.take_finalizing(LEASE) is None


def test_a_job_without_audio_ends_with_its_last_item(store: Store) -> None:
    store.create_job("job_1", "default", inputs("a", "b"), {}, rules=CONCATENATED)
    run_all(store, 0, 1)
    job = store.job("job_1")
    assert (job.status, job.concatenation) == (JobStatus.FAILED, Concatenation(250))
    assert store.take_finalizing(LEASE) is None


def test_who_took_the_job_ends_it_once_and_its_record_is_final(waiting: Store) -> None:
    join = take(waiting)
    assert join == Join("job_1", 1, 0)
    assert waiting.take_finalizing(LEASE) is None, "it is taken"

    assert waiting.end_finalizing(join, WHOLE)

    job = waiting.job("job_1")
    assert job.status is JobStatus.COMPLETED
    assert job.concatenation == Concatenation(250, WHOLE)
    assert job.counts == Counts(total=3, succeeded=2, failed=1)
    assert (job.audio_seconds, job.device_seconds) == (3.0, 0.5)
    assert job.done_characters == job.input_characters == 6
    assert job.completed_at is not None
    assert job.created_at <= (job.finalizing_at or 0) <= job.completed_at
    assert waiting.end_finalizing(join, WHOLE), "the answer may have been lost"
    assert not waiting.end_finalizing(Join("job_1", 2, 0), WHOLE)
    assert waiting.job("job_1") == job


def test_who_lost_the_job_can_not_end_it(waiting: Store) -> None:
    first = take(waiting, 0.01)
    wait_until(lambda: waiting.take_finalizing(0.0) is not None, what="the end of the lease")
    last = take(waiting)
    assert (last.number, last.lost) == (3, 2)

    assert not waiting.keep_finalizing(first, LEASE)
    assert not waiting.return_finalizing(first, 0.0, trouble="disk_full")
    assert not waiting.end_finalizing(first, WHOLE)

    assert waiting.job("job_1").status is JobStatus.FINALIZING
    assert waiting.job("job_1").trouble is None
    assert waiting.end_finalizing(last, BROKEN)
    assert waiting.job("job_1").status is JobStatus.COMPLETED
    assert waiting.job("job_1").concatenation == Concatenation(250, error=BROKEN)


def test_what_keeps_a_job_from_its_end_is_said_until_it_goes_on(waiting: Store) -> None:
    join = take(waiting)
    assert waiting.return_finalizing(join, 0.0, trouble="disk_full")
    assert waiting.job("job_1").trouble == "disk_full"
    join = take(waiting)
    assert (join.number, join.lost) == (2, 0), "what waits for room loses no try"
    assert waiting.job("job_1").trouble == "disk_full"
    assert waiting.keep_finalizing(join, LEASE)
    assert waiting.job("job_1").trouble is None
    assert waiting.return_finalizing(join, LEASE, is_lost=True)
    assert waiting.take_finalizing(LEASE) is None, "after the pause"


def test_how_often_a_job_has_waited_is_counted_until_it_ends(waiting: Store) -> None:
    for waits in range(3):
        join = take(waiting)
        assert join.waits == waits
        assert waiting.keep_finalizing(join, LEASE), "it goes on, and then there is trouble again"
        assert waiting.return_finalizing(join, 0.0, trouble="disk_full")
    join = take(waiting)
    assert waiting.return_finalizing(join, 0.0)
    join = take(waiting)
    assert join.waits == 3, "who stops for its own reasons had no trouble"
    assert waiting.end_finalizing(join, WHOLE)
    waiting.retry("job_1")
    run_all(waiting)
    assert take(waiting).waits == 0


def wait_to_be_joined(store: Store, tenant: str, jobs: int) -> None:
    for number in range(jobs):
        store.create_job(f"{tenant}_{number}", tenant, inputs("a"), {}, rules=CONCATENATED)
    run_all(store)


def joined_tenants(store: Store, joins: int) -> list[str]:
    """Whose jobs are joined, one after the other."""
    found = []
    for _ in range(joins):
        join = take(store)
        found.append(join.job_id.partition("_")[0])
        assert store.end_finalizing(join, WHOLE)
    return found


def test_tenants_take_turns_however_many_jobs_one_has(store: Store) -> None:
    wait_to_be_joined(store, "ann", 30)
    assert joined_tenants(store, 2) == ["ann", "ann"]
    wait_to_be_joined(store, "bob", 3)
    wait_to_be_joined(store, "cat", 1)

    order = joined_tenants(store, 8)

    assert order[:4] == ["ann", "bob", "cat", "ann"]
    assert order[4:] == ["bob", "ann", "bob", "ann"]
    assert joined_tenants(store, 24) == ["ann"] * 24
    assert store.take_finalizing(LEASE) is None


def test_of_a_tenant_the_job_that_waits_longest_is_joined_first(store: Store) -> None:
    for number in range(4):
        store.create_job(f"ann_{number}", "ann", inputs("a"), {}, rules=CONCATENATED)
        run_all(store)
    assert [take(store).job_id for _ in range(4)] == ["ann_0", "ann_1", "ann_2", "ann_3"]


def test_several_clerks_join_jobs_of_several_tenants_at_once(store: Store) -> None:
    wait_to_be_joined(store, "ann", 5)
    wait_to_be_joined(store, "bob", 5)
    joins = [take(store) for _ in range(4)]
    assert [join.job_id.partition("_")[0] for join in joins] == ["ann", "bob", "ann", "bob"]


def test_a_tenant_whose_jobs_wait_for_room_holds_nobody_up(store: Store) -> None:
    wait_to_be_joined(store, "ann", 3)
    for _ in range(3):
        assert store.return_finalizing(take(store), LEASE, trouble="disk_full")
    assert store.take_finalizing(LEASE) is None
    wait_to_be_joined(store, "bob", 2)
    assert joined_tenants(store, 2) == ["bob", "bob"]
    assert store.take_finalizing(LEASE) is None


def test_a_join_takes_as_many_commands_however_many_jobs_wait(store: Store, redis_url: str) -> None:
    server = Server(redis_url)

    def sent(jobs: int) -> dict[str, int]:
        server.client.flushdb()
        wait_to_be_joined(store, "ann", jobs)
        return server.commands_of(lambda: joined_tenants(store, 2))

    sent(3)  # loads the scripts
    assert sent(3) == sent(30)
    server.client.close()


def test_a_cancel_completes_what_waits_to_be_joined_without_its_file(waiting: Store) -> None:
    job = waiting.cancel("job_1")
    assert job.status is JobStatus.COMPLETED
    assert job.concatenation is not None
    assert job.concatenation.audio is None
    error = job.concatenation.error
    assert error == ItemError(
        "concatenation_cancelled",
        "The job was cancelled before the audio of its items was joined.",
        False,
    )
    assert job.counts == Counts(total=3, succeeded=2, failed=1)
    assert job.completed_at is not None
    assert waiting.take_finalizing(LEASE) is None
    assert waiting.cancel("job_1") == job, "what has ended stays as it is"


def test_a_cancel_ends_what_is_being_joined_and_who_joins_it_gives_up(waiting: Store) -> None:
    join = take(waiting)
    ended = waiting.cancel("job_1")
    assert ended.status is JobStatus.COMPLETED

    assert not waiting.keep_finalizing(join, LEASE)
    assert not waiting.return_finalizing(join, 0.0, trouble="disk_full")
    assert not waiting.end_finalizing(join, WHOLE)

    assert waiting.job("job_1") == ended
    assert waiting.take_finalizing(LEASE) is None


def test_a_cancel_says_what_the_job_waited_for(waiting: Store) -> None:
    assert waiting.return_finalizing(take(waiting), LEASE, trouble="disk_full")
    job = waiting.cancel("job_1")
    assert job.status is JobStatus.COMPLETED
    assert job.trouble is None
    assert job.concatenation is not None
    assert job.concatenation.error is not None
    assert job.concatenation.error.code == "disk_full"
    assert job.concatenation.error.retryable


def test_a_join_that_ended_first_stands_against_a_cancel(waiting: Store) -> None:
    assert waiting.end_finalizing(take(waiting), WHOLE)
    assert waiting.cancel("job_1").concatenation == Concatenation(250, WHOLE)


def test_what_was_cancelled_as_it_was_joined_may_run_again(waiting: Store) -> None:
    waiting.cancel("job_1")
    waiting.retry("job_1")
    run_all(waiting)
    join = take(waiting)
    assert waiting.end_finalizing(join, WHOLE)
    assert waiting.job("job_1").concatenation == Concatenation(250, WHOLE)


def test_deadline_and_retry_come_too_late_or_too_early(store: Store) -> None:
    rules = JobRules(deadline_seconds=60, concatenate_silence_ms=0)
    store.create_job("job_1", "default", inputs("a", "b"), {}, rules=rules)
    run_all(store, 1)
    redis: Any = store._redis
    redis.zadd("voicemill:deadlines", {"job_1": 0})

    assert store.expire_jobs() == 1
    assert store.job("job_1").status is JobStatus.FINALIZING
    with pytest.raises(JobActiveError):
        store.retry("job_1")
    with pytest.raises(JobActiveError):
        store.delete("job_1")

    assert store.end_finalizing(take(store), WHOLE)


def test_a_delete_that_may_cancel_ends_what_is_being_joined(waiting: Store) -> None:
    join = take(waiting)
    waiting.delete("job_1", cancel=True)
    with pytest.raises(JobNotFoundError):
        waiting.job("job_1")
    assert waiting.removals() == ["job_1"]
    assert not waiting.keep_finalizing(join, LEASE)
    assert not waiting.end_finalizing(join, WHOLE)
    assert waiting.take_finalizing(LEASE) is None


def test_a_retry_is_finalised_again_and_the_audio_stays_until_then(waiting: Store) -> None:
    waiting.end_finalizing(take(waiting), WHOLE)
    waiting.retry("job_1")
    assert waiting.job("job_1").concatenation == Concatenation(250, WHOLE)
    run_all(waiting)
    job = waiting.job("job_1")
    assert (job.status, job.concatenation) == (
        JobStatus.FINALIZING,
        Concatenation(250, WHOLE),
    )
    join = take(waiting)
    assert (join.number, join.lost) == (2, 0)
    again = JobAudio("/out/job_1/audio.2.wav", "ef" * 32, 300, 4.5, 24000, "wav", 0)
    assert waiting.end_finalizing(join, again)
    assert waiting.job("job_1").concatenation == Concatenation(250, again)
    assert waiting.job("job_1").counts == Counts(total=3, succeeded=3)
    assert waiting.job("job_1").audio_seconds == 4.5


def test_a_job_of_a_schema_we_do_not_know_is_left_alone_and_keeps_none_from_its_turn(
    waiting: Store,
) -> None:
    waiting.create_job("job_2", "default", inputs("ab"), {}, rules=CONCATENATED)
    run_all(waiting)
    client: Any = waiting._redis
    client.hset("voicemill:job:job_1", "schema", 2)
    before = client.hgetall("voicemill:job:job_1")

    assert take(waiting).job_id == "job_2"
    assert waiting.take_finalizing(LEASE) is None

    assert client.hgetall("voicemill:job:job_1") == before
    assert client.zscore("voicemill:finalizing:default", "job_1"), "who knows it takes it"


def test_more_jobs_of_a_schema_we_do_not_know_than_one_call_looks_at_keep_none_from_its_turn(
    waiting: Store,
) -> None:
    client: Any = waiting._redis
    unknown = [f"job_x{number}" for number in range(1001)]
    with client.pipeline() as pipeline:
        for job_id in unknown:
            pipeline.hset(f"voicemill:job:{job_id}", mapping={"schema": 2, "status": "finalizing"})
        pipeline.zadd("voicemill:finalizing:zoe", dict.fromkeys(unknown, 1.0))
        pipeline.zadd("voicemill:finalizing", {"zoe": 1.0})
        pipeline.execute()

    assert waiting.take_finalizing(LEASE) is None, "it has looked at a thousand"
    assert take(waiting).job_id == "job_1"
    assert client.zcard("voicemill:finalizing:zoe") == len(unknown), "who knows them takes them"

"""The append-only file as a witness."""

from __future__ import annotations

import io

import pytest

from tests.chaos.trace import ItemState, check, commands, may_follow
from tests.core.device import CENT_A_CHARACTER
from tests.support import TONE, Valkey, inputs
from voicemill.jobs import ItemAudio, JobAudio, JobRules
from voicemill.store import Store
from voicemill.workers import ChildRecord

SPOKEN = ItemAudio("/out/a.wav", "ab" * 32, 100, 1.0, 24000, 1.0, "tone", "1")
WHOLE = JobAudio("/out/audio.1.wav", "ab" * 32, 100, 1.0, 24000, "wav", 0)
QUEUED, RUNNING = ItemState(), ItemState("in_progress", 1)


def test_a_torn_command_at_the_end_is_none() -> None:
    whole = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"
    for end in range(len(whole)):
        assert list(commands(io.BytesIO(whole * 2 + whole[:end]))) == [[b"GET", b"x"]] * 2


def test_the_life_of_a_job_is_read_back(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    store.publish_engine(TONE)
    store.beat_child(ChildRecord("c", "node", 1, "tone", "1", ready_at=0.0), 60, takes_work=True)
    store.create_job("job_1", "default", inputs("a"), {}, rules=JobRules(concatenate_silence_ms=0))
    (admitted,) = store.admit("tone", CENT_A_CHARACTER, 1.0, most=1)
    task = store.start_task(admitted.id, "c", 60)
    assert task is not None
    store.start_items(task, [0], 60)
    store.succeed_item(task, 0, SPOKEN)
    store.end_task(task, max_attempts=3)
    join = store.take_finalizing(60)
    assert join is not None
    assert store.end_finalizing(join, WHOLE)
    store.close()
    own_valkey.stop()

    trace = check(own_valkey.folder)

    # validating, queued, in_progress, finalizing, completed; in_progress, succeeded.
    assert (trace.moves, trace.most_attempts, trace.joined) == (7, 1, 1)


@pytest.mark.parametrize(
    ("before", "after", "is_legal"),
    [
        (QUEUED, RUNNING, True),
        (RUNNING, ItemState("succeeded", 1), True),
        (RUNNING, ItemState("queued", 0), True),
        (QUEUED, ItemState("succeeded", 0), False),
        (RUNNING, RUNNING, False),
        (RUNNING, ItemState("in_progress", 2), False),
        (ItemState("succeeded", 1), ItemState("queued", 1), False),
        (ItemState("succeeded", 1), ItemState("succeeded", 1), False),
        (ItemState("failed", 3), ItemState("in_progress", 4), False),
        (ItemState("failed", 3), ItemState("in_progress", 4, run=2), True),
        (ItemState("cancelled", 1), ItemState("succeeded", 1), False),
    ],
)
def test_what_has_ended_stays_until_its_job_runs_again(
    before: ItemState, after: ItemState, is_legal: bool
) -> None:
    assert may_follow(before, after) is is_legal

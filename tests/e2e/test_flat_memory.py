"""Sentences of ever other lengths leave no memory behind in a child that is never replaced."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.solo import SoloWorker, assert_each_spoken_once
from tests.support import inputs
from voicemill.jobs import new_job_id

MEBIBYTE = 2**20
WORDS = ("the", "quiet", "harbour", "was", "covered", "in", "fog", "and", "nobody", "saw", "it")
ITEMS, FIRST = 300, 50
MOST_WORDS = 60
"""More than one segment of what `hibari` takes at most; longer items are more of the same."""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_texts_of_all_lengths_leave_memory_flat_and_the_session_s_options_are_in_the_log(
    tmp_path: Path, redis_url: str
) -> None:
    chance = random.Random(358)
    counts = [1 + index * MOST_WORDS // ITEMS for index in range(ITEMS)]
    chance.shuffle(counts)
    texts = [" ".join(chance.choices(WORDS, k=count)) for count in counts]
    env = {
        "VOICEMILL_ENGINE": "hibari",
        "VOICEMILL_ENGINE_OPTIONS": "",
        "VOICEMILL_HOST_MEMORY_LIMIT": "off",
        "VOICEMILL_MAX_TASKS_PER_CHILD": "off",
        "VOICEMILL_MAX_SLOWDOWN": "off",
        "VOICEMILL_BATCH_SECONDS": "5",
    }
    with SoloWorker(redis_url, tmp_path, "-l", "INFO", **env) as worker:
        old = worker.the_child()["pid"]

        def speak(*some: str) -> int:
            job_id = new_job_id()
            voice = worker.store.engines()["hibari"].voices[0].name
            worker.store.create_job(
                job_id, "default", inputs(*some, model="hibari", voice=voice), {}
            )
            assert_each_spoken_once(worker.wait_for(job_id, seconds=400))
            rss: int = worker.the_child()["rss_bytes"]
            return rss

        early = speak(*texts[:FIRST])
        late = speak(*texts[FIRST:])
        assert worker.the_child()["pid"] == old
        assert worker.recycles() == {}
        assert late - early < 150 * MEBIBYTE
        assert worker.store.order(worker.node, "recycle")
        worker.wait_until("a hand-over", lambda: worker.record.recycles)
        fresh = worker.the_child()
        assert fresh["pid"] != old
        assert fresh["rss_baseline_bytes"] < late + 10 * MEBIBYTE
        assert worker.stop() == 0
    assert worker.log.count("ONNX Runtime ") == 2

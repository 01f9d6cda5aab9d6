"""The disk fills up in the middle of a batch."""

from __future__ import annotations

import json
from pathlib import Path

from tests.small_disk import run_on_small_disk
from worker.synthesis import WRITES_AHEAD

SPEAK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from tests.support import inputs
from voicemill.costs import CostModel
from voicemill.settings import Settings
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.engines import load_engine
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

folder, url = sys.argv[1:]
settings = Settings(
    redis_url=url, engine="tone", output_dir=Path(folder), max_attempts=2, retry_seconds=None
)
store, engine = Store.connect(url), load_engine("tone")
capabilities = engine.load({})
store.publish_engine(capabilities)
store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 600, takes_work=True)
store.create_job("job_1", "default", inputs(*["Hello."] * 60), {})
vitals = Vitals(settings, engine)
synthesizer = Synthesizer(store, engine, capabilities, settings, vitals)

def look():
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        "items": [asdict(item) for item in store.items("job_1")],
        "files": {str(path): path.stat().st_size for path in files},
    }

looks = []
while admitted := store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1):
    task = store.start_task(admitted[0].id, "c1", 60)
    assert task is not None
    synthesizer.run(task)
    if len(looks) < 2:
        looks.append(look())
print(json.dumps([*looks, look()]))
"""


def test_the_rest_of_a_batch_is_not_tried_and_who_is_tried_says_why(
    redis_url: str, tmp_path: Path
) -> None:
    first, _, last = json.loads(run_on_small_disk(tmp_path, SPEAK, redis_url))

    spoken = [item for item in first["items"] if item["status"] == "succeeded"]
    tried = [item for item in first["items"] if item["attempts"]]
    refused = [item for item in tried if item["status"] == "queued"]
    assert spoken
    assert 1 <= len(refused) <= WRITES_AHEAD + 2
    assert len(tried) == len(spoken) + len(refused) < 30
    assert {item["error"]["code"] for item in refused} == {"disk_full"}
    for look in (first, last):
        audio = [item["audio"] for item in look["items"] if item["status"] == "succeeded"]
        assert look["files"] == {one["audio_path"]: one["size_bytes"] for one in audio}
    failed = [item for item in last["items"] if item["status"] == "failed"]
    assert len(failed) == 60 - len(spoken)
    assert {(item["attempts"], item["error"]["code"]) for item in failed} == {(2, "disk_full")}

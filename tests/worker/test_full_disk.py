"""The disk fills up in the middle of a batch, and there is room again later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.small_disk import run_on_small_disk

SPEAK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from tests.support import inputs, wait_until
from voicemill.costs import CostModel
from voicemill.settings import Settings
from voicemill.storage import MARKER, Storage
from voicemill.store import Store
from voicemill.workers import ChildRecord
from worker.engines import load_engine
from worker.synthesis import Synthesizer
from worker.vitals import Vitals

folder, url = Path(sys.argv[1]), sys.argv[2]
settings = Settings(redis_url=url, engine="tone", output_dir=folder, free_space_floor_mb=0)
store, engine = Store.connect(url), load_engine("tone")
capabilities = engine.load({})
store.publish_engine(capabilities)
store.beat_child(ChildRecord("c1", "node", 1, "tone", "1", ready_at=0.0), 600, takes_work=True)
store.create_job("job_1", "default", inputs("Hi.", "Ha.", "Ho."), {})
storage = Storage(store, settings)
assert storage.look() is None
synthesizer = Synthesizer(store, engine, capabilities, settings, Vitals(settings, engine), storage)
filler = folder / "filler"
filler.write_bytes(bytes(40 * 1024))

def run_next():
    (admitted,) = store.admit("tone", CostModel(0.01, 0.0), 100.0, most=1)
    task = store.start_task(admitted.id, "c1", 60)
    assert task is not None
    synthesizer.run(task)
    store.end_task(task, max_attempts=3)

def look():
    files = [path for path in folder.rglob("*") if path.suffix in (".wav", ".tmp")]
    return {
        "items": [asdict(item) for item in store.items("job_1")],
        "files": {str(path): path.stat().st_size for path in files},
        "trouble": storage.trouble and storage.trouble.code,
    }

run_next()
full = look()
run_next()
still_full = look()
filler.unlink()
wait_until(lambda: storage.look() is None, what="room")
while store.snapshot().queued["tone"]:
    run_next()
print(json.dumps([full, still_full, look()]))
"""


@pytest.mark.full
def test_what_finds_no_room_goes_back_and_loses_no_attempt(redis_url: str, tmp_path: Path) -> None:
    full, still_full, last = json.loads(run_on_small_disk(tmp_path, SPEAK, redis_url))

    statuses = [item["status"] for item in full["items"]]
    assert statuses.count("succeeded") == 1
    assert full["trouble"] == "disk_full"
    waiting = [item for item in full["items"] if item["status"] == "queued"]
    assert {item["attempts"] for item in waiting} == {0}
    assert "disk_full" in {item["error"]["code"] for item in waiting if item["error"]}
    assert still_full == full, "nothing is begun while there is no room"
    assert {(item["status"], item["attempts"]) for item in last["items"]} == {("succeeded", 1)}
    assert last["trouble"] is None
    for look in (full, last):
        audio = [item["audio"] for item in look["items"] if item["status"] == "succeeded"]
        assert look["files"] == {one["audio_path"]: one["size_bytes"] for one in audio}

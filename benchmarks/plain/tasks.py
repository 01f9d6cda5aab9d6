"""The usual way, to compare with: a Celery task, a model loaded in each prefork child.

Started by ``benchmarks/recycle.py`` with ``--max-tasks-per-child``.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, signals

from worker import audio
from worker.engines import load_engine
from worker.engines.base import Engine, Segment, SynthesisOptions

TOLD = json.loads(os.environ["BENCH"])  # noqa: TID251
URL, OUTPUT = TOLD["redis_url"], Path(TOLD["output"])

app = Celery("plain", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    # The default of 4 s kills every replacement whose model takes longer to load.
    worker_proc_alive_timeout=60,
    accept_content=["json"],
)
engine: Engine | None = None


@signals.worker_process_init.connect
def load(**_: Any) -> None:
    """Load the model once per child."""
    global engine
    engine = load_engine(TOLD["engine"])
    engine.load(TOLD["options"])


@app.task(name="speak")
def speak(number: int, text: str) -> tuple[float, int]:
    """Speak into a file; gives when it was done (seconds since the epoch) and by which process."""
    assert engine is not None
    (spoken,) = engine.synthesize([Segment(text)], TOLD["voice"], SynthesisOptions())
    assert not isinstance(spoken, Exception)
    (OUTPUT / f"{number}.wav").write_bytes(audio.encode(spoken, 24000, "wav"))
    return time.time(), os.getpid()

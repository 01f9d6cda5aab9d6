"""A torch engine through the whole queue: a tiny model with random weights, made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.e2e.audit import audit
from tests.e2e.stack import Stack


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_local_vits_model_speaks_through_the_queue(tmp_path: Path) -> None:
    from tests.worker.tiny_vits import make_tiny_vits

    model = tmp_path / "model"
    make_tiny_vits(model)
    options = json.dumps({"model_path": str(model)})
    stack = Stack(
        tmp_path / "home",
        *("--engine", "transformers", "--engine-options", options, "--workers", "1"),
    )
    stack.start()
    try:
        job_id = stack.submit(["A first line.", "Another one, longer.", "Third."], seed=7)
        items = audit(stack, job_id, 3)
        assert {item["status"] for item in items} == {"succeeded"}, items
        assert {item["engine"] for item in items} == {"transformers"}
        for item in items:
            assert soundfile.info(item["audio_path"]).samplerate == item["sample_rate"]
    finally:
        assert stack.stop() == 0

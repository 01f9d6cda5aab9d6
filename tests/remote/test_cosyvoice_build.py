"""What ``trt`` and ``vllm`` read is built in the engine's own Python, as the check-up says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.pythons import venv
from tests.worker.cosyvoice_world import PLAN, World
from voicemill.settings import Settings
from worker import checkup
from worker.engines.base import Segment, SynthesisOptions
from worker.remote.engine import RemoteEngine


@pytest.mark.full
def test_the_commands_of_the_check_up_build_in_an_own_python_all_that_a_start_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSYVOICE_STAND_IN_CUDA", "there")
    python = venv("3.10", "numpy", "soundfile>=0.13")
    world = World(tmp_path / "with a space")
    world.make_model()
    world.make_voice("ann", language="en")
    (world.model_dir / PLAN.replace("mygpu.plan", "onnx")).write_text("graph")
    options = world.options(trt=True, vllm=True)
    settings = Settings(engine="cosyvoice", engine_options=options, engine_python=python)

    commands = [one.command for one in checkup.missing(settings) if "cosy.build" in one.command]
    assert [command.rpartition(" ")[2] for command in commands] == ["--vllm", "--trt"]
    clean = {name: os.environ[name] for name in ("PATH", "COSYVOICE_STAND_IN_CUDA")}
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1].startswith("Built: ")
    assert not [one for one in checkup.missing(settings) if "cosy.build" in one.command]

    engine = RemoteEngine("cosyvoice", python)
    engine.load(options)
    (spoken,) = engine.synthesize([Segment("hello there", 1)], "ann", SynthesisOptions())
    engine.unload()
    assert isinstance(spoken, np.ndarray)
    assert len(spoken) > 0

"""The suite runs for engines of other packages, and finds what is wrong with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"<!-- example: morse_engine\.py -->\s*```python\n(.*?)```", re.DOTALL)
RUDE = """
import ctypes, logging, os, random, signal, socket
import numpy as np
from dataclasses import replace
from voicemill.errors import SynthesisError
from worker.engines.tone import ToneEngine

KEPT = []

class RudeEngine(ToneEngine):
    def load(self, options):
        options = dict(options)
        self.manner = options.pop("manner", "")
        if self.manner == "hears no options":
            options = {}
        able = super().load(options)
        if self.manner == "logs":
            logging.basicConfig(level=logging.DEBUG)
        if self.manner == "handles signals":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.manner == "keeps its model":
            KEPT.append(b"x" * (1 << 26))
        if self.manner == "calls home":
            ctypes.CDLL(None).socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
        if self.manner == "calls home in Python":
            socket.getaddrinfo("example.org", 443)
        return replace(able, engine="rude")

    def synthesize(self, batch, voice, options):
        if self.manner == "prints":
            os.write(1, b"spoken\\n")
        if self.manner == "draws":
            random.random()
        if self.manner == "draws by numpy":
            np.random.rand()
        if self.manner == "leaks":
            KEPT.append(b"x" * (1 << 17))
        if self.manner == "forgets the seed":
            batch = [replace(one, seed=None) for one in batch]
        spoken = super().synthesize(batch, voice, options)
        if self.manner == "turns them round":
            return spoken[::-1]
        if self.manner == "fails together" and any("\U00012000" in one.text for one in batch):
            return [SynthesisError("All of it.")] * len(spoken)
        if self.manner == "pads" and len(batch) > 1:
            return [np.pad(one, 99) if isinstance(one, np.ndarray) else one for one in spoken]
        if self.manner == "speaks double":
            return [one.astype(float) if isinstance(one, np.ndarray) else one for one in spoken]
        if self.manner == "writes over":
            for number, one in enumerate(spoken):
                if isinstance(one, np.ndarray):
                    if not hasattr(self, "memory"):
                        self.memory = np.zeros(1 << 22, np.float32)
                    self.memory[: len(one)] = one
                    spoken[number] = self.memory[: len(one)]
        return spoken
"""


def install(folder: Path, name: str, source: str, attribute: str) -> None:
    """A package with one engine, as an installer would leave it."""
    (folder / f"{name}_engine.py").write_text(source)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[voicemill.engines]\n{name} = {name}_engine:{attribute}\n"
    )


def run_suite(folder: Path, name: str, *arguments: str) -> tuple[int, set[str], str]:
    """Its exit code, the tests that did not pass, and all that it printed."""
    suite = str(ROOT / "tests/conformance/test_conformance.py")
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*pytest_alone, "-m", "", suite, "--engine", name, "-rfE", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)\[", done.stdout, re.MULTILINE)
    return done.returncode, set(failed), done.stdout


@pytest.mark.full
def test_the_engine_of_the_documentation_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs/engines.md").read_text("utf-8")
    (source,) = EXAMPLE.findall(page)
    assert len([line for line in source.splitlines() if line.strip()]) <= 45
    install(tmp_path, "morse", source, "MorseEngine")
    code, failed, told = run_suite(tmp_path, "morse")
    assert (code, failed) == (0, set()), told
    assert re.search(r"^22 passed in", told, re.MULTILINE), told


@pytest.mark.full
@pytest.mark.parametrize(
    ("manner", "found_by"),
    [
        ("prints", "test_it_writes_nothing_to_standard_output"),
        ("logs", "test_it_leaves_alone_what_belongs_to_the_process"),
        ("handles signals", "test_it_leaves_alone_what_belongs_to_the_process"),
        ("draws", "test_it_leaves_alone_what_belongs_to_the_process"),
        ("draws by numpy", "test_it_leaves_alone_what_belongs_to_the_process"),
        ("leaks", "test_many_calls_leave_nothing_behind"),
        ("keeps its model", "test_unloading_gives_back_what_loading_took"),
        ("calls home", "test_it_writes_nothing_to_standard_output"),
        ("calls home in Python", "test_it_writes_nothing_to_standard_output"),
        ("forgets the seed", "test_a_seed_gives_the_same_samples_again"),
        ("turns them round", "test_results_come_in_the_order_of_the_segments"),
        ("pads", "test_a_batch_sounds_as_each_segment_alone"),
        ("fails together", "test_one_bad_segment_harms_no_other"),
        ("speaks double", "test_a_segment_becomes_mono_samples_that_are_heard"),
        ("writes over", "test_what_was_spoken_stays_as_it_was"),
        ("hears no options", "test_an_option_that_it_does_not_know_stops_the_loading"),
    ],
)
def test_an_engine_with_bad_manners_is_found_out(
    tmp_path: Path, manner: str, found_by: str
) -> None:
    install(tmp_path, "rude", RUDE, "RudeEngine")
    told_how = f'{{"manner": "{manner}"}}'
    code, failed, told = run_suite(tmp_path, "rude", "--engine-options", told_how, "-k", found_by)
    assert (code, failed) == (1, {found_by}), told


@pytest.mark.full
def test_with_good_manners_it_passes(tmp_path: Path) -> None:
    install(tmp_path, "rude", RUDE, "RudeEngine")
    code, failed, told = run_suite(tmp_path, "rude")
    assert (code, failed) == (0, set()), told

"""``benchmarks/engines.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.engines import HEAD, cells, row
from benchmarks.parts.bare import Bare, calls, speak_bare
from benchmarks.parts.hearing import plain, word_error_rate
from voicemill.errors import SynthesisError

ROOT = Path(__file__).parents[2]
BARE = Bare("joe", ("MIT", None, "CC0"), 0.91, 0.29, 20.0, 326.6, None, ())


def test_figures_are_put_in_the_columns_of_the_table() -> None:
    found = row(BARE, through=19.0, wrong=0.0371)
    assert (found.efficiency, found.word_error_rate) == (0.95, 0.037)
    told = dict(zip(HEAD, cells("piper", found), strict=True))
    assert told == {
        "engine": "`piper`",
        "licence of engine; model; voice": "MIT; unknown; CC0",
        "times real time, bare": "20.0",
        "through the stack": "19.0",
        "efficiency": "0.95",
        "load s": "0.9",
        "warm-up s": "0.3",
        "memory MB": "327",
        "device MB": "-",
        "WER": "3.7 %",
    }
    assert cells("transformers", row(BARE, through=19.0, wrong=None))[-1] == "-"


def test_a_call_has_as_many_lines_as_the_engine_takes() -> None:
    assert list(calls(["a", "b", "c"], 2)) == [["a", "b"], ["c"]]


def test_an_engine_alone_speaks_each_line_into_a_file(tmp_path: Path) -> None:
    bare = speak_bare("tone", {}, None, ["One.", "Two, and longer."], tmp_path)
    assert [Path(one).name for one in bare.audio] == ["0.wav", "1.wav"]
    assert all(Path(one).stat().st_size > 1000 for one in bare.audio)
    assert bare.times_real_time > 0
    assert bare.memory_mb > 10
    assert bare.licences[0] == "Apache-2.0"


def test_a_line_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    with pytest.raises(SynthesisError):
        speak_bare(
            "tone",
            {"memory_characters": 30},
            None,
            ["A line of more than thirty characters."],
            tmp_path,
        )


@pytest.mark.full
def test_words_are_compared_without_case_and_stops() -> None:
    assert plain("The ferry, it's LATE!") == "the ferry it's late"
    assert word_error_rate(["The old ferry."], ["the old ferry"]) == 0.0
    assert word_error_rate(["The old ferry left.", "Go!"], ["the bold ferry", "go go"]) == 3 / 5


@pytest.mark.full
def test_it_ends_with_a_table_and_names_what_is_not_there() -> None:
    engines = ("--engines", "tone", "nobody")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.engines", "--quick", "--json", *engines],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    told = json.loads(last)
    assert list(told["engines"]) == ["tone"]
    assert told["engines"]["tone"]["efficiency"] > 0
    assert "nobody" in told["left_out"]["nobody"]
    assert told["failed"] == {}
    assert sum(line.startswith("| `tone` |") for line in lines) == 1

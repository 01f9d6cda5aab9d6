"""Rows that bring a clip: each clip is sent once, its faults are its rows', and results stay."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.bulk.wire_double import WireDouble
from voicemill.bulk.progress import Silence
from voicemill.bulk.speak import Summary, speak_csv
from voicemill.bulk.table import read_table

HEAD = "id,text,prompt_audio,prompt_text,language\n"


def speak(wire: WireDouble, folder: Path, rows: str) -> Summary:
    table = folder / "lines" / "lines.csv"
    table.write_text(HEAD + rows, encoding="utf-8")
    return speak_csv(table, folder / "out", wire.url, Silence())


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    folder = tmp_path / "lines" / "clips"
    folder.mkdir(parents=True)
    (folder / "ann.wav").write_bytes(b"ann")
    (folder / "copy.wav").write_bytes(b"ann")
    (folder / "bad.wav").write_bytes(b"bad")
    return folder


def test_a_clip_is_sent_once_and_its_rows_name_its_voice(
    wire: WireDouble, tmp_path: Path, clips: Path
) -> None:
    summary = speak(
        wire,
        tmp_path,
        "a,One.,clips/ann.wav,Hello.,en\n"
        "b,Two.,clips/copy.wav,Hello.,en\n"
        "c,Three.,,,\n"
        f"d,Four.,{clips / 'ann.wav'},Good day.,en\n",
    )
    assert not summary.failures
    sent = [(bytes.fromhex(one["prompt_audio"]), one["prompt_text"]) for one in wire.prompts]
    assert sent == [(b"ann", "Hello."), (b"ann", "Good day.")]
    assert {one["unlisted"] for one in wire.prompts} == {"true"}
    voices = {item["custom_id"]: item["voice"] for item in wire.jobs["job_0"]}
    assert voices["a"] == voices["b"] != voices["d"]
    assert voices["c"] is None
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        assert next(row["prompt_audio"] for row in csv.DictReader(file)) == "clips/ann.wav"


def test_a_clip_that_can_not_be_used_fails_its_rows_alone(
    wire: WireDouble, tmp_path: Path, clips: Path
) -> None:
    summary = speak(
        wire,
        tmp_path,
        "a,One.,clips/bad.wav,Hello.,en\nb,Two.,clips/bad.wav,Hello.,en\n"
        "c,Three.,clips/ann.wav,Hello.,en\nd,Four.,clips/none.wav,Hello.,en\n",
    )
    assert [(row.id, fault.code) for row, fault in summary.failures] == [
        ("a", "prompt_silent"),
        ("b", "prompt_silent"),
        ("d", "prompt_audio_invalid"),
    ]
    assert len(wire.prompts) == 2


def test_a_run_that_is_repeated_sends_nothing_until_a_clip_has_changed(
    wire: WireDouble, tmp_path: Path, clips: Path
) -> None:
    rows = "a,One.,clips/ann.wav,Hello.,en\nb,Two.,clips/copy.wav,Hello.,en\n"
    speak(wire, tmp_path, rows)
    speak(wire, tmp_path, rows)
    assert (len(wire.prompts), wire.asked) == (1, {"a": 1, "b": 1})

    (clips / "copy.wav").write_bytes(b"another")
    speak(wire, tmp_path, rows)
    assert (len(wire.prompts), wire.asked) == (2, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("head", "row", "code", "says"),
    [
        ("text,prompt_audio", "Hi.,a.wav", "missing_field", "prompt_text is blank"),
        ("text,prompt_text", "Hi.,Hello.", "missing_field", "prompt_audio is blank"),
        ("text,prompt_audio,prompt_text", "Hi.,a,b", "missing_field", "prompt_language is blank"),
        (
            "text,voice,prompt_audio,prompt_text,language",
            "Hi.,low,a,b,en",
            "invalid_value",
            "a voice or a prompt_audio, not both",
        ),
    ],
)
def test_half_a_prompt_is_a_fault_of_its_row(
    tmp_path: Path, head: str, row: str, code: str, says: str
) -> None:
    (tmp_path / "lines.csv").write_text(f"{head}\n{row}\n")
    (read,) = read_table(tmp_path / "lines.csv").rows
    assert read.fault is not None
    assert (read.fault.code, says in read.fault.message) == (code, True)

"""``scripts/bulk_csv.py`` as a person runs it: from elsewhere, by its exit codes."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from tests.bulk.wire_double import WireDouble, speech
from tests.support import free_port, wait_until
from voicemill.bulk.folder import OutputFolder
from voicemill.bulk.progress import Tally, clock_time, display_on
from voicemill.bulk.table import read_table
from worker.engines.cosy.instructions import SENTENCES

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "bulk_csv.py"
GOOD = "id,text\na,Hello.\nb,There.\n"


def start(
    folder: Path, *arguments: str, stdin: IO[str] | None = None, **environ: str
) -> subprocess.Popen[str]:
    """The script, in a folder that is not the checkout, as if voicemill were installed."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    folder: Path, *arguments: str, stdin: IO[str] | None = None, **environ: str
) -> tuple[int, str, str]:
    process = start(folder, *arguments, stdin=stdin, **environ)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_all_spoken_is_0_and_the_summary_says_where_everything_is(
    wire: WireDouble, tmp_path: Path
) -> None:
    (tmp_path / "lines.csv").write_text(GOOD)

    code, out, err = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    assert code == 0, err
    assert out.splitlines()[0] == "2 of 2 rows spoken."
    assert "x real time." in out
    assert f"results.csv: {tmp_path / 'out' / 'results.csv'}" in out
    assert "2/2 rows" in err
    assert (tmp_path / "out" / "audio" / "a.wav").read_bytes() == speech("Hello.")


def test_some_failed_is_1_and_the_url_may_come_from_the_environment(
    wire: WireDouble, tmp_path: Path
) -> None:
    (tmp_path / "lines.csv").write_text(GOOD + "c,...\n")

    code, out, err = run(tmp_path, "lines.csv", "--out", "out", "--quiet", VOICEMILL_URL=wire.url)

    assert (code, err) == (1, "")
    assert "1 failed: no_speakable_text" in out
    assert "line 4 (record 3): c: " in out


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (b"id,words\n1,a\n", (), "lines.csv: line 1: column 'text' not found"),
        (b'id,text\n1,"a\n', (), "lines.csv: line 2 (record 1): a quote opened"),
        (b"id,text\n7,a\n7,b\n", (), "duplicate id 7, lines 2 and 3"),
        (b"id,text\n7,a\0\n", (), "line 2 (record 1): holds a NUL"),
        (b"id,text\n7,a,b\n", (), "line 2 (record 1): has 3 cells"),
        (GOOD.encode(), ("--delimiter", ";;"), "is not one character"),
        (GOOD.encode(), ("--surprise",), "unrecognized arguments: --surprise"),
    ],
)
def test_bad_input_or_usage_is_2_and_nothing_is_sent_or_made(
    wire: WireDouble, tmp_path: Path, data: bytes, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "lines.csv").write_bytes(data)

    code, out, err = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url, *arguments)

    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert wire.requests == []
    assert not (tmp_path / "out").exists()


def test_no_server_is_3_soon(tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text(GOOD)
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()

    code, _, err = run(tmp_path, "lines.csv", "--out", "out", "--url", url)

    assert code == 3
    assert err.startswith(f"No answer from {url}: ")
    assert time.monotonic() - began < 10


def test_a_folder_in_use_is_75(wire: WireDouble, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text(GOOD)

    with OutputFolder(tmp_path / "out"):
        code, _, err = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    assert code == 75
    assert "Another run is at work" in err
    assert wire.requests == []


def test_a_table_from_another_file_is_2_and_from_stdin_is_taken(
    wire: WireDouble, tmp_path: Path
) -> None:
    (tmp_path / "lines.csv").write_text(GOOD)
    (tmp_path / "other.csv").write_text("id,text\na,Of another story.\n")
    run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    code, out, err = run(tmp_path, "other.csv", "--out", "out", "--url", wire.url)
    with (tmp_path / "lines.csv").open() as stdin:
        piped, told, _ = run(tmp_path, "-", "--out", "out", "--url", wire.url, stdin=stdin)

    assert (code, out) == (2, "")
    assert err.startswith(f"{tmp_path / 'out'} holds 2 spoken rows of {tmp_path / 'lines.csv'}; 2 ")
    assert (piped, told.splitlines()[0]) == (0, "2 of 2 rows spoken, 2 of them by an earlier run.")


def test_a_header_alone_is_0(wire: WireDouble, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("id,text\n")

    code, out, err = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    assert (code, err) == (0, "")
    assert out == "The table has a header and no rows: nothing to speak.\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("closed", ["by its reader", "from the start"])
def test_a_run_goes_on_when_nobody_reads_what_it_says(
    wire: WireDouble, tmp_path: Path, stream: str, closed: str
) -> None:
    (tmp_path / "lines.csv").write_text(GOOD + "c,...\n")
    reader, writer = os.pipe()
    os.close(reader)
    number = {"stdout": 1, "stderr": 2}[stream]
    shell = 'exec "$@"' + (f" {number}>&-" if closed == "from the start" else "")
    command = [sys.executable, str(SCRIPT), "lines.csv", "--out", "out", "--url", wire.url]

    process = subprocess.Popen(
        ["sh", "-c", shell, "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=writer if stream == "stdout" else subprocess.PIPE,
        stderr=writer if stream == "stderr" else subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "Traceback" not in f"{out}{err}"
    assert "Exception" not in f"{out}{err}"
    assert stream == "stdout" or "2 of 3 rows spoken." in out
    assert (tmp_path / "out" / "manifest.jsonl").read_text().startswith('{"schema": 1, "table"')
    assert len(list((tmp_path / "out" / "audio").iterdir())) == 2


def test_a_summary_can_be_told_in_any_encoding(wire: WireDouble, tmp_path: Path) -> None:
    (tmp_path / "lines.csv").write_text("id,text\nca\u00f1on,Hello.\n", encoding="utf-8")

    code, out, _ = run(
        *(tmp_path, "lines.csv", "--out", "out", "--url", wire.url), PYTHONIOENCODING="ascii"
    )

    assert code == 1
    assert "line 2 (record 1): ca\\xf1on: custom_id" in out


def test_an_interrupt_does_not_wait_for_a_download_that_hangs(
    wire: WireDouble, tmp_path: Path
) -> None:
    hanging, release = threading.Event(), threading.Event()

    def hang(job_id: str, custom_id: str) -> bytes:
        hanging.set()
        release.wait(30)
        return b""

    wire.audio = hang  # type: ignore[method-assign]
    (tmp_path / "lines.csv").write_text(GOOD)
    process = start(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)
    try:
        assert hanging.wait(20)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        release.set()

    assert process.returncode == 130
    assert err.splitlines()[-1] == "Interrupted. Run the same command again to go on."
    assert "Traceback" not in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_130_and_the_next_goes_on(
    wire: WireDouble, tmp_path: Path, how: signal.Signals
) -> None:
    wire.item_budget = 3
    lines = "id,text\n" + "".join(f"n{number},Line {number}.\n" for number in range(6))
    (tmp_path / "lines.csv").write_text(lines)
    process = start(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)
    manifest = tmp_path / "out" / "manifest.jsonl"
    wait_until(lambda: manifest.exists() and manifest.read_bytes().count(b"\n") == 5)

    process.send_signal(how)
    _, err = process.communicate(timeout=30)
    with (tmp_path / "out" / "errors.csv").open() as file:
        unspoken = {row["id"]: row["tts_error_code"] for row in csv.DictReader(file)}
    wire.item_budget = 100
    code, out, _ = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    assert process.returncode == 130
    assert "Run the same command again" in err
    assert "Traceback" not in err
    assert unspoken == dict.fromkeys(("n3", "n4", "n5"), "not_spoken")
    assert code == 0
    assert "6 of 6 rows spoken, 3 of them by an earlier run." in out
    assert set(wire.asked.values()) == {1}


def test_a_killed_run_leaves_nothing_that_stops_the_next(wire: WireDouble, tmp_path: Path) -> None:
    wire.item_budget = 3
    lines = "id,text\n" + "".join(f"n{number},Line {number}.\n" for number in range(6))
    (tmp_path / "lines.csv").write_text(lines)
    process = start(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)
    manifest = tmp_path / "out" / "manifest.jsonl"
    wait_until(lambda: manifest.exists() and manifest.read_bytes().count(b"\n") == 5)

    process.kill()
    process.communicate(timeout=30)
    wire.item_budget = 100
    code, _, _ = run(tmp_path, "lines.csv", "--out", "out", "--url", wire.url)

    assert code == 0
    assert set(wire.asked.values()) == {1}
    assert len(list((tmp_path / "out" / "audio").iterdir())) == 6


def test_the_help_names_every_exit_code(tmp_path: Path) -> None:
    code, out, _ = run(tmp_path, "--help")

    assert code == 0
    for number in (0, 1, 2, 3, 75, 130):
        assert f"\n  {number} " in out


def test_a_terminal_gets_a_bar_that_shows_the_whole_state() -> None:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, 200))
    now = iter([100.0, *[110.0] * 100])
    tally = Tally(total_rows=4, total_characters=400, clock=lambda: next(now))
    tally.add(characters=100, audio_seconds=40.0)
    with os.fdopen(slave, "w") as terminal:
        display = display_on(terminal)
        display.show(tally)
        display.note("[a] note")
        display.close()
    shown = b""
    with suppress(OSError):  # which a terminal gives at its end
        while block := os.read(master, 65536):
            shown += block
    os.close(master)

    assert str(tally) == "1/4 rows, 40.0 s of audio, 4.0 x real time, ETA 0:30"
    assert b"1/4 rows" in shown
    assert b"[a] note" in shown


def test_times_are_written_as_clocks_do() -> None:
    assert [clock_time(seconds) for seconds in (7, 750, 3900)] == ["0:07", "12:30", "1:05:00"]


def test_the_examples_have_one_row_that_cannot_be_spoken() -> None:
    table = read_table(ROOT / "examples" / "lines.csv")

    faults = {row.id: row.fault.code for row in table.rows if row.fault}
    assert faults == {"nothing-to-say": "no_speakable_text"}
    assert len(table.rows) >= 20
    assert len({row.request["input"] for row in table.rows if not row.fault}) == len(table.rows) - 1


def test_the_chinese_examples_have_a_dialect_a_feeling_and_a_cloned_voice() -> None:
    table = read_table(ROOT / "examples" / "zh.csv")

    assert [row.fault for row in table.rows if row.fault] == []
    asked = {row.id: row.request for row in table.rows}
    assert {request["voice"] for request in asked.values()} == {"ann"}
    trained = SENTENCES[3]
    assert asked["cantonese"]["instructions"] == trained["dialect"]["cantonese"]
    assert asked["sichuan"]["instructions"] == trained["dialect"]["sichuan"]
    assert asked["happy"]["instructions"] == trained["emotion"]["happy"]
    assert asked["english"]["language"] == "en"

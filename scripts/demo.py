"""Start the whole stack, speak examples/lines.csv into out/, check what came of it, and stop.

Exits 0 when exactly the row that can't be spoken failed, with the right code.
"""

from __future__ import annotations

import csv
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.stack.stopping import stop
from voicemill.bulk.errors import BulkError
from voicemill.bulk.folder import OutputFolder

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".demo"
OUT = ROOT / "out"
SOURCE = ROOT / "examples" / "lines.csv"
LOG = HOME / "demo.log"

EXPECTED_FAILURES = {("nothing-to-say", "no_speakable_text")}
"""Rows of the examples that can't be spoken, and why."""
START_SECONDS = 170.0
LOG_LINES_SHOWN = 20
READY = "ready "


class DemoError(Exception):
    """The demo did not show what it should."""


def main() -> int:
    """Run the demo; gives its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        start_afresh(OUT)
        with running_stack() as url:
            print(f"The stack is up at {url} ({time.monotonic() - began:.0f} s).", flush=True)
            speak(url)
        check_audio(OUT)
        check_failures(OUT)
    except DemoError as error:
        print(f"The demo failed: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    print(f"As expected: all rows spoken but {len(EXPECTED_FAILURES)} with nothing to say.")
    print(f"Done in {time.monotonic() - began:.0f} s; nothing is left running.")
    return 0


def start_afresh(folder: Path) -> None:
    """Remove what a former demo left, so that every row is spoken now."""
    try:
        with OutputFolder(folder) as out:
            out.clear()
    except (BulkError, OSError) as error:
        raise DemoError(f"{folder} can't be used: {error}") from error


@contextmanager
def running_stack() -> Iterator[str]:
    """The URL of a stack that lives as long as the block."""
    HOME.mkdir(exist_ok=True)
    command = [sys.executable, str(ROOT / "scripts" / "up.py")]
    command += ["--home", str(HOME), "--port", "0", "--flower-port", "0"]
    with LOG.open("wb") as log:
        # A session of its own, so that Ctrl-C reaches this process alone, which then stops it.
        stack = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            yield ready_url(stack)
        finally:
            stop(stack)
    if stack.returncode != 0:
        raise DemoError(f"the stack did not stop cleanly (exit {stack.returncode}); see {LOG}")


def ready_url(stack: subprocess.Popen[bytes]) -> str:
    """Wait for the line that says the stack is up."""
    print("Starting the stack: queue, API, workers, clerk, Flower ...", flush=True)
    assert stack.stdout is not None
    give_up = time.monotonic() + START_SECONDS
    output = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stack.stdout, selectors.EVENT_READ)
        while b"\n" not in output:
            if not selector.select(max(0.0, give_up - time.monotonic())):
                raise DemoError(f"the stack was not ready in {START_SECONDS:.0f} s\n{log_tail()}")
            block = os.read(stack.stdout.fileno(), 4096)
            if not block:
                raise DemoError(f"the stack did not start\n{log_tail()}")
            output += block
    line = output.decode().splitlines()[0]
    if not line.startswith(READY):
        raise DemoError(f"the stack said {line!r} instead of its URL")
    return line.removeprefix(READY).strip()


def log_tail() -> str:
    """The last lines of the stack's log."""
    lines = LOG.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join((*lines, f"(the whole log: {LOG})"))


def speak(url: str) -> None:
    """Speak a CSV by the same script a person would use."""
    print(f"Speaking {SOURCE.relative_to(ROOT)} ...", flush=True)
    script = ROOT / "scripts" / "bulk_csv.py"
    command = [sys.executable, str(script), str(SOURCE), "--out", str(OUT), "--url", url]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 1):
        raise DemoError(f"bulk_csv.py ended with exit code {code}; the stack's log is {LOG}")


def check_audio(folder: Path) -> None:
    """Every row of the results must have a file."""
    rows = read_csv(folder / "results.csv")
    if not rows:
        raise DemoError("no row was spoken")
    for row in rows:
        path = Path(row["tts_path"])
        if not path.is_file() or not path.stat().st_size:
            raise DemoError(f"row {row['id']} has no audio at {path}")


def check_failures(folder: Path) -> None:
    """Exactly the rows that can't be spoken must have failed."""
    failures = {(row["id"], row["tts_error_code"]) for row in read_csv(folder / "errors.csv")}
    for id, code in sorted(failures - EXPECTED_FAILURES):
        raise DemoError(f"row {id} failed with {code}; see errors.csv in {OUT}")
    for id, code in sorted(EXPECTED_FAILURES - failures):
        raise DemoError(f"row {id} should have failed with {code}, and did not")


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV by column."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    sys.exit(main())

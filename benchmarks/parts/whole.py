"""The whole stack, as ``scripts/up.py`` starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def whole_stack(home: Path, engine: str, workers: int, *flags: str, **env: str) -> Iterator[str]:
    """Gives the URL of its API once it is ready."""
    process = subprocess.Popen(
        [
            *(sys.executable, str(ROOT / "scripts/up.py"), "--home", str(home)),
            *("--port", "0", "--flower-port", "0", "--engine", engine, "--workers", str(workers)),
            *flags,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, **env},  # noqa: TID251
    )
    assert process.stdout is not None
    try:
        word, _, url = process.stdout.readline().strip().partition(" ")
        if word != "ready":
            raise SystemExit(f"The stack did not come up; see {home / 'logs'}.")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)

"""A file system of 64 KiB, for what happens on a full disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOUNT = 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"'


def run_on_small_disk(folder: Path, script: str, *args: str) -> str:
    """What a Python script prints that runs with ``folder`` on such a disk of its own.

    The script gets the folder and ``args``. Where nothing may be mounted the test is skipped.
    """
    if in_namespace(folder, "true").returncode != 0:
        pytest.skip("no file system may be mounted here")
    ended = in_namespace(folder, sys.executable, "-c", script, str(folder), *args)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def in_namespace(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command that alone sees what is mounted."""
    unshare = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(folder))
    return subprocess.run(
        [*unshare, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )

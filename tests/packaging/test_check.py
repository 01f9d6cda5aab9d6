"""``scripts/check``, with real coverage files and every other gate open."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRON = {"PATH": "/usr/bin:/bin"}
OPEN_GATES = ("ruff", "mypy", "lint-imports", "python")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose code is in order, and one line of which was measured."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/check", tmp_path / "scripts/check")
    bin = tmp_path / ".venv/bin"
    bin.mkdir(parents=True)
    for name in OPEN_GATES:
        (bin / name).symlink_to("/bin/true")
    (bin / "coverage").symlink_to(Path(sys.executable).with_name("coverage"))
    (tmp_path / "one.py").write_text("print()\n")
    measure = [bin / "coverage", "run", "--parallel-mode", "one.py"]
    subprocess.run(measure, cwd=tmp_path, env=ENVIRON, check=True, capture_output=True)
    assert list(tmp_path.glob(".coverage.*"))
    return tmp_path


def check(checkout: Path) -> tuple[int, str]:
    done = subprocess.run(
        [checkout / "scripts/check"],
        env=ENVIRON,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_measurements_of_every_process_are_put_together_and_reported(checkout: Path) -> None:
    code, output = check(checkout)

    assert code == 0, output
    assert "100%" in output
    assert "Combined" not in output
    assert list(checkout.glob(".coverage.*")) == []
    # A second run finds nothing to put together, and that is no failure.
    assert check(checkout)[0] == 0


def test_what_a_killed_process_left_of_its_measurements_spoils_nothing(checkout: Path) -> None:
    assert check(checkout)[0] == 0
    (checkout / ".coverage.host.pid1.XAbCdEfx").write_text("no database")

    code, output = check(checkout)

    assert code == 0, output
    assert "100%" in output


def test_where_no_measurement_can_be_read_the_check_fails(checkout: Path) -> None:
    for path in checkout.glob(".coverage.*"):
        path.write_text("no database")

    code, output = check(checkout)

    assert code == 1
    assert "No data to report" in output
    assert "FAILED: coverage" in output

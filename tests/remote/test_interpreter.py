"""A Python that can't run an engine is refused, with the command that mends it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.pythons import venv_of_ours
from voicemill.errors import SettingsError
from worker.remote.interpreter import OLDEST, refuse_unfit


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def refused(python: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        refuse_unfit(python)
    assert f"VOICEMILL_ENGINE_PYTHON={str(python)!r}" in caught.value.message
    return caught.value.message


def test_our_own_will_do() -> None:
    refuse_unfit(Path(sys.executable))


def test_one_that_is_not_there(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    assert refused(python).endswith(
        f"is not there; make it with: python3.10 -m venv --clear {tmp_path}/venv && "
        f"{python} -m pip install numpy"
    )
    assert "is not there" in refused(tmp_path)


def test_one_that_can_t_be_executed(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "", 0o644)
    assert f"chmod +x {python}" in refused(python)


def test_one_without_numpy(tmp_path: Path) -> None:
    python = venv_of_ours(tmp_path / "venv")
    (seen,) = tmp_path.rglob("seen.pth")
    seen.unlink()
    assert refused(python).endswith(f"has no numpy; install it with: {python} -m pip install numpy")


@pytest.mark.parametrize(
    "text",
    ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/no/such\n", "#!/bin/sh\necho 3\n"],
    ids=["another answer", "failure", "no interpreter", "a number"],
)
def test_what_is_no_python(text: str, tmp_path: Path) -> None:
    assert "does not answer as Python 3 does" in refused(program(tmp_path / "python", text))


def test_one_that_is_too_old(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "#!/bin/sh\necho '[[3, 9], true]'\n")
    assert re.search(r"is Python 3\.9, and 3\.10 is the oldest", refused(python))
    refuse_unfit(program(tmp_path / "python", f"#!/bin/sh\necho '[{list(OLDEST)}, true]'\n"))

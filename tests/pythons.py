"""Other Pythons for engines, in virtual environments of their own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

VERSIONS = ("3.10", "3.12", "3.13")
BESIDE_OURS = f"{Path(sys.base_prefix).parent}/{{0}}.*/bin/python"
KEPT = Path(__file__).parents[1] / ".pytest_cache/d/pythons"
WHERE = (
    "~/.local/share/uv/python/cpython-{0}.*/bin/python3",
    "~/.pyenv/versions/{0}.*/bin/python",
    BESIDE_OURS,
)


def interpreter(version: str) -> Path:
    """A Python of this version; where there is none, the test says how to get one."""
    on_path = shutil.which(f"python{version}")
    found = [Path(on_path)] if on_path and works(Path(on_path)) else []
    for pattern in WHERE:
        path = Path(pattern.format(version)).expanduser()
        found += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        missing = (
            f"there is no Python {version}; get it with: .venv/bin/uv python install {version}"
        )
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found[-1]


def works(python: Path) -> bool:
    """Whether it is one, and no shim of a version manager that has none of this version."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def venv(version: str, *requirements: str) -> Path:
    """The Python of a virtual environment that has these packages; made once, and kept."""
    base = interpreter(version)
    named = hashlib.sha256(f"{base} {requirements}".encode()).hexdigest()[:8]
    folder = KEPT / f"{version}-{named}"
    KEPT.mkdir(parents=True, exist_ok=True)
    python = folder / "bin/python"
    with (KEPT / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*install, *requirements], check=True)
            (folder / "made").touch()
    return python


def venv_of_ours(folder: Path, *more: Path) -> Path:
    """A virtual environment of this very Python that sees its packages, and what is in ``more``."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", folder], check=True, capture_output=True
    )
    names = sysconfig.get_path("purelib", vars={"base": str(folder)})
    seen = [sysconfig.get_path("purelib"), *map(str, more)]
    Path(names, "seen.pth").write_text("\n".join(seen))
    return folder / "bin/python"

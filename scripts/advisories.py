"""Ask the OSV index for known vulnerabilities of a lock.

``python scripts/advisories.py requirements/venv.txt``. Exits 1 if there are any; 0, saying so,
where the index can't be reached or pip-audit is not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import httpx

INDEX = "https://api.osv.dev/v1/query"
CONNECT_SECONDS = 5.0


def obstacle() -> str | None:
    """Why nothing can be asked, or nothing."""
    if importlib.util.find_spec("pip_audit") is None:
        return "pip-audit is not installed; make venv-all does"
    try:
        probe = {"package": {"name": "pip", "ecosystem": "PyPI"}, "version": "26.3"}
        httpx.post(INDEX, json=probe, timeout=CONNECT_SECONDS).raise_for_status()
    except httpx.HTTPError as error:
        return f"the advisory index can't be reached ({error})"
    return None


def main(lock: str) -> int:
    """The exit code of pip-audit, or 0 where it can't do its work."""
    if reason := obstacle():
        print(f"skipped: {reason}")
        return 0
    audit = [sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv"]
    audit += ["--progress-spinner", "off", "--disable-pip", "--requirement", lock]
    return subprocess.run(audit, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Refuse a lock with a package whose licence would bind what we pass on.

``python scripts/licences.py requirements/venv.txt`` reads what the installed packages say of
themselves. Exits 1 for a GPL or AGPL package, for one that names no licence, and for one of
the lock that is not installed.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import Marker

ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==[^ ;\\]+(?: ; (?P<marker>[^\\]+))?", re.MULTILINE)
GPL = re.compile(r"\bA?GPL|GNU (?:Affero )?General Public", re.IGNORECASE)


def locked_names(lock: Path) -> list[str]:
    """Packages of a lock that this machine should have."""
    entries = ENTRY.finditer(lock.read_text("utf-8"))
    return [e["name"] for e in entries if not e["marker"] or Marker(e["marker"]).evaluate()]


def licence_of(package: Distribution) -> str:
    """The licence as the package names it: an SPDX expression, else classifiers, else free text."""

    def named(field: str) -> list[str]:
        return package.metadata.get_all(field) or []

    classifiers = [c.rpartition(" :: ")[2] for c in named("Classifier") if c.startswith("License")]
    free_text = [text.strip().partition("\n")[0] for text in named("License")]
    return " OR ".join(named("License-Expression") or classifiers or free_text)


def is_refused(licence: str) -> bool:
    """True if no alternative the licence offers is free of the GPL."""
    return all(GPL.search(choice) for choice in re.split(r"\s+OR\s+", licence))


def fault(name: str) -> str | None:
    """What is wrong with one package, or nothing."""
    try:
        licence = licence_of(distribution(name))
    except PackageNotFoundError:
        return f"{name}: in the lock and not installed; run make venv"
    if not licence:
        return f"{name}: names no licence"
    return f"{name}: {licence}" if is_refused(licence) else None


def main(locks: list[str]) -> int:
    """0 if every package of the locks can be used."""
    names = sorted({name for lock in locks for name in locked_names(Path(lock))})
    if not names:
        sys.exit("licences.py: name at least one lock that holds packages")
    faults = [found for name in names if (found := fault(name))]
    for found in faults:
        print(found)
    print(f"{len(names)} packages, {len(faults)} refused")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

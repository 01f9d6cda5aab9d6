"""Say whether this machine can run a stack with these settings, and what to run where it can't.

Looks, and changes nothing: settings, Python, the engine's files and packages, GPU and free device
memory, the container toolkit (where there is Docker), ports, disk, Redis. Each line that failed
ends in the command that mends it. Reads the environment as scripts/up.py does.

exit codes:
  0  nothing failed      1  something did: the stack would not start, or not last
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.diagnosis import checks, probes
from scripts.diagnosis.checks import Finding, Level
from scripts.stack.home import Home
from scripts.stack.parts import FLOWER_ADDRESS, worker_settings
from voicemill.errors import SettingsError
from voicemill.health import free_bytes_at
from voicemill.settings import Settings

COLOURS = {Level.OK: 32, Level.WARNING: 33, Level.FAILED: 31}
WIDTH = max(map(len, Level))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was found; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/doctor.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one object in place of lines")
    as_json = parser.parse_args(arguments).json
    findings = []
    for finding in diagnose(dict(os.environ)):  # noqa: TID251  read as up.py reads it
        findings.append(finding)
        if not as_json:
            print(line(finding, coloured=sys.stdout.isatty()), flush=True)
    ok = all(one.level != Level.FAILED for one in findings)
    if as_json:
        print(json.dumps({"ok": ok, "checks": [one.to_wire() for one in findings]}))
    return 0 if ok else 1


def diagnose(environ: Mapping[str, str]) -> Iterator[Finding]:
    """All that can be said, in the order in which it is found."""
    settings, refused = probes.read_settings(environ)
    yield from checks.check_settings(refused)
    yield checks.check_python(sys.version_info[:3])
    yield from of_worker(settings, environ)
    yield from checks.check_toolkit(probes.ask_docker())
    yield from of_ports(settings)
    yield checks.check_room(free_bytes_at(settings.output_dir), settings)
    yield from checks.check_redis(of_redis(settings, environ), is_checked=settings.redis_check)


def of_redis(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str] | str | None:
    """What ``check_redis`` takes."""
    named = environ.get(probes.REDIS_URL, "").strip()
    if named and not Home(settings.home).starts_redis_at(named):
        return probes.redis_faults(settings.redis_url)
    return None if probes.has_own_redis() else checks.NO_SERVER


def of_worker(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What only the worker's own code can tell."""
    try:
        engines = worker_settings(settings)
        told = [probes.ask_worker(one, environ) for one in engines]
    except SettingsError as error:
        yield from checks.check_settings([error.message])
        return
    except probes.ProbeError as error:
        yield Finding("worker", Level.FAILED, f"It can't be asked: {error}.", "make venv")
        return
    for one, of_engine in zip(engines, told, strict=True):
        yield from checks.check_engine(one.engine, of_engine["missing"])
    largest = max(engines, key=checks.needed_mib)
    yield from checks.check_devices(told[0]["devices"], told[0]["reason"], largest)


def of_ports(settings: Settings) -> Iterator[Finding]:
    """Where API and Flower are to listen."""
    runs = probes.stack_runs(Home(settings.home))
    for part, host, port, flag in (
        ("the API", settings.host, settings.port, "--port"),
        ("Flower", FLOWER_ADDRESS, settings.flower_port, "--flower-port"),
    ):
        trouble = probes.port_trouble(host, port, flag)
        yield checks.check_port(part, port, trouble, is_ours=runs)


def line(finding: Finding, *, coloured: bool) -> str:
    """A finding for a person: how it stands by colour on a terminal, and by word anywhere."""
    word = f"{finding.level:<{WIDTH}}"
    if coloured:
        word = f"\033[{COLOURS[finding.level]}m{word}\033[0m"
    return f"{word}  {finding.text}"


if __name__ == "__main__":
    sys.exit(main())

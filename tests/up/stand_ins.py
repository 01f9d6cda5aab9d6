"""A supervisor over small parts, as a process of its own: ``stand_ins.py HOME PARTS_JSON``.

Prints ``ready`` once every part wrote to its log.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from scripts.stack.errors import StopRequested
from scripts.stack.home import Home
from scripts.stack.parts import Part
from scripts.stack.signals import Signals
from scripts.stack.supervisor import Supervisor

MARKER = "STAND_IN_OF"


def program(name: str, source: str, home: Path, **options: float) -> Part:
    """A part that runs a few lines of Python."""
    env = {**os.environ, MARKER: str(home)}
    return Part(name=name, argv=(sys.executable, "-c", source), env=env, **options)  # type: ignore[arg-type]


def main() -> None:
    """Run until stopped."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    home = Home(Path(sys.argv[1]))
    parts = [
        program(name, source, home.path, stop_seconds=1)
        for name, source in json.loads(sys.argv[2]).items()
    ]
    with home.locked() as lock, Signals() as signals:
        home.prepare()
        with Supervisor(home, signals, lock) as supervisor:
            try:
                for part in parts:
                    supervisor.start(part)
                supervisor.wait_for(
                    lambda: all(home.log(part.name).stat().st_size for part in parts), 30
                )
                supervisor.ready = True
                sys.stdout.write("ready\n")
                sys.stdout.flush()
                supervisor.watch()
            except StopRequested:
                pass


if __name__ == "__main__":
    main()

"""Exits 0 when a child on this host takes work: the container's health check.

It asks what the children say, not Celery's parent, which answers while nothing is loaded.
``python -m worker.ready``, or ``python -m worker.ready NODE`` for one worker of several.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence

from voicemill.errors import VoicemillError
from voicemill.settings import Settings
from voicemill.store import Store


def main(arguments: Sequence[str] | None = None) -> int:
    """0 ready, 1 not, 2 for a name that no worker has."""
    parser = argparse.ArgumentParser(
        prog="python -m worker.ready", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "node", nargs="?", help="Celery's name of the worker; without it any on this host counts"
    )
    node: str | None = parser.parse_args(arguments).node
    try:
        children = Store.connect(Settings.from_env().redis_url).snapshot().children
    except VoicemillError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    nodes = sorted({child["node"] for child in children})
    if node is not None and node not in nodes:
        parser.error(f"no child of {node!r} was heard of; there are: {', '.join(nodes) or 'none'}")
    host = socket.gethostname()
    here = [node] if node is not None else [one for one in nodes if one.endswith(f"@{host}")]
    ready = sum(child["takes_work"] for child in children if child["node"] in here)
    sys.stderr.write(f"{ready} children of {node or host} take work.\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())

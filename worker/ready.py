"""Exits 0 when a child on this host takes work: the container's health check.

It asks the children, not Celery's parent, which answers while nothing is loaded.
``python -m worker.ready``
"""

from __future__ import annotations

import socket
import sys

from voicemill.errors import VoicemillError
from voicemill.settings import Settings
from voicemill.store import Store


def main() -> int:
    """0 ready, 1 not."""
    settings = Settings.from_env()
    try:
        snapshot = Store.connect(settings.redis_url).snapshot()
    except VoicemillError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    host = socket.gethostname()
    here = [child for child in snapshot.children if child["node"].endswith(f"@{host}")]
    sys.stderr.write(f"{len(here)} children on {host}.\n")
    return 0 if here else 1


if __name__ == "__main__":
    sys.exit(main())

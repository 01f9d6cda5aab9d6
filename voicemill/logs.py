"""One log format for our own processes; Celery formats those of its workers."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


def configure_logging(level: str) -> None:
    """Write to standard error."""
    logging.basicConfig(level=level, format=FORMAT)

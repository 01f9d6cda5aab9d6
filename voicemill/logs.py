"""One log format for every process."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"


def configure_logging(level: str) -> None:
    """Write to standard error."""
    logging.basicConfig(level=level, format=FORMAT)

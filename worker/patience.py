"""Wait for a store that is away, for as long as waiting can help."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from voicemill.errors import StoreRefusedError, StoreUnavailableError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

PAUSE_SECONDS = 0.2


def patiently(seconds: float, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call to the store; while it is away, again, for ``seconds`` in all.

    Every transition is a compare-and-set, so a call whose answer was lost may be
    repeated. Raises what the last call raised.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call(*args, **kwargs)
        except (StoreUnavailableError, StoreRefusedError) as error:
            if time.monotonic() > deadline:
                raise
            logger.warning("the store is away, trying again: %s", error)
            time.sleep(PAUSE_SECONDS)

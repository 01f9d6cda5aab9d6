"""How many threads of arithmetic a child has."""

from __future__ import annotations

from voicemill.cores import threads_for, usable_cores
from voicemill.settings import Settings
from worker.environment import THREADS, unsaid

NAMES = (THREADS, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""What libraries of arithmetic read once, when they are loaded."""


def threads_environment(settings: Settings, *, most: int) -> dict[str, str]:
    """How many threads a child's libraries of arithmetic may have, where nothing was said of one.

    Children of the stack's other engines use the cores too. A child has ``most`` cores.
    """
    children = sum(settings.pools.values())
    threads = settings.threads_per_child or min(threads_for(usable_cores(), children), most)
    return dict.fromkeys(unsaid(NAMES), str(threads))

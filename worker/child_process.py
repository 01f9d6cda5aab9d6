"""The loop of a child: it looks at itself between batches, and tells its parent what it wishes.

Stands on private names of Celery and billiard, as ``pool`` does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import billiard.pool
from celery.concurrency import asynpool

from worker import process

POLL_SECONDS = 1.0
WARM, ASK, GO, PAUSE, RESUME, LANES = (
    f"voicemill-{word}" for word in ("warm", "ask", "go", "pause", "resume", "lanes")
)
"""What a child says to its parent, beside Celery's own words."""
LEAVE = "voicemill-leave"
"""What the parent says to a child, behind the job that may be in its pipe."""


class ChildProcess(asynpool.Worker):
    """Looks at itself before each job it reads from its pipe, and each second; never inside one."""

    def __call__(self) -> None:
        process.die_with_parent()
        super().__call__()

    def on_loop_start(self, pid: int) -> None:
        """The child is ready; tell how long its engine took, then Celery's own word."""
        theirs: Any = self
        child = process.current_child()
        theirs.outq.put((WARM, (pid, child.warmup_seconds, child.others)))
        super().on_loop_start(pid)

    def _make_child_methods(self, *args: Any, **kwargs: Any) -> None:
        super()._make_child_methods(*args, **kwargs)
        theirs: Any = self
        limits = {"max_tasks": theirs.maxtasks, "max_memory_kib": theirs.max_memory_per_child}
        theirs.maxtasks = theirs.max_memory_per_child = None
        receive = theirs.wait_for_job

        def wait_for_job(*args: Any, **kwargs: Any) -> Any:
            child = process.current_child()
            wishes = child.look(**limits)
            if wishes.leave_now is not None:
                theirs.outq.put((GO, (os.getpid(), wishes.leave_now)))
                child.leave()
                sys.exit(billiard.pool.EX_RECYCLE)
            if wishes.ask is not None:
                theirs.outq.put((ASK, (os.getpid(), wishes.ask)))
            if wishes.lanes is not None:
                theirs.outq.put((LANES, (os.getpid(), wishes.lanes)))
            if wishes.drain is not None:
                theirs.outq.put((PAUSE if wishes.drain else RESUME, (os.getpid(),)))
            # Celery's own reading of the pipe waits for ever, and an idle child would never look.
            if not theirs.inq._reader.poll(POLL_SECONDS):
                return None
            request = receive(*args, **kwargs)
            if request and request[0] == LEAVE:
                child.leave(**request[1])
                sys.exit(billiard.pool.EX_RECYCLE)
            return request

        theirs.wait_for_job = wait_for_job

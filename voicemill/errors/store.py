"""Redis is away, or refuses."""

from __future__ import annotations

from voicemill.errors.base import VoicemillError


class StoreUnavailableError(VoicemillError):
    """Redis can't be reached, or does not answer in time."""

    code = "store_unavailable"
    title = "The queue can't be reached"
    http_status = 503
    retryable = True


class StoreRefusedError(VoicemillError):
    """Redis answers, and refuses to write (out of memory, read-only)."""

    code = "store_refused"
    title = "The queue takes no writes"
    http_status = 503
    retryable = True


class QueueFullError(VoicemillError):
    """All that waits, of all tenants, takes as much memory as it may."""

    code = "queue_full"
    title = "The queue is full"
    http_status = 503
    retryable = True

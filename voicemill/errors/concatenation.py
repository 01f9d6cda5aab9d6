"""The audio of a job's items could not become one file."""

from __future__ import annotations

from voicemill.errors.base import VoicemillError


class ConcatenationError(VoicemillError):
    """The audio of a job's items could not become one file."""

    code = "concatenation_failed"
    title = "The items could not be joined"
    retryable = True


class ConcatenationCancelledError(ConcatenationError):
    """The job was cancelled once its items had ended, before they were joined."""

    code = "concatenation_cancelled"
    title = "The job was cancelled before its items were joined"
    retryable = False


class MixedSampleRatesError(ConcatenationError):
    """The items' audio has different sample rates, as of two revisions of a model."""

    code = "mixed_sample_rates"
    title = "The items have different sample rates"
    retryable = False

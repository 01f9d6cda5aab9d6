"""The audio of a job's items could not become one file."""

from __future__ import annotations

from voicemill.errors.base import VoicemillError


class ConcatenationError(VoicemillError):
    """The audio of a job's items could not become one file."""

    code = "concatenation_failed"
    title = "The items could not be joined"
    retryable = True


class MixedSampleRatesError(ConcatenationError):
    """The items' audio has different sample rates, as of two revisions of a model."""

    code = "mixed_sample_rates"
    title = "The items have different sample rates"
    retryable = False

"""The root of all failures, and what every one of them says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class VoicemillError(Exception):
    """Root of the tree; ``message`` is one sentence for a person."""

    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something failed on our side"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SettingsError(VoicemillError):
    """A setting has a value that can't be used."""

    code = "settings_invalid"
    title = "A setting can't be used"


def leaves(root: type[VoicemillError] = VoicemillError) -> Iterator[type[VoicemillError]]:
    """Every class of the tree, the root first; each has a code of its own."""
    yield root
    for child in root.__subclasses__():
        yield from leaves(child)

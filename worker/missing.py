"""What an engine needs and this machine does not have, with the command that brings it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from voicemill.errors import VoicemillError

LAST_SENTENCE = re.compile(r"(?:; |\. )[^;.]*$")


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that is not there, or not as it must be."""

    what: str
    """The thing itself, such as its path; or what is wrong, in a sentence without its stop."""
    remedy: str
    """What to do, in words."""
    command: str
    """The same as a shell takes it; empty where no command helps."""

    @classmethod
    def told_by(cls, error: VoicemillError) -> Missing:
        """What an error says whose last words may be ``… with: COMMAND``."""
        said, mark, command = error.message.rpartition("with: ")
        if not mark:
            return cls(error.message.rstrip("."), "", "")
        return cls(LAST_SENTENCE.sub("", said), "", command)


@runtime_checkable
class KnowsItsNeeds(Protocol):
    """An engine that can tell what it lacks before it is loaded."""

    def missing(self, options: Mapping[str, Any], python: Path | None) -> Sequence[Missing]:
        """All that a start with these options would fail for; ``python`` is an engine's own."""
        ...

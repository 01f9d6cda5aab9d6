"""Named options that an engine takes with each item, and what they may be set to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from voicemill.errors import InputError, UnsupportedFeatureError
from voicemill.jobs import OptionValue

OPTION_NAME = "[a-z][a-z0-9_]{0,63}"
"""A pattern; such a name needs no escape in a JSON pointer."""

Kind = Literal["choice", "number", "text", "switch"]


@dataclass(frozen=True, slots=True)
class Option:
    """One that an engine declares. Left out, it has the engine's own value."""

    name: str
    kind: Kind
    description: str = ""
    choices: tuple[str, ...] = ()
    """Of a choice."""
    minimum: float | None = None
    maximum: float | None = None
    """Of a number; of a text, its most characters."""

    def takes(self, value: OptionValue) -> bool:
        """Whether it may be set to this."""
        match self.kind:
            case "choice":
                return value in self.choices
            case "switch":
                return isinstance(value, bool)
            case "number":
                return is_number(value) and self._holds(float(value))
            case "text":
                return isinstance(value, str) and bool(value.strip()) and self._holds(len(value))

    @property
    def allowed(self) -> str:
        """What it takes, as the end of a sentence."""
        match self.kind:
            case "choice":
                return f"one of {', '.join(self.choices)}"
            case "switch":
                return "true or false"
            case "number":
                ends = [f"{end:g}" for end in (self.minimum, self.maximum) if end is not None]
                if len(ends) == 2:
                    return f"a number from {ends[0]} to {ends[1]}"
                if not ends:
                    return "a number"
                return f"a number of {ends[0]} or {'more' if self.maximum is None else 'less'}"
            case "text":
                most = "" if self.maximum is None else f" of up to {self.maximum:g} characters"
                return f"a text{most}"

    def _holds(self, size: float) -> bool:
        return (self.minimum is None or self.minimum <= size) and (
            self.maximum is None or size <= self.maximum
        )


def is_number(value: OptionValue) -> bool:
    """True for numbers, and not for true and false."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def refusals_of(
    engine: str, known: Sequence[Option], given: Mapping[str, OptionValue]
) -> Iterator[tuple[str, InputError]]:
    """What of the given options an engine can't honour: pairs of a name and the error."""
    by_name = {option.name: option for option in known}
    for name, value in given.items():
        option = by_name.get(name)
        if option is None:
            names = ", ".join(sorted(by_name)) or "none"
            yield (
                name,
                UnsupportedFeatureError(f"{engine} has no option {name[:80]!r}; it has: {names}."),
            )
        elif not option.takes(value):
            yield name, InputError(f"{name} can't be {value!r:.80}: give {option.allowed}.")

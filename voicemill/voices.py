"""What an engine can do, and whether it can do what an item asks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from voicemill.errors import InputError, UnsupportedFeatureError, VoiceNotFoundError
from voicemill.jobs import RESPONSE_FORMATS, ItemInput


@dataclass(frozen=True, slots=True)
class Voice:
    """How an engine can sound."""

    name: str
    languages: tuple[str, ...]
    """BCP 47 tags, the voice's own first."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine declares once it is loaded; children publish it to the store."""

    engine: str
    model_revision: str
    sample_rate: int
    """Hz."""
    voices: tuple[Voice, ...]
    """The first one is the default."""
    min_speed: float = 1.0
    max_speed: float = 1.0
    """Both 1.0: the engine has one speed."""
    seed: bool = False
    instructions: bool = False
    max_batch: int = 1
    """Segments that one call to ``synthesize`` gains from."""
    best_segment_characters: int = 400
    max_segment_characters: int = 1000
    deterministic: bool = False
    """Same text, voice, options and seed give the same samples."""

    def voice(self, name: str) -> Voice:
        """The voice of this name; raises ``VoiceNotFoundError``."""
        for voice in self.voices:
            if voice.name == name:
                return voice
        names = ", ".join(voice.name for voice in self.voices[:20])
        raise VoiceNotFoundError(f"{self.engine} has no voice {name[:80]!r}; it has: {names}.")

    def refusals(self, item: ItemInput) -> Iterator[tuple[str, InputError]]:
        """What this engine can't honour: pairs of the field's name and the error."""
        try:
            voice = self.voice(item.voice)
        except VoiceNotFoundError as error:
            yield "voice", error
        else:
            if item.language is not None and not speaks(voice, item.language):
                yield (
                    "language",
                    UnsupportedFeatureError(
                        f"The voice {voice.name} speaks {', '.join(voice.languages)}, "
                        f"not {item.language}."
                    ),
                )
        if not self.min_speed <= item.speed <= self.max_speed:
            allowed = (
                f"{self.min_speed:g} only"
                if self.min_speed == self.max_speed
                else f"{self.min_speed:g} to {self.max_speed:g}"
            )
            yield "speed", UnsupportedFeatureError(f"{self.engine} takes a speed of {allowed}.")
        if item.seed is not None and not self.seed:
            yield "seed", UnsupportedFeatureError(f"{self.engine} takes no seed.")
        if item.instructions is not None and not self.instructions:
            yield "instructions", UnsupportedFeatureError(f"{self.engine} takes no instructions.")
        if item.response_format not in RESPONSE_FORMATS:
            yield (
                "response_format",
                UnsupportedFeatureError(f"Give one of {', '.join(RESPONSE_FORMATS)}."),
            )

    def to_record(self) -> dict[str, Any]:
        """The JSON object that the store keeps."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Capabilities:
        """The capabilities a record holds."""
        voices = tuple(
            Voice(voice["name"], tuple(voice["languages"]), voice["description"])
            for voice in record["voices"]
        )
        return cls(**{**record, "voices": voices})


def speaks(voice: Voice, language: str) -> bool:
    """True when a voice covers a language: equal tags, or the tag without its region."""
    wanted = language.lower()
    return any(
        tag.lower() == wanted or tag.lower().split("-")[0] == wanted for tag in voice.languages
    )

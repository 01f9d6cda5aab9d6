"""What an engine can do, and whether it can do what an item asks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from voicemill.errors import InputError, UnsupportedFeatureError, VoiceNotFoundError
from voicemill.formats import RESPONSE_FORMATS
from voicemill.options import Option, refusals_of

if TYPE_CHECKING:
    from voicemill.jobs import ItemInput

KindT = TypeVar("KindT", "Voice", "Capabilities", Option)

HOW_TO_ENROL = (
    "Enrol one: scripts/enrol_voice.py enrol NAME CLIP.wav --text 'What is said in it.' "
    "--language en --consent 'Who agreed, and when.'"
)
PLUS, SHARE = "+", ":"
LARGEST_SHARE = 1000.0


@dataclass(frozen=True, slots=True)
class Voice:
    """How an engine can sound."""

    name: str
    languages: tuple[str, ...]
    """BCP 47 tags, the voice's own first."""
    description: str = ""
    licence: str | None = None
    """Of its weights or its prompt: an SPDX expression or a sentence; nothing where not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine declares once it is loaded; children publish it to the store.

    What it does not declare is refused when an item asks for it. Fields come and go with
    releases: each new one has a default, for the records of children that don't know it.
    """

    engine: str
    model_revision: str
    sample_rate: int
    """Hz."""
    voices: tuple[Voice, ...]
    """The first one is the default."""
    voice_mixes: bool = False
    """It speaks as several of them at once: ``low:0.6+high:0.4``."""
    min_speed: float = 1.0
    max_speed: float = 1.0
    """Both 1.0: the engine has one speed."""
    seed: bool = False
    instructions: bool = False
    """It takes a text about delivery and feeling."""
    cloning: bool = False
    """It speaks as a prompt does: in enrolled voices."""
    cloning_languages: tuple[str, ...] = ()
    """What it speaks in those; what its own voices speak where it is not told."""
    streaming: bool = False
    """It gives samples before all of a segment is spoken."""
    word_times: bool = False
    """It tells when each word is spoken."""
    options: tuple[Option, ...] = ()
    """Named ones that an item may set; dialects, where it has them, are choices of one."""
    max_batch: int = 1
    """Segments that one call to ``synthesize`` may have."""
    best_batch: int | None = None
    """Segments that one call gains from; ``max_batch`` where it is not told."""
    best_segment_characters: int = 400
    max_segment_characters: int = 1000
    memory_bytes: int | None = None
    """Memory that it takes of its device (of the host, on the CPU); nothing where not known."""
    deterministic: bool = False
    """Same text, voice, options and seed give the same samples."""
    engine_licence: str | None = None
    model_licence: str | None = None
    """SPDX expressions or sentences; nothing where not known."""

    @property
    def languages(self) -> tuple[str, ...]:
        """BCP 47 tags of what it speaks, each once."""
        own = (tag for voice in self.voices for tag in voice.languages)
        return tuple(dict.fromkeys((*own, *self.cloning_languages)))

    @property
    def batch_size(self) -> int:
        """Segments that a call should have."""
        return max(1, self.max_batch if self.best_batch is None else self.best_batch)

    def voice(self, name: str) -> Voice:
        """The voice of this name, a mix among them; raises ``VoiceNotFoundError``.

        A mix speaks the languages of its first part.
        """
        if self.voice_mixes and is_mix(name):
            parts = [self.voice(part) for part in mixed(name)]
            return replace(parts[0], name=name)
        for voice in self.voices:
            if voice.name == name:
                return voice
        names = ", ".join(voice.name for voice in self.voices[:20])
        has = f"it has: {names}" if names else "it has none of its own"
        how = f" {HOW_TO_ENROL}" if self.cloning and not names else ""
        raise VoiceNotFoundError(f"{self.engine} has no voice {name[:80]!r}; {has}.{how}")

    def has_voice(self, name: str) -> bool:
        """True for a voice of its own."""
        return any(voice.name == name for voice in self.voices)

    def refusals(self, item: ItemInput) -> Iterator[tuple[str, InputError]]:
        """What this engine can't honour: pairs of the field's name and the error.

        A field within another is named as in a JSON pointer: ``options/emotion``.
        """
        yield from self._voice_refusals(item)
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
        for name, refusal in refusals_of(self.engine, self.options, item.options):
            yield f"options/{name}", refusal
        if item.response_format not in RESPONSE_FORMATS:
            yield (
                "response_format",
                UnsupportedFeatureError(f"Give one of {', '.join(RESPONSE_FORMATS)}."),
            )

    def _voice_refusals(self, item: ItemInput) -> Iterator[tuple[str, InputError]]:
        if item.voice_revision is not None and not self.cloning:
            names = ", ".join(voice.name for voice in self.voices[:20])
            yield (
                "voice",
                UnsupportedFeatureError(
                    f"{self.engine} can't speak in enrolled voices such as {item.voice[:80]!r}; "
                    f"it has: {names}."
                ),
            )
            return
        try:
            voice = self.voice_of(item)
        except VoiceNotFoundError as error:
            yield "voice", error
            return
        if item.language is not None and not speaks(voice, item.language):
            yield (
                "language",
                UnsupportedFeatureError(
                    f"The voice {voice.name} speaks {', '.join(voice.languages)}, "
                    f"not {item.language}."
                ),
            )

    def voice_of(self, item: ItemInput) -> Voice:
        """The voice of an item, its own or an enrolled one; raises ``VoiceNotFoundError``."""
        if item.voice_revision is None:
            return self.voice(item.voice)
        return Voice(item.voice, self.cloning_languages or self.languages)

    def tag_for(self, language: str) -> str:
        """A language as this engine's enrolled voices have it: with its region, or without."""
        enrolled = Voice("", self.cloning_languages or self.languages)
        general = language.partition("-")[0]
        is_general = not speaks(enrolled, language) and speaks(enrolled, general)
        return general if is_general else language

    def to_record(self) -> dict[str, Any]:
        """The JSON object that the store keeps."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Capabilities:
        """The capabilities that a record of this release or another one holds."""
        voices = tuple(read(Voice, one) for one in record["voices"])
        options = tuple(read(Option, one) for one in record.get("options", ()))
        return read(cls, {**record, "voices": voices, "options": options})


def read(kind: type[KindT], record: Mapping[str, Any]) -> KindT:
    """An instance from a JSON object; what this release does not know is left out."""
    known = {one.name for one in fields(kind)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.items()
        if name in known
    }
    return kind(**values)


def is_mix(name: str) -> bool:
    """True for a name that is made of others, with their shares."""
    return SHARE in name or PLUS in name


def mixed(name: str) -> dict[str, float]:
    """The share of each voice in a mix, 1 in all; of a plain name, that voice alone.

    Raises ``VoiceNotFoundError`` for what is no mix: a share is a number over 0, 1 where none is
    given, and each voice is named once.
    """
    shares: dict[str, float] = {}
    for part in name.split(PLUS):
        voice, _, told = part.strip().partition(SHARE)
        try:
            share = float(told or 1)
        except ValueError:
            share = 0.0
        if not voice or voice in shares or not 0 < share <= LARGEST_SHARE:
            raise VoiceNotFoundError(
                f"The mix {name[:80]!r} can't be read: give voices and shares, as a:0.6+b:0.4."
            )
        shares[voice] = share
    whole = sum(shares.values())
    return {voice: share / whole for voice, share in shares.items()}


def speaks(voice: Voice, language: str) -> bool:
    """True when a voice covers a language: equal tags, or the tag without its region."""
    wanted = language.lower()
    return any(
        tag.lower() == wanted or tag.lower().split("-")[0] == wanted for tag in voice.languages
    )

"""Voices of a folder: a clip each, and what is said in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile  # type: ignore[import-untyped]

from voicemill.errors import PromptAudioInvalidError, SettingsError
from voicemill.voices import Voice
from worker.engines.base import Prompt

LANGUAGES = {
    3: ("zh", "en", "ja", "ko", "de", "es", "fr", "it", "ru"),
    2: ("zh", "en", "ja", "ko"),
}
"""BCP 47 tags by version of the model."""
OWN_LANGUAGES = ("yue",)
"""Spoken by a clip, and no language that another voice can be asked for."""
SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
LOWEST_RATE_HZ = 16_000


@dataclass(frozen=True, slots=True)
class FolderVoice:
    """A voice that lies in the folder."""

    name: str
    prompt: Prompt
    """Where its text is empty, the voice has the timbre of the clip only."""
    sha256: str
    """Of the clip."""
    description: str = ""
    licence: str | None = None

    def voice(self, version: int) -> Voice:
        """What is declared of it: its own language, and all the others, spoken with its timbre."""
        languages = tuple(dict.fromkeys((self.prompt.language, *LANGUAGES[version])))
        return Voice(self.name, languages, self.description, self.licence)

    def check(self) -> None:
        """Raise ``PromptAudioInvalidError`` unless the model can take the clip."""
        audio = self.prompt.audio
        try:
            clip = soundfile.info(str(audio))
        except (OSError, soundfile.SoundFileError) as error:
            raise PromptAudioInvalidError(f"{audio} can't be decoded: {error}") from error
        seconds = clip.frames / clip.samplerate
        if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
            raise PromptAudioInvalidError(
                f"{audio} lasts {seconds:.1f} s; give {SHORTEST_SECONDS:g} to "
                f"{LONGEST_SECONDS:g} s, best 5 to 10."
            )
        if clip.samplerate < LOWEST_RATE_HZ:
            raise PromptAudioInvalidError(
                f"{audio} has a rate of {clip.samplerate} Hz; give {LOWEST_RATE_HZ} or more."
            )

    def refuse_changed(self) -> None:
        """Raise ``PromptAudioInvalidError`` unless the clip is the one that was declared."""
        audio = self.prompt.audio
        if not audio.is_file() or sha256_of(audio) != self.sha256:
            raise PromptAudioInvalidError(
                f"{audio} is not as it was when the worker started; recycle the workers."
            )


def read_folder(folder: Path | None, language: str, version: int) -> tuple[FolderVoice, ...]:
    """The voices of a folder by name; raises ``SettingsError`` with all that is wrong with them."""
    if folder is None:
        return ()
    found: list[FolderVoice] = []
    wrong: list[str] = []
    for audio in sorted(folder.glob("*.wav")):
        try:
            voice = read(audio, language, version)
            voice.check()
            found.append(voice)
        except (ValueError, PromptAudioInvalidError) as error:
            wrong.append(str(error))
    wrong += strays(folder)
    if wrong:
        raise SettingsError(
            f"VOICEMILL_ENGINE_OPTIONS: voices_dir={str(folder)!r} can't be used: "
            f"{'; '.join(wrong)}."
        )
    return tuple(found)


def read(audio: Path, language: str, version: int) -> FolderVoice:
    """The voice of one clip, by ``NAME.json`` or ``NAME.txt``; raises ``ValueError``."""
    about: dict[str, Any] = {}
    if (described := audio.with_suffix(".json")).is_file():
        try:
            about = json.loads(described.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{described} is no JSON: {error}") from error
        if not isinstance(about, dict) or not all(isinstance(one, str) for one in about.values()):
            raise ValueError(f"{described} must be an object of texts")
        unknown = sorted(set(about) - {"text", "language", "description", "licence"})
        if unknown:
            raise ValueError(f"{described} has {unknown[0]!r}, which means nothing")
    elif (transcript := audio.with_suffix(".txt")).is_file():
        about = {"text": transcript.read_text("utf-8")}
    spoken: str = about.get("language", language)
    if spoken.split("-")[0].lower() not in (*LANGUAGES[version], *OWN_LANGUAGES):
        names = ", ".join((*LANGUAGES[version], *OWN_LANGUAGES))
        raise ValueError(f"{audio} is of the language {spoken!r}, which is none of {names}")
    return FolderVoice(
        name=audio.stem,
        prompt=Prompt(audio, " ".join(about.get("text", "").split()), spoken),
        sha256=sha256_of(audio),
        description=about.get("description", ""),
        licence=about.get("licence"),
    )


def strays(folder: Path) -> Iterator[str]:
    """Transcripts that have no clip."""
    for path in sorted([*folder.glob("*.txt"), *folder.glob("*.json")]):
        if not path.with_suffix(".wav").is_file():
            yield f"{path} has no clip beside it; add {path.stem}.wav"


def digest(voices: Sequence[FolderVoice]) -> str:
    """A short name that changes when any of these voices would sound different."""
    named = [(one.name, one.sha256, one.prompt.text or None, one.prompt.language) for one in voices]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:8]


def sha256_of(path: Path) -> str:
    """Of a file's bytes, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Voices that clients enrol, each cloned from a prompt: a clip and its transcript. Pure.

The clip and what is said in it never change: who wants to change them deletes the voice and enrols
another. So a voice is known by its revision, which is pinned when a job is submitted.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from voicemill.errors import InvalidVoiceNameError
from voicemill.jobs import ItemError

FOLDER: Final = ".voices"
"""In the output folder, so that who shares outputs shares voices. No job can have this name."""
VOICE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNLISTED_NAME: Final = re.compile(r"voice_[0-9a-f]{32}")
LEAST_SECONDS, MOST_SECONDS = 1.0, 30.0
"""Of a clip."""
BEST_SECONDS: Final = (5.0, 10.0)


class VoiceStatus(StrEnum):
    """Where an enrolled voice stands."""

    VALIDATING = "validating"
    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """The audio of a prompt as it is kept: a mono WAV of 16 bits."""

    sha256: str
    duration_seconds: float
    sample_rate: int
    """Hz."""
    size_bytes: int
    transcript_error_rate: float | None = None
    """Share of the transcript that a recogniser heard otherwise, where one could tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledVoice:
    """A voice that a client enrolled."""

    tenant: str
    name: str
    token: str
    """Of this enrolment: another one of the same name has another token, and files of its own."""
    language: str
    """BCP 47 tag of what is said in the clip."""
    prompt_text: str = field(repr=False)
    """The transcript of the clip."""
    consent: str = ""
    """On what ground the voice may be cloned, in the client's own words."""
    description: str = ""
    created_at: float = 0.0
    """Seconds since the epoch by the store's clock."""
    status: VoiceStatus = VoiceStatus.VALIDATING
    clip: Clip | None = None
    """Once it is ready."""
    error: ItemError | None = None
    """Why it was refused."""

    @property
    def is_unlisted(self) -> bool:
        """True for one that is kept for the jobs that use it, and in no list."""
        return UNLISTED_NAME.fullmatch(self.name) is not None

    @property
    def revision(self) -> str:
        """What is known of how it sounds, in 32 hexadecimal digits; empty until it is ready."""
        if self.clip is None:
            return ""
        named = json.dumps([self.clip.sha256, self.prompt_text, self.language])
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    @property
    def advice(self) -> str | None:
        """What would make it better."""
        least, most = BEST_SECONDS
        if self.clip is None or least <= self.clip.duration_seconds <= most:
            return None
        return (
            f"The prompt lasts {self.clip.duration_seconds:.1f} s; {least:g} to {most:g} s of calm "
            "speech are best."
        )


def clip_path(output_dir: Path, voice: EnrolledVoice) -> Path:
    """Where the clip of a voice that is ready lies: named by its content and its enrolment."""
    sha256 = voice.clip.sha256 if voice.clip else ""
    return output_dir / FOLDER / voice.tenant / f"{sha256}.{voice.token}.wav"


def features_path(output_dir: Path, voice: EnrolledVoice, model: str) -> Path:
    """Where what a revision of a model made of a voice's clip is kept: beside the clip."""
    made_by = hashlib.sha256(model.encode()).hexdigest()[:16]
    return clip_path(output_dir, voice).with_suffix(f".{made_by}.npz")


def clip_of(file: str) -> str:
    """The name of the clip that a file beside it belongs to."""
    return ".".join(file.split(".")[:2]) + ".wav"


def unlisted_name(prompt_audio: bytes, prompt_text: str, language: str) -> str:
    """The name of an unlisted voice: the same prompt has the same one."""
    named = json.dumps([hashlib.sha256(prompt_audio).hexdigest(), prompt_text, language])
    return f"voice_{hashlib.sha256(named.encode()).hexdigest()[:32]}"


def check_voice_name(name: str) -> None:
    """Raise ``InvalidVoiceNameError`` for a name that can't be chosen."""
    if UNLISTED_NAME.fullmatch(name):
        raise InvalidVoiceNameError(
            f"The name {name!r} is one that unlisted voices are given; choose another."
        )
    if not VOICE_NAME.fullmatch(name):
        raise InvalidVoiceNameError(
            f"The name {name[:80]!r} can't be used: give 1 to 64 of A-Z a-z 0-9 . _ - and begin "
            "with a letter or a digit."
        )

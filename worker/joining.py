"""Many audio files to one, a block at a time: nothing is ever in memory as a whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias

import numpy as np
import soundfile  # type: ignore[import-untyped]

from voicemill.errors import AudioGoneError, ConcatenationError, MixedSampleRatesError
from worker.audio import CONTAINERS, ENCODE_BLOCK_SAMPLES

SYNC_BYTES = 32 << 20
"""Written before the disk is waited for, so that the end of a large file does not take long."""
READ_BYTES = 1 << 20
SAMPLE_BYTES = 2
"""Of a WAV."""
MOST_WAV_BYTES = (4 << 30) - (1 << 16)
"""A larger one is an RF64, which is a WAV with lengths of 64 bits."""
EXACT = (".wav", ".flac")
"""Read and written as integers."""

Block: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Part:
    """The audio of one item, as it is recorded."""

    custom_id: str
    path: Path
    size_bytes: int
    sample_rate: int


@dataclass(frozen=True, slots=True)
class Joined:
    """What the parts became."""

    sha256: str
    size_bytes: int
    duration_seconds: float
    sample_rate: int


def join_files(
    parts: Sequence[Part],
    file: BinaryIO,
    response_format: str,
    silence_ms: int,
    go_on: Callable[[], None],
) -> Joined:
    """Write the parts one after another, with silence between, to an empty file.

    ``go_on`` is called between blocks and may raise to stop. Raises ``MixedSampleRatesError``
    where the parts differ, ``AudioGoneError`` where one is not on disk as it was recorded,
    ``ConcatenationError`` where one can't be read, ``OSError`` where the file takes no more.
    """
    rate = common_rate(parts)
    container, subtype = CONTAINERS[response_format]
    if container == "WAV" and expected_bytes(parts, silence_ms) > MOST_WAV_BYTES:
        container = "RF64"
    sink, frames = Sink(file), 0
    with sink, soundfile.SoundFile(sink, "w", rate, 1, subtype, format=container) as whole:
        for block in blocks_of_all(parts, round(silence_ms * rate / 1000)):
            whole.write(block)
            sink.check()
            frames += block.size
            go_on()
    sha256, size = digest(file, go_on)
    return Joined(sha256, size, round(frames / rate, 6), rate)


class Sink:
    """A file for libsndfile to write to, which itself can't say why it could not."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unsynced = 0
        self._failure: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.check()

    def check(self) -> None:
        """Raise the ``OSError`` that a write met."""
        if self._failure is not None:
            raise self._failure

    def write(self, data: bytes) -> int:
        """Write all of it; gives how many bytes were taken."""
        try:
            self._file.write(data)
            self._unsynced += len(data)
            if self._unsynced >= SYNC_BYTES:
                self._file.flush()
                os.fdatasync(self._file.fileno())
                self._unsynced = 0
        except OSError as error:
            self._failure = self._failure or error
            return 0
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As that of a file; what can't be flushed first is a failed write."""
        try:
            return self._file.seek(offset, whence)
        except OSError as error:
            self._failure = self._failure or error
            return -1

    def tell(self) -> int:
        """As that of a file."""
        return self._file.tell()


def common_rate(parts: Sequence[Part]) -> int:
    """The sample rate of all parts; raises ``MixedSampleRatesError``."""
    first = parts[0]
    for part in parts:
        if part.sample_rate != first.sample_rate:
            raise MixedSampleRatesError(
                f"{first.custom_id} has {first.sample_rate} Hz and {part.custom_id} "
                f"{part.sample_rate} Hz; submit the texts again in one job."
            )
    return first.sample_rate


def expected_bytes(parts: Sequence[Part], silence_ms: int) -> int:
    """About the size of the whole, and not less for a WAV."""
    gap = SAMPLE_BYTES * round(silence_ms * parts[0].sample_rate / 1000)
    is_wav = parts[0].path.suffix == ".wav"
    return sum(part.size_bytes for part in parts) + (len(parts) * gap if is_wav else 0)


def blocks_of_all(parts: Sequence[Part], gap: int) -> Iterator[Block]:
    """The samples of all parts, with a ``gap`` of so many between two."""
    for place, part in enumerate(parts):
        left = gap if place else 0
        while left:
            size = min(left, ENCODE_BLOCK_SAMPLES)
            yield np.zeros(size, np.int16)
            left -= size
        yield from blocks_of(part)


def blocks_of(part: Part) -> Iterator[Block]:
    """The samples of a part, as they were before they were written where its format allows."""
    is_exact = part.path.suffix in EXACT
    try:
        with part.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != part.size_bytes:
                raise gone(part)
            with soundfile.SoundFile(file.fileno(), closefd=False) as audio:
                if (audio.samplerate, audio.channels) != (part.sample_rate, 1):
                    raise gone(part)
                for block in audio.blocks(
                    ENCODE_BLOCK_SAMPLES, dtype="int16" if is_exact else "float32"
                ):
                    # What was decoded may be over the edge.
                    yield block if is_exact else np.clip(block, -1.0, 1.0)
    except FileNotFoundError as error:
        raise gone(part) from error
    except (OSError, soundfile.LibsndfileError) as error:
        raise ConcatenationError(f"{part.path} can't be read: {error}") from error


def gone(part: Part) -> AudioGoneError:
    """A part was recorded, and what is at its path now is not it."""
    return AudioGoneError(
        f"The audio of {part.custom_id} is not on disk as it was recorded; it can't be joined."
    )


def digest(file: BinaryIO, go_on: Callable[[], None]) -> tuple[str, int]:
    """The sha256 of a file in hexadecimal, and its size in bytes."""
    found = hashlib.sha256()
    file.seek(0)
    while data := file.read(READ_BYTES):
        found.update(data)
        go_on()
    return found.hexdigest(), file.tell()

"""Files to one file: every sample of every part, and the silence between."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.worker.spoken import RATE, samples_of
from voicemill.errors import AudioGoneError, ConcatenationError, MixedSampleRatesError
from worker import joining
from worker.audio import ENCODE_BLOCK_SAMPLES, encode, file_rate
from worker.joining import Joined, Part, expected_bytes, join_files


def part(folder: Path, index: int, kind: str = "wav", rate: int = RATE) -> Part:
    path = folder / f"{index}.{kind}"
    path.write_bytes(encode(samples_of(index), rate, kind))
    return Part(f"row-{index}", path, path.stat().st_size, file_rate(rate, kind))


def join(folder: Path, parts: list[Part], silence_ms: int = 0) -> tuple[Path, Joined]:
    kind = parts[0].path.suffix.removeprefix(".")
    path = folder / f"whole.{kind}"
    with path.open("w+b") as file:
        joined = join_files(parts, file, kind, silence_ms, lambda: None)
    return path, joined


@pytest.mark.parametrize("kind", ["wav", "flac"])
@pytest.mark.parametrize("silence_ms", [0, 1, 250, 10_000])
def test_lossless_parts_are_in_the_whole_sample_for_sample(
    tmp_path: Path, kind: str, silence_ms: int
) -> None:
    parts = [part(tmp_path, index, kind) for index in (2, 0, 1)]

    path, joined = join(tmp_path, parts, silence_ms)

    gap = np.zeros(RATE * silence_ms // 1000, np.int16)
    first, second, third = (soundfile.read(one.path, dtype="int16")[0] for one in parts)
    whole, rate = soundfile.read(path, dtype="int16")
    assert rate == joined.sample_rate == RATE
    assert np.array_equal(whole, np.concatenate([first, gap, second, gap, third]))
    assert joined.duration_seconds == round(len(whole) / RATE, 6)
    assert joined.size_bytes == path.stat().st_size
    assert joined.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", ["mp3", "opus", "ogg"])
def test_lossy_parts_last_as_long_in_the_whole_and_sound_the_same(
    tmp_path: Path, kind: str
) -> None:
    parts = [part(tmp_path, index, kind) for index in range(8)]

    path, joined = join(tmp_path, parts, 100)

    gap = np.zeros(joined.sample_rate // 10)
    pieces = [soundfile.read(parts[0].path)[0]]
    for one in parts[1:]:
        pieces += [gap, soundfile.read(one.path)[0]]
    wanted = np.concatenate(pieces)
    whole, _ = soundfile.read(path)
    assert len(whole) == len(wanted)
    assert joined.duration_seconds == round(len(wanted) / joined.sample_rate, 6)
    assert np.corrcoef(whole, wanted)[0, 1] > 0.95


def test_a_part_longer_than_a_block_is_whole(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).uniform(-1, 1, 3 * ENCODE_BLOCK_SAMPLES + 1)
    long = tmp_path / "long.wav"
    long.write_bytes(encode(samples, RATE, "wav"))
    parts = [Part("long", long, long.stat().st_size, RATE), part(tmp_path, 0)]
    whole, _ = soundfile.read(join(tmp_path, parts)[0], dtype="int16")
    assert np.array_equal(whole[: samples.size], soundfile.read(long, dtype="int16")[0])
    assert len(whole) == samples.size + samples_of(0).size


def test_the_whole_is_never_in_memory(tmp_path: Path) -> None:
    long = tmp_path / "long.wav"
    long.write_bytes(encode(np.zeros(1_000_000, np.float32), RATE, "wav"))
    parts = [Part("long", long, long.stat().st_size, RATE)] * 20
    tracemalloc.start()
    path, _ = join(tmp_path, parts, 10_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 40_000_000
    assert peak < 3_000_000


def test_a_wav_that_is_too_long_for_its_lengths_becomes_an_rf64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part(tmp_path, 0), part(tmp_path, 1)]
    expected = expected_bytes(parts, 500)
    assert join(tmp_path, parts, 500)[0].stat().st_size <= expected
    plain = (tmp_path / "whole.wav").read_bytes()
    monkeypatch.setattr(joining, "MOST_WAV_BYTES", expected - 1)

    path, _ = join(tmp_path, parts, 500)

    assert (plain[:4], path.read_bytes()[:4]) == (b"RIFF", b"RF64")
    assert soundfile.info(path).frames == samples_of(0).size + samples_of(1).size + RATE // 2


def test_parts_of_different_rates_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    parts = [part(tmp_path, 0), part(tmp_path, 1, rate=16000)]
    with pytest.raises(MixedSampleRatesError, match="row-0 has 8000 Hz and row-1 16000 Hz"):
        join(tmp_path, parts)
    assert (tmp_path / "whole.wav").stat().st_size == 0


def missing(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 2)


def of_another_rate(path: Path) -> None:
    path.write_bytes(encode(samples_of(1), 2 * RATE, "wav"))


@pytest.mark.parametrize("harm", [missing, cut, of_another_rate])
def test_a_part_that_is_not_as_it_was_recorded_is_named(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    parts = [part(tmp_path, 0), part(tmp_path, 1)]
    harm(parts[1].path)
    with pytest.raises(AudioGoneError, match="The audio of row-1 is not on disk as it was"):
        join(tmp_path, parts)


def test_a_part_that_is_no_audio_is_named(tmp_path: Path) -> None:
    parts = [part(tmp_path, 0), part(tmp_path, 1)]
    parts[1].path.write_bytes(bytes(parts[1].size_bytes))
    with pytest.raises(ConcatenationError, match=r"1\.wav can't be read"):
        join(tmp_path, parts)


def test_it_stops_between_two_blocks(tmp_path: Path) -> None:
    parts = [part(tmp_path, index) for index in range(3)]
    calls: list[None] = []

    def go_on() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with (tmp_path / "whole.wav").open("w+b") as file, pytest.raises(KeyboardInterrupt):
        join_files(parts, file, "wav", 0, go_on)
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "opus", "ogg"])
def test_a_full_disk_says_that_it_is_one(tmp_path: Path, kind: str) -> None:
    parts = [part(tmp_path, index % 9, kind) for index in range(200)]
    file = open("/dev/full", "w+b", buffering=0)  # noqa: SIM115
    with file, pytest.raises(OSError, match="No space left"):
        join_files(parts, file, kind, 0, lambda: None)

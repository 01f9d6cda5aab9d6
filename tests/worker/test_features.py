"""What engines keep of prompts: whole or not at all, and never trusted when damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from worker.engines import features

ARRAYS = {
    "tokens": np.arange(12, dtype=np.int32).reshape(1, 12),
    "timbre": np.linspace(-1, 1, 7, dtype=np.float32),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A place where something was kept."""
    path = tmp_path / "ann.npz"
    features.keep(path, ARRAYS)
    return path


def test_arrays_come_back_as_they_were(path: Path) -> None:
    kept = features.read(path)
    assert kept is not None
    assert {name: (one.dtype, one.tolist()) for name, one in kept.items()} == {
        name: (one.dtype, one.tolist()) for name, one in ARRAYS.items()
    }
    assert [one.name for one in path.parent.iterdir()] == ["ann.npz"]


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "cut": data[:-9],
        "half": data[:middle],
        "flipped": data[:120] + bytes([data[120] ^ 0xFF]) + data[121:],
        "other": b"RIFF" + data[4:],
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut", "half", "flipped", "other"])
def test_a_damaged_file_counts_as_none_and_is_made_anew(path: Path, how: str) -> None:
    path.write_bytes(damaged(path.read_bytes(), how))
    assert features.read(path) is None
    features.keep(path, ARRAYS)
    assert features.read(path) is not None


def test_what_python_could_execute_is_not_read(path: Path) -> None:
    np.savez(path, trap=np.array([{"a": 1}], dtype=object))
    assert features.read(path) is None


def test_without_a_place_or_with_one_that_takes_nothing_an_engine_does_without(
    tmp_path: Path,
) -> None:
    assert features.read(None) is None
    assert features.read(tmp_path / "none.npz") is None
    features.keep(None, ARRAYS)
    features.keep(tmp_path / "no folder" / "ann.npz", ARRAYS)
    assert list(tmp_path.iterdir()) == []

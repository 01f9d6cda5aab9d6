"""Audio that is kept at hand for other jobs: found, trusted, and given up."""

from __future__ import annotations

import hashlib
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from voicemill.jobs import ItemAudio
from voicemill.outputs import audio_path, remove_job, write_audio
from worker.cache import FOLDER, Cache

DIGEST, OTHER = "ab" * 32, "cd" * 32
HOUR_NS = 3600 * 10**9


def spoken(folder: Path, job_id: str, data: bytes = b"RIFF") -> ItemAudio:
    path = audio_path(folder, job_id, 0, "row-000001", 1, "ab12", "wav")
    written = write_audio(path, data)
    return ItemAudio(str(path), written.sha256, written.size_bytes, 1.25, 24000, 0.5, "tone", "1")


def kept(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / FOLDER).rglob("*") if not path.is_dir())


def used(path: Path, hours_ago: int) -> None:
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now - hours_ago * HOUR_NS, now))


def test_what_is_kept_is_found_by_its_sound_and_its_tenant(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.entries("ann", DIGEST) == []
    sound = spoken(tmp_path, "job_1")
    cache.keep("ann", DIGEST, sound, "wav")
    cache.keep("ann", DIGEST, sound, "wav")

    (entry,) = cache.entries("ann", DIGEST)
    assert (entry.sha256, entry.size_bytes) == (hashlib.sha256(b"RIFF").hexdigest(), 4)
    assert (entry.duration_seconds, entry.sample_rate, entry.names) == (1.25, 24000, 2)
    assert cache.path(entry).samefile(sound.audio_path)
    assert cache.entries("bob", DIGEST) == []
    assert cache.entries("ann", "ab" + OTHER[2:]) == []
    cache.remove(entry)
    cache.remove(entry)
    assert cache.entries("ann", DIGEST) == []
    assert Path(sound.audio_path).read_bytes() == b"RIFF"


def test_what_cannot_be_kept_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, sound = Cache(tmp_path), spoken(tmp_path, "job_1")
    Path(sound.audio_path).unlink()
    cache.keep("ann", DIGEST, sound, "wav")
    assert kept(tmp_path) == []


@pytest.mark.parametrize("tenant", ["..", ".", "", "a/b", "../x", "/etc"])
def test_no_name_of_a_tenant_leads_out_of_the_cache(tmp_path: Path, tenant: str) -> None:
    cache = Cache(tmp_path)
    cache.keep(tenant, DIGEST, spoken(tmp_path, "job_1"), "wav")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job_1"]
    assert cache.entries(tenant, DIGEST) == []


def test_what_was_not_used_for_longest_goes_first_and_jobs_keep_their_files(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path)
    sounds = [spoken(tmp_path, f"job_{n}", bytes(100 + n)) for n in range(3)]
    for n, sound in enumerate(sounds):
        cache.keep("ann", str(n) * 64, sound, "wav")
        used(Path(sound.audio_path), 5 - n)
    (oldest,) = cache.entries("ann", "0" * 64)
    cache.note_use(oldest)

    assert cache.trim(1000) == 0
    assert cache.trim(210) == 1

    assert [len(cache.entries("ann", str(n) * 64)) for n in range(3)] == [1, 0, 1]
    assert cache.trim(50) == 2
    assert kept(tmp_path) == []
    assert [Path(sound.audio_path).stat().st_size for sound in sounds] == [100, 101, 102]


def fill(cache: Cache, folder: Path, shelves: int, entries: int) -> None:
    """Entries of one tenant, so many on each shelf; the later ones were used later."""
    sound = spoken(folder, "job_1", bytes(100))
    for number in range(shelves * entries):
        digest = f"{number % shelves:02x}{number:062x}"
        path = folder / "job_1" / f"{number}.wav"
        path.write_bytes(bytes(100))
        cache.keep("ann", digest, replace(sound, audio_path=str(path)), "wav")
        used(path, 10_000 - number)


def test_memory_is_needed_for_one_shelf_only_and_as_much_for_an_entry_as_is_said(
    tmp_path: Path,
) -> None:
    def peak(shelves: int, entries: int, most_bytes: int) -> int:
        folder = tmp_path / f"{shelves}-{entries}-{most_bytes}"
        cache = Cache(folder)
        fill(cache, folder, shelves, entries)
        cache.trim(10**9)  # imports, and all that is done once
        tracemalloc.start()
        try:
            removed = cache.trim(most_bytes)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        total = shelves * entries
        assert removed == total - most_bytes // 100
        return most

    small, large = peak(2, 50, 5000), peak(2, 150, 15_000)
    assert (large - small) / 100 < 1024, "bytes for each entry on a shelf"
    assert peak(16, 40, 32_000) < 1.5 * peak(8, 40, 16_000) + 20_000


def test_of_many_entries_the_last_used_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    fill(cache, tmp_path, 4, 50)
    assert cache.trim(150 * 100) == 50
    left = sorted(int(path.name[2:64], 16) for path in kept(tmp_path))
    assert len(left) == 150
    # 10,000 hours ago and 9,900 are within a hundredth of each other.
    assert set(range(150, 200)) <= set(left)


def test_what_is_larger_than_the_whole_cache_goes_and_takes_nothing_with_it(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path)
    for number, size in enumerate((10, 500, 20)):
        cache.keep("ann", str(number) * 64, spoken(tmp_path, f"job_{number}", bytes(size)), "wav")
    assert cache.trim(100) == 1
    assert [len(cache.entries("ann", str(number) * 64)) for number in range(3)] == [1, 0, 1]


def test_what_was_used_in_the_future_is_young(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number in range(2):
        sound = spoken(tmp_path, f"job_{number}", bytes(100 + number))
        cache.keep("ann", str(number) * 64, sound, "wav")
        used(Path(sound.audio_path), -1 if number == 0 else 1)
    assert cache.trim(150) == 1
    assert [len(cache.entries("ann", str(number) * 64)) for number in range(2)] == [1, 0]


def test_what_no_job_has_any_more_goes_with_the_next_round(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("ann", DIGEST, spoken(tmp_path, "job_1"), "wav")
    cache.keep("bob", OTHER, spoken(tmp_path, "job_2"), "wav")
    (shared,) = cache.entries("bob", OTHER)
    (tmp_path / "job_3").mkdir()
    os.link(cache.path(shared), tmp_path / "job_3" / "a.wav")
    for job_id in ("job_1", "job_2"):
        remove_job(tmp_path, job_id)

    assert cache.trim(10**9) == 1

    assert cache.entries("ann", DIGEST) == []
    assert len(cache.entries("bob", OTHER)) == 1, "a third job has it"


def test_links_and_strange_names_are_left_alone(tmp_path: Path) -> None:
    outputs, elsewhere = tmp_path / "outputs", tmp_path / "elsewhere"
    (elsewhere / "ab").mkdir(parents=True)
    precious = elsewhere / "ab" / f"{DIGEST}.{DIGEST}.1.24000.wav"
    precious.write_bytes(b"precious")
    cache, sound = Cache(outputs), spoken(outputs, "job_1")
    cache.keep("bob", DIGEST, sound, "wav")
    (outputs / FOLDER / "ann").symlink_to(elsewhere)
    shelf = outputs / FOLDER / "bob" / "ab"
    (shelf / precious.name).symlink_to(precious)
    (shelf / "notes.txt").touch()
    (outputs / FOLDER / "notes.txt").touch()

    assert cache.entries("ann", DIGEST) == []
    cache.keep("ann", DIGEST, sound, "wav")
    assert len(cache.entries("bob", DIGEST)) == 1
    assert cache.trim(0) == 1

    assert [path.name for path in elsewhere.rglob("*.wav")] == [precious.name]
    assert precious.read_bytes() == b"precious"
    assert {path.name for path in shelf.iterdir()} == {precious.name, "notes.txt"}


def test_a_cache_that_was_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    outputs, elsewhere = tmp_path / "outputs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache, sound = Cache(outputs), spoken(outputs, "job_1")
    (outputs / FOLDER).symlink_to(elsewhere)
    cache.keep("ann", DIGEST, sound, "wav")
    assert list(elsewhere.iterdir()) == []
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        cache.trim(0)


def test_a_folder_without_a_cache_has_nothing_to_trim(tmp_path: Path) -> None:
    assert Cache(tmp_path / "none").trim(0) == 0
    assert Cache(tmp_path).trim(0) == 0
    assert list(tmp_path.iterdir()) == []

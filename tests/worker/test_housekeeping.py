"""What the clerk removes, and what it never touches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import TONE, Valkey, inputs
from voicemill.jobs import JobStatus
from voicemill.outputs import audio_path, remove_job, write_audio
from voicemill.settings import Settings
from voicemill.store import Store
from worker.housekeeping import Housekeeper


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    folder.mkdir()
    return folder


@pytest.fixture
def housekeeper(store: Store, redis_url: str, folder: Path) -> Housekeeper:
    store.publish_engine(TONE)
    return Housekeeper(store, Settings(redis_url=redis_url, output_dir=folder))


def spoken(folder: Path, job_id: str, index: int = 0) -> Path:
    path = audio_path(folder, job_id, index, f"row-{index + 1:06d}", 1, "wav")
    return write_audio(path, b"RIFF").path


def test_a_deleted_job_loses_its_files_and_no_other_does(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    for job_id in ("job_1", "job_2"):
        store.create_job(job_id, "default", inputs("a", "b"), {})
        store.cancel(job_id)
        spoken(folder, job_id)
        spoken(folder, job_id, 1000)
    store.delete("job_1")

    housekeeper.tick()

    assert not (folder / "job_1").exists()
    assert sum(path.is_file() for path in (folder / "job_2").rglob("*")) == 2
    assert store.removals() == []
    assert store.job("job_2").status is JobStatus.CANCELLED


def test_files_that_cannot_be_removed_keep_the_job_to_be_removed(
    store: Store, housekeeper: Housekeeper, folder: Path
) -> None:
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    (folder / "job_1").write_text("no folder at all")

    housekeeper.tick()
    assert store.removals() == ["job_1"]
    (folder / "job_1").unlink()
    housekeeper.tick()

    assert store.removals() == []


def test_a_link_in_place_of_a_job_is_removed_and_not_followed(tmp_path: Path, folder: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (folder / "job_1").symlink_to(elsewhere)
    (folder / "job_2").mkdir()
    (folder / "job_2" / "0000").symlink_to(elsewhere)

    remove_job(folder, "job_1")
    remove_job(folder, "job_2")

    assert list(folder.iterdir()) == []
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../x", "/etc", "x" * 65, "job\n"])
def test_no_name_of_a_job_leads_out_of_the_folder(folder: Path, name: str) -> None:
    (folder / "job_1").mkdir()
    with pytest.raises(OSError, match="no name of a job's folder"):
        remove_job(folder, name)
    assert (folder / "job_1").exists()


def test_deleted_texts_leave_the_append_only_file_when_it_is_rewritten(own_valkey: Valkey) -> None:
    store = Store.connect(own_valkey.url)
    client: Any = store._redis
    assert not store.rewrite_append_only_file()
    store.create_job("job_1", "default", inputs("a"), {})
    store.delete("job_1", cancel=True)
    store.purge("job_1")
    assert not store.rewrite_append_only_file(), "not yet due"
    rewrites = client.info("stats").get("total_forks", 0)
    client.set("voicemill:rewrite_at", 1)

    assert store.rewrite_append_only_file()

    assert client.info("stats")["total_forks"] == rewrites + 1
    assert not store.rewrite_append_only_file(), "once"
    store.close()

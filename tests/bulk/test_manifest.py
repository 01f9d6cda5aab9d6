"""The manifest, the plan made from it, and the folder they live in."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from voicemill.bulk.errors import FolderError, FolderLockedError, ManifestError
from voicemill.bulk.folder import OutputFolder
from voicemill.bulk.manifest import History, Manifest, RowEnd, SpokenAudio
from voicemill.bulk.plan import CHUNK_BYTES, Change, body_bytes, chunks, make_change, make_plan
from voicemill.bulk.rows import Row, RowFault, read_row
from voicemill.bulk.table import Table

AUDIO = SpokenAudio("audio/a.wav", "ab" * 32, 100, 1.5, 24000)


def row_of(id: str, text: str = "Hello.", record: int = 1) -> Row:
    return read_row({"id": id, "text": text}, line=record + 1, record=record, cells=(id, text))


def table_of(*rows: Row) -> Table:
    return Table(("id", "text"), rows)


def spoken(row: Row, job: str = "job_1") -> RowEnd:
    return RowEnd(row.id, row.fingerprint, job, 1, replace(AUDIO, path=f"audio/{row.id}.wav"))


def failure(row: Row, job: str | None = "job_1") -> RowEnd:
    return RowEnd(row.id, row.fingerprint, job, 3, fault=RowFault("worker_lost", "Died.", True))


def history_of(path: Path) -> History:
    with Manifest(path) as manifest:
        return manifest.history


# --- manifest ----------------------------------------------------------------


def test_a_manifest_read_again_tells_what_was_written(tmp_path: Path) -> None:
    a, b, c = row_of("a"), row_of("b"), row_of("c")
    with Manifest(tmp_path / "m") as manifest:
        manifest.add_job("job_1", {row.id: row.fingerprint for row in (a, b, c)})
        manifest.add_ends([spoken(a), failure(b)])

        assert manifest.history == history_of(tmp_path / "m")
        assert manifest.history.ends == {"a": spoken(a), "b": failure(b)}
        assert manifest.history.jobs == {"job_1": {"c": c.fingerprint}}


def test_a_job_whose_rows_have_all_ended_is_no_longer_awaited(tmp_path: Path) -> None:
    a = row_of("a")
    with Manifest(tmp_path / "m") as manifest:
        manifest.add_job("job_1", {"a": a.fingerprint})
        manifest.add_ends([failure(a)])

        assert manifest.history.jobs == {}


def test_the_last_line_of_a_row_holds(tmp_path: Path) -> None:
    a = row_of("a")
    with Manifest(tmp_path / "m") as manifest:
        manifest.add_ends([failure(a, None)])
        manifest.add_ends([spoken(a)])

    assert history_of(tmp_path / "m").ends == {"a": spoken(a)}


def test_a_torn_last_line_is_dropped_and_writing_goes_on_after_whole_lines(tmp_path: Path) -> None:
    a, b = row_of("a"), row_of("b")
    path = tmp_path / "m"
    with Manifest(path) as manifest:
        manifest.add_ends([spoken(a), spoken(b)])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1

    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        with Manifest(path) as manifest:
            assert set(manifest.history.ends) == {"a"}
            manifest.add_ends([spoken(b)])
        assert path.read_bytes() == whole


@pytest.mark.parametrize("line", ["not json", "[]", "null", "{}", '{"schema": 1}', "\0\0\0"])
def test_a_whole_line_that_makes_no_sense_stops_the_run(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m"
    with Manifest(path) as manifest:
        manifest.add_ends([spoken(row_of("a"))])
    with path.open("a") as file:
        file.write(f"{line}\n")

    with pytest.raises(ManifestError, match="line 2 can't be understood"):
        Manifest(path)


def test_the_last_table_is_remembered_and_written_once(tmp_path: Path) -> None:
    with Manifest(tmp_path / "m") as manifest:
        assert manifest.history.table is None
        for source in ("/a.csv", "/a.csv", "/b.csv"):
            manifest.add_table(source)

    assert history_of(tmp_path / "m").table == "/b.csv"
    assert (tmp_path / "m").read_bytes().count(b"\n") == 2


def test_lines_of_a_later_schema_are_left_alone(tmp_path: Path) -> None:
    later = json.dumps({"schema": 2, "id": 7}) + "\n"
    (tmp_path / "m").write_text(later)

    with Manifest(tmp_path / "m") as manifest:
        manifest.add_ends([spoken(row_of("a"))])

    assert (tmp_path / "m").read_text().startswith(later)
    assert set(history_of(tmp_path / "m").ends) == {"a"}


# --- plan --------------------------------------------------------------------


def test_only_rows_spoken_as_asked_whose_file_is_there_are_skipped() -> None:
    kept, changed, gone, lost = row_of("kept"), row_of("changed"), row_of("gone"), row_of("lost")
    history = History()
    for row in (kept, changed, gone):
        history.add(spoken(row).to_record())
    history.add(failure(lost).to_record())
    table = table_of(kept, row_of("changed", "Other."), gone, lost, row_of("new"))

    plan = make_plan(table, history, lambda audio: audio.path != "audio/gone.wav")

    assert [row.id for row in plan.done] == ["kept"]
    assert [row.id for row in plan.pending] == ["changed", "lost", "new"]
    assert plan.awaited == {"job_1": (gone,)}


def test_a_row_asked_for_anew_is_awaited_from_the_new_job() -> None:
    gone = row_of("gone")
    history = History()
    history.add(spoken(gone, "job_1").to_record())
    history.add({"schema": 1, "job": "job_2", "rows": {"gone": gone.fingerprint}})

    assert make_plan(table_of(gone), history, lambda audio: False).awaited == {"job_2": (gone,)}


def test_a_change_tells_finished_rows_that_stay_from_those_edited_and_taken_out() -> None:
    kept, changed, gone, lost = row_of("kept"), row_of("changed"), row_of("gone"), row_of("lost")
    history = History()
    for row in (kept, changed, gone):
        history.add(spoken(row).to_record())
    history.add(failure(lost).to_record())
    table = table_of(row_of("new"), row_of("changed", "Other."), kept)

    assert make_change(table, history) == Change(kept=1, changed=1, gone=1)
    assert make_change(table, History()) == Change(0, 0, 0)


def test_rows_in_flight_are_awaited_from_their_last_job_unless_they_changed() -> None:
    a, b, c = row_of("a"), row_of("b"), row_of("c")
    history = History()
    rows = {row.id: row.fingerprint for row in (a, b, c)}
    history.add({"schema": 1, "job": "job_1", "rows": rows})
    history.add({"schema": 1, "job": "job_2", "rows": {"b": b.fingerprint}})

    plan = make_plan(table_of(a, b, row_of("c", "Other.")), history, lambda audio: True)

    assert plan.awaited == {"job_1": (a,), "job_2": (b,)}
    assert [row.id for row in plan.pending] == ["c"]


def test_rows_with_a_fault_are_in_no_part_of_a_plan() -> None:
    plan = make_plan(table_of(row_of("a", "..."), row_of("b/")), History(), lambda audio: True)

    assert (plan.done, plan.awaited, plan.pending) == ((), {}, ())


def test_the_fingerprint_follows_what_is_asked_and_not_the_id() -> None:
    same = {row_of("a").fingerprint, row_of("b", record=5).fingerprint}
    voiced = read_row({"text": "Hello.", "voice": "low"}, line=2, record=1, cells=())

    assert len(same) == 1
    assert voiced.fingerprint not in same
    assert row_of("a", "Other.").fingerprint not in same


def test_chunks_hold_a_thousand_rows_or_what_a_body_may_weigh() -> None:
    many = [row_of(f"n{number}", record=number + 1) for number in range(2001)]
    heavy = [row_of(f"h{number}", "word " * 200_000, record=number + 1) for number in range(3)]

    assert [len(chunk) for chunk in chunks(many)] == [1000, 1000, 1]
    assert [row for chunk in chunks(many) for row in chunk] == many
    assert [len(chunk) for chunk in chunks(heavy)] == [1, 1, 1]
    assert 2 * body_bytes(heavy[0]) > CHUNK_BYTES


# --- folder ------------------------------------------------------------------


def test_a_folder_lets_one_run_in_at_a_time(tmp_path: Path) -> None:
    with (
        OutputFolder(tmp_path / "out"),
        pytest.raises(FolderLockedError, match="Another run is at work"),
    ):
        OutputFolder(tmp_path / "out")

    with OutputFolder(tmp_path / "out") as folder:
        assert folder.audio_path.is_dir()


def test_audio_is_held_while_its_bytes_are_those_recorded(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"audio").hexdigest()
    audio = replace(AUDIO, path="audio/a.wav", sha256=sha256, size_bytes=5)
    with OutputFolder(tmp_path) as folder:
        seen = []
        for data in (b"audio", b"audiO", b"audi", b"audio!"):
            (folder.audio_path / "a.wav").write_bytes(data)
            seen.append(folder.holds(audio))
        (folder.audio_path / "a.wav").unlink()

        assert (*seen, folder.holds(audio)) == (True, False, False, False, False)


def test_half_written_files_of_a_killed_run_are_swept(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    (tmp_path / "audio" / ".a.wav.0123.part").write_bytes(b"half")
    (tmp_path / "audio" / "a.wav").write_bytes(b"whole")

    with OutputFolder(tmp_path) as folder:
        assert [path.name for path in folder.audio_path.iterdir()] == ["a.wav"]


def test_results_of_somebody_else_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("mine")

    with pytest.raises(FolderError, match="is not from a run"):
        OutputFolder(tmp_path)

    assert (tmp_path / "results.csv").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderError, match="can't be written: Not a directory"):
        OutputFolder(tmp_path / "file" / "out")


def test_clearing_removes_what_a_run_left_and_nothing_else(tmp_path: Path) -> None:
    with OutputFolder(tmp_path) as folder:
        with Manifest(folder.manifest_path) as manifest:
            manifest.add_ends([spoken(row_of("a"))])
        for name in ("audio/a.wav", "audio/mine.wav", "results.csv", "errors.csv", "mine.txt"):
            (tmp_path / name).write_text("x")

        folder.clear()

    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert left == [".lock", "audio", "audio/mine.wav", "mine.txt"]


def test_a_link_shares_the_bytes_and_may_be_made_twice(tmp_path: Path) -> None:
    source = tmp_path / "source.wav"
    source.write_bytes(b"audio")
    with OutputFolder(tmp_path / "out") as folder:
        target = folder.audio_path / "a.wav"
        folder.link(source, target)
        folder.link(source, target)

        assert target.samefile(source)
        assert [path.name for path in folder.audio_path.iterdir()] == ["a.wav"]


@pytest.mark.skipif(
    not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/tmp").st_dev,
    reason="no second file system to try it on",
)
def test_audio_on_another_file_system_is_copied(tmp_path: Path) -> None:
    source = Path("/dev/shm") / f"voicemill-{os.getpid()}.wav"
    source.write_bytes(b"audio")
    try:
        with OutputFolder(tmp_path / "out") as folder:
            target = folder.audio_path / "a.wav"
            folder.link(source, target)

            assert target.read_bytes() == b"audio"
            assert not target.samefile(source)
    finally:
        source.unlink()

"""Whole bulk runs against the wire."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.bulk.wire_double import Answer, WireDouble, problem, speech
from voicemill.bulk.errors import FolderError
from voicemill.bulk.folder import OutputFolder
from voicemill.bulk.manifest import Manifest
from voicemill.bulk.plan import make_plan
from voicemill.bulk.progress import Lines, Silence
from voicemill.bulk.runner import BulkRun
from voicemill.bulk.speak import Summary, speak_csv
from voicemill.bulk.table import read_table
from voicemill.client import Client, ServerProblemError, ServerUnreachableError


class Bulk:
    """A CSV, an output folder and a server."""

    def __init__(self, wire: WireDouble, folder: Path) -> None:
        self.wire = wire
        self.source = folder / "lines.csv"
        self.out = folder / "out"
        self.said = io.StringIO()

    def speak(self, text: str, *, in_place: bool = False, delimiter: str = ",") -> Summary:
        self.source.write_text(text, encoding="utf-8")
        return self.again(in_place=in_place, delimiter=delimiter)

    def again(self, *, in_place: bool = False, delimiter: str = ",") -> Summary:
        return speak_csv(
            self.source,
            self.out,
            self.wire.url,
            Lines(self.said),
            in_place=in_place,
            delimiter=delimiter,
        )

    def rows(self, name: str, delimiter: str = ",") -> list[dict[str, str]]:
        with (self.out / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, delimiter=delimiter))

    def codes(self) -> dict[str, str]:
        return {row["id"]: row["tts_error_code"] for row in self.rows("errors.csv")}

    def audio(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.out / "audio").iterdir()}

    def manifest(self) -> list[dict[str, object]]:
        text = (self.out / "manifest.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def bulk(wire: WireDouble, tmp_path: Path) -> Bulk:
    return Bulk(wire, tmp_path)


def numbered(count: int) -> str:
    return "id,text\n" + "".join(f"n{number},Line {number}.\n" for number in range(count))


# --- a run -------------------------------------------------------------------


def test_every_row_is_spoken_and_told_of_in_the_order_of_the_input(bulk: Bulk) -> None:
    bulk.wire.items_per_look = 300
    summary = bulk.speak(numbered(1050), in_place=True)

    ids = [f"n{number}" for number in range(1050)]
    results = bulk.rows("results.csv")
    assert [len(job) for job in bulk.wire.created] == [1000, 50]
    assert [row["id"] for row in results] == ids
    assert bulk.audio() == {f"{id}.wav": speech(f"Line {id[1:]}.") for id in ids}
    assert len({row["tts_sha256"] for row in results}) == 1050
    assert bulk.rows("errors.csv") == []
    assert (summary.rows, summary.failures) == (1050, ())


def test_a_result_says_where_the_audio_is_and_what_it_is(bulk: Bulk) -> None:
    bulk.speak("note,text,id\nkeep,Hello.,a\n")

    (row,) = bulk.rows("results.csv")
    assert list(row) == [
        *("note", "text", "id", "tts_status", "tts_path", "tts_sha256"),
        *("tts_duration_seconds", "tts_sample_rate", "tts_attempts"),
    ]
    assert row["note"] == "keep"
    assert row["tts_status"] == "succeeded"
    assert Path(row["tts_path"]) == bulk.out / "audio" / "a.wav"
    assert Path(row["tts_path"]).read_bytes() == speech("Hello.")
    assert (row["tts_duration_seconds"], row["tts_sample_rate"]) == ("0.060", "8000")
    assert row["tts_attempts"] == "1"


def test_a_row_that_fails_does_not_take_the_others_with_it(bulk: Bulk) -> None:
    summary = bulk.speak(
        "id,text\na,Good.\nb,... !\nc,Bad [fail].\nd/e,Unsafe.\nf,Gone [cancel].\nz,Last.\n"
    )

    assert set(bulk.audio()) == {"a.wav", "z.wav"}
    assert bulk.codes() == {
        "b": "no_speakable_text",
        "c": "synthesis_failed",
        "d/e": "invalid_custom_id",
        "f": "cancelled",
    }
    by_id = {row["id"]: row for row in bulk.rows("errors.csv")}
    assert list(by_id["c"])[2:] == [
        *("tts_line", "tts_error_code", "tts_error_message", "tts_retryable", "tts_attempts")
    ]
    assert [by_id["c"][name] for name in ("tts_line", "tts_retryable", "tts_attempts")] == [
        *("4", "true", "3")
    ]
    assert [by_id["b"][name] for name in ("tts_line", "tts_retryable", "tts_attempts")] == [
        *("3", "false", "0")
    ]
    assert len(summary.failures) == 4
    lines = list(summary.lines())
    assert lines[0] == "2 of 6 rows spoken."
    assert "1 failed: synthesis_failed" in lines
    assert "  line 4 (record 3): c: The engine failed." in lines


def test_rows_the_server_refuses_fail_and_the_rest_is_sent_again(bulk: Bulk) -> None:
    bulk.wire.largest_text = 50
    long = "word " * 20
    bulk.speak(f"id,text,voice\na,One.,\nb,Two.,nobody\nc,{long},\nd,Four.,low\n")

    assert bulk.wire.created == [["a", "d"]]
    assert bulk.codes() == {"b": "voice_not_found", "c": "text_too_long"}
    assert set(bulk.audio()) == {"a.wav", "d.wav"}


def test_a_run_in_which_every_row_is_refused_ends(bulk: Bulk) -> None:
    bulk.speak("id,text,voice\na,One.,x\nb,Two.,y\n")

    assert bulk.wire.created == []
    assert bulk.codes() == {"a": "voice_not_found", "b": "voice_not_found"}


def test_a_body_too_large_is_sent_in_halves_and_a_row_too_large_fails(bulk: Bulk) -> None:
    bulk.wire.largest_body = 300
    bulk.speak(numbered(20) + "long," + "word " * 100 + "\n")

    assert bulk.codes() == {"long": "payload_too_large"}
    assert len(bulk.audio()) == 20
    assert set(bulk.wire.asked.values()) == {1}


def test_a_refusal_that_points_at_no_row_ends_the_run(bulk: Bulk) -> None:
    models = Answer(200, {"data": []})
    refusal = Answer(422, problem(422, "model_not_found", "The model is not known."))
    bulk.wire.instead.extend((models, refusal))

    with pytest.raises(ServerProblemError, match="The model is not known"):
        bulk.speak(numbered(3))

    assert bulk.codes() == dict.fromkeys(("n0", "n1", "n2"), "not_spoken")


def test_damaged_audio_fails_its_row_alone(bulk: Bulk) -> None:
    bulk.wire.damaged.add("n1")
    bulk.speak(numbered(3))

    assert bulk.codes() == {"n1": "audio_mismatch"}
    assert set(bulk.audio()) == {"n0.wav", "n2.wav"}


def test_a_job_that_the_server_forgets_fails_its_rows_as_retryable(bulk: Bulk) -> None:
    bulk.wire.items_per_look = 2
    forgotten = Answer(404, problem(404, "job_not_found", "No such job."))
    models = Answer(200, {"data": []})
    created = bulk.wire.create({"inputs": [{"custom_id": "n0", "input": "Line 0."}]}, 1)
    bulk.wire.instead.extend((models, created, forgotten))

    bulk.speak(numbered(1))

    (row,) = bulk.rows("errors.csv")
    assert (row["tts_error_code"], row["tts_retryable"]) == ("job_not_found", "true")


def test_a_cancelled_job_leaves_no_row_unaccounted_for(bulk: Bulk) -> None:
    bulk.wire.item_budget = 2
    bulk.wire.cancelled.add("job_0")
    bulk.speak(numbered(4))

    assert bulk.codes() == {"n2": "no_result", "n3": "no_result"}
    assert set(bulk.audio()) == {"n0.wav", "n1.wav"}


def test_results_are_written_with_the_inputs_delimiter(bulk: Bulk) -> None:
    bulk.speak("id;text\na;Hello, world.\nb;...\n", delimiter=";")

    assert [row["text"] for row in bulk.rows("results.csv", ";")] == ["Hello, world."]
    assert [row["id"] for row in bulk.rows("errors.csv", ";")] == ["b"]


def test_progress_counts_rows_and_audio(bulk: Bulk) -> None:
    bulk.speak("id,text\na,Hello.\nb,Bad [fail].\n")

    assert bulk.said.getvalue().splitlines()[-1].startswith("2/2 rows (1 failed), 0.1 s of audio, ")


# --- in place ----------------------------------------------------------------


def test_in_place_links_the_servers_own_files(bulk: Bulk) -> None:
    bulk.speak(numbered(3), in_place=True)

    assert bulk.wire.fetched == {}
    for row in bulk.rows("results.csv"):
        assert Path(row["tts_path"]).parent == bulk.out / "audio"
        assert Path(row["tts_path"]).samefile(bulk.wire.folder / "job_0" / f"{row['id']}.wav")


def test_in_place_on_a_machine_without_the_folder_says_so_once_and_fetches(bulk: Bulk) -> None:
    bulk.source.write_text(numbered(3))
    elsewhere = bulk.wire.look

    def look(job_id: str) -> dict[str, object]:
        job = elsewhere(job_id)
        for item in bulk.wire.jobs[job_id]:
            item["audio_path"] = "/nowhere" + item["audio_path"].removeprefix("/nowhere")
        return job

    bulk.wire.look = look  # type: ignore[method-assign]
    bulk.wire.audio = lambda job_id, custom_id: speech(f"Line {custom_id[1:]}.")  # type: ignore[method-assign]
    bulk.again(in_place=True)

    assert len(bulk.audio()) == 3
    notes = [line for line in bulk.said.getvalue().splitlines() if line.startswith("--in-place")]
    assert len(notes) == 1
    assert "can't be read here (No such file or directory); fetching audio over HTTP" in notes[0]


# --- running again -----------------------------------------------------------


def test_a_second_run_speaks_nothing_twice_and_needs_no_server(bulk: Bulk) -> None:
    bulk.speak(numbered(5))
    first = bulk.rows("results.csv")
    before = {path: path.stat().st_mtime_ns for path in (bulk.out / "audio").iterdir()}
    asked = len(bulk.wire.requests)

    summary = bulk.again()

    assert len(bulk.wire.requests) == asked
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert bulk.rows("results.csv") == first
    assert (summary.spoken_before, summary.audio_seconds) == (5, 0)
    assert next(summary.lines()) == "5 of 5 rows spoken, 5 of them by an earlier run."


def test_a_changed_row_is_spoken_again_and_never_passed_off_as_new(bulk: Bulk) -> None:
    bulk.speak("id,text\n7,First.\n8,Third.\n")
    bulk.speak("id,text\n7,First.\n8,Another third.\n")

    assert bulk.wire.asked == {"7": 1, "8": 2}
    assert bulk.audio() == {"7.wav": speech("First."), "8.wav": speech("Another third.")}


def test_a_changed_row_that_fails_is_not_told_of_as_spoken(bulk: Bulk) -> None:
    bulk.speak("id,text\n8,Third.\n")
    bulk.speak("id,text\n8,Third [fail].\n")

    assert bulk.rows("results.csv") == []
    assert bulk.codes() == {"8": "synthesis_failed"}


def test_another_format_takes_the_place_of_the_former_file(bulk: Bulk) -> None:
    bulk.speak("id,text,response_format\na,Hello.,\n")
    bulk.speak("id,text,response_format\na,Hello.,flac\n")

    assert set(bulk.audio()) == {"a.flac"}


def spoil(bulk: Bulk) -> None:
    """Remove a file, cut another and change one byte of a third."""
    (bulk.out / "audio" / "n1.wav").unlink()
    (bulk.out / "audio" / "n2.wav").write_bytes(b"cut")
    whole = bulk.audio()["n3.wav"]
    (bulk.out / "audio" / "n3.wav").write_bytes(whole[:-1] + b"?")


def test_a_file_that_is_gone_cut_or_changed_is_fetched_again_not_spoken_again(bulk: Bulk) -> None:
    bulk.speak(numbered(5))
    spoil(bulk)

    summary = bulk.again()

    assert bulk.wire.created == [["n0", "n1", "n2", "n3", "n4"]]
    assert bulk.wire.fetched == {"n0": 1, "n1": 2, "n2": 2, "n3": 2, "n4": 1}
    assert bulk.audio() == {f"n{number}.wav": speech(f"Line {number}.") for number in range(5)}
    assert (summary.spoken_before, summary.failures) == (2, ())


def test_a_file_that_the_server_has_no_more_is_spoken_again(bulk: Bulk) -> None:
    bulk.speak(numbered(5))
    spoil(bulk)
    audio = bulk.wire.audio

    def spoilt(job_id: str, custom_id: str) -> bytes:
        return b"?" if (job_id, custom_id) == ("job_0", "n2") else audio(job_id, custom_id)

    bulk.wire.audio = spoilt  # type: ignore[method-assign]
    first = bulk.again()
    bulk.wire.jobs.clear()
    spoil(bulk)
    second = bulk.again()

    assert bulk.wire.created[1:] == [["n2"], ["n1", "n2", "n3"]]
    assert bulk.audio() == {f"n{number}.wav": speech(f"Line {number}.") for number in range(5)}
    assert (first.failures, second.failures) == ((), ())


def test_a_file_that_is_the_servers_own_and_was_changed_is_spoken_again(bulk: Bulk) -> None:
    bulk.speak(numbered(3), in_place=True)
    with (bulk.out / "audio" / "n1.wav").open("r+b") as shared:
        shared.write(b"?")

    summary = bulk.again(in_place=True)

    assert bulk.wire.created == [["n0", "n1", "n2"], ["n1"]]
    assert bulk.audio()["n1.wav"] == speech("Line 1.")
    assert summary.failures == ()


def test_errors_can_be_fed_back_as_input_of_another_folder(bulk: Bulk, tmp_path: Path) -> None:
    bulk.speak("text,voice\nOne.,\nTwo.,nobody\n")
    bulk.wire.voices.add("nobody")
    bulk.source, bulk.out = bulk.out / "errors.csv", tmp_path / "retried"

    bulk.again()

    assert set(bulk.audio()) == {"row-000002.wav"}
    assert [row["id"] for row in bulk.rows("results.csv")] == ["row-000002"]
    assert bulk.rows("errors.csv") == []


def test_a_header_alone_has_nothing_to_speak_and_needs_no_server(bulk: Bulk) -> None:
    summary = bulk.speak("id,text\n")

    assert list(summary.lines()) == ["The table has a header and no rows: nothing to speak."]
    assert (bulk.rows("results.csv"), bulk.rows("errors.csv")) == ([], [])
    assert (bulk.said.getvalue(), bulk.wire.requests) == ("", [])


# --- another table -----------------------------------------------------------


def refuse(bulk: Bulk, count: int) -> None:
    """Run, and see that it changes nothing."""
    results, asked = bulk.rows("results.csv"), len(bulk.wire.requests)
    with pytest.raises(
        FolderError, match=rf"; {count} of them are not in .*another --out"
    ) as error:
        bulk.again()

    assert "\n" not in error.value.message
    assert bulk.rows("results.csv") == results
    assert len(bulk.wire.requests) == asked


def test_another_table_is_refused_where_it_would_drop_results(bulk: Bulk, tmp_path: Path) -> None:
    bulk.speak("text\nOne.\nTwo.\n")
    bulk.source = tmp_path / "other.csv"
    bulk.source.write_text("text\nOne.\nOf another story.\nThree.\n")

    refuse(bulk, 1)


def test_the_errors_of_a_folder_are_refused_by_it(bulk: Bulk) -> None:
    bulk.speak("id,text\na,One.\nb,Two.\nc,Bad [fail].\n")
    bulk.source = bulk.out / "errors.csv"

    refuse(bulk, 2)


def test_another_table_is_taken_where_it_drops_nothing(bulk: Bulk, tmp_path: Path) -> None:
    bulk.speak(numbered(2) + "c,Bad [fail].\n")
    bulk.source = tmp_path / "longer.csv"

    summary = bulk.speak(numbered(4))

    assert bulk.wire.created[1:] == [["n2", "n3"]]
    assert (summary.spoken_before, summary.failures) == (2, ())


def test_a_table_may_be_edited_and_the_display_is_told(bulk: Bulk) -> None:
    bulk.speak(numbered(4))

    bulk.speak("id,text\nn0,Line 0.\nn1,Edited.\n")

    assert [row["id"] for row in bulk.rows("results.csv")] == ["n0", "n1"]
    assert set(bulk.audio()) == {f"n{number}.wav" for number in range(4)}
    said = bulk.said.getvalue()
    assert "Edited since they were spoken, to be spoken again: 1.\n" in said
    assert "Spoken, and taken out of the table since: 2. Their audio stays" in said


def test_a_table_that_keeps_none_of_its_rows_is_another_table(bulk: Bulk) -> None:
    bulk.speak(numbered(2))
    bulk.source.write_text("id,text\nx,New.\n")

    refuse(bulk, 2)


def test_a_folder_that_was_moved_goes_on_where_it_is(bulk: Bulk, tmp_path: Path) -> None:
    bulk.speak(numbered(2))
    bulk.out = bulk.out.rename(tmp_path / "moved")

    bulk.again()

    assert set(bulk.wire.asked.values()) == {1}
    paths = [row["tts_path"] for row in bulk.rows("results.csv")]
    assert paths == [str(bulk.out / "audio" / f"n{number}.wav") for number in range(2)]


# --- a run that was cut off --------------------------------------------------


def cut_off(bulk: Bulk, text: str) -> None:
    """Run until the server dies in the middle, and has come back by the next run."""
    bulk.source.write_text(text)
    with (
        OutputFolder(bulk.out) as folder,
        Manifest(folder.manifest_path) as manifest,
        Client(bulk.wire.url, patience_seconds=0.3) as client,
    ):
        plan = make_plan(read_table(bulk.source), manifest.history, folder.holds)
        run = BulkRun(client, folder, manifest, plan, Silence())
        with pytest.raises(ServerUnreachableError):
            run.run()
    bulk.wire.drops = 0


def die_after(wire: WireDouble, downloads: int) -> None:
    """Let the server fall silent once it has sent so many audio files."""
    audio = wire.audio

    def counted(job_id: str, custom_id: str) -> bytes:
        if sum(wire.fetched.values()) == downloads - 1:
            wire.drops = 1_000_000
        return audio(job_id, custom_id)

    wire.audio = counted  # type: ignore[method-assign]


def test_a_run_that_was_cut_off_takes_up_its_jobs_again(bulk: Bulk) -> None:
    bulk.wire.items_per_look = 10
    die_after(bulk.wire, 17)
    cut_off(bulk, numbered(40))
    recorded = {line["id"] for line in bulk.manifest() if "id" in line}
    before = {id: (bulk.out / "audio" / f"{id}.wav").stat().st_mtime_ns for id in recorded}

    summary = bulk.again()

    lines = [line for line in bulk.manifest() if "id" in line]
    assert recorded == {f"n{number}" for number in range(10)}
    assert set(bulk.wire.asked.values()) == {1}
    assert len(lines) == 40
    assert len({str(line["id"]) for line in lines}) == 40
    assert set(bulk.audio()) == {f"n{number}.wav" for number in range(40)}
    assert {id: (bulk.out / "audio" / f"{id}.wav").stat().st_mtime_ns for id in recorded} == before
    assert (summary.spoken_before, summary.failures) == (10, ())


def test_rows_of_a_job_that_is_gone_after_a_cut_are_asked_for_again(bulk: Bulk) -> None:
    die_after(bulk.wire, 5)
    cut_off(bulk, numbered(20))
    bulk.wire.jobs.clear()

    summary = bulk.again()

    assert summary.failures == ()
    assert len(bulk.wire.created) == 2
    assert set(bulk.audio()) == {f"n{number}.wav" for number in range(20)}


def test_a_cut_run_tells_what_it_has_not_spoken(bulk: Bulk) -> None:
    bulk.wire.instead.append(Answer(200, {"data": []}))
    refusal = Answer(400, problem(400, "bad_request", "Not like this."))
    bulk.wire.instead.append(refusal)

    with pytest.raises(ServerProblemError):
        bulk.speak("id,text\na,Hello.\nb,...\n")

    assert bulk.codes() == {"a": "not_spoken", "b": "no_speakable_text"}

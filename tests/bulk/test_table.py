"""Reading CSV files, good and bad."""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.bulk.errors import TableError
from voicemill.bulk.table import Table, read_table


def table_of(folder: Path, data: bytes, delimiter: str = ",") -> Table:
    path = folder / "lines.csv"
    path.write_bytes(data)
    return read_table(path, delimiter=delimiter)


def faults_of(folder: Path, data: bytes, delimiter: str = ",") -> list[str]:
    with pytest.raises(TableError) as caught:
        table_of(folder, data, delimiter)
    return [str(fault) for fault in caught.value.faults]


def texts(table: Table) -> dict[str, str]:
    return {row.id: row.request["input"] for row in table.rows}


# --- files that are fine -----------------------------------------------------


def test_a_byte_order_mark_does_not_hide_the_first_column(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"\xef\xbb\xbfid,text\r\n1,Hello there\r\n2,Second row\r\n")

    assert texts(table) == {"1": "Hello there", "2": "Second row"}


def test_column_names_are_trimmed_and_may_be_in_any_case(tmp_path: Path) -> None:
    table = table_of(tmp_path, b" ID , Text,VOICE\n1,Hello,heart\n")

    assert table.columns == ("ID", "Text", "VOICE")
    assert table.rows[0].request == {"input": "Hello", "voice": "heart"}


def test_unknown_columns_are_carried_and_our_own_are_dropped(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"id,note,text,TTS_line\n1,keep me,Hello,7\n")

    assert table.columns == ("id", "note", "text")
    assert table.rows[0].cells == ("1", "keep me", "Hello")


def test_rows_without_an_id_are_numbered_and_the_id_is_carried(tmp_path: Path) -> None:
    without = table_of(tmp_path, b"text\nHello\nThere\n")
    partly = table_of(tmp_path, b"text,id\nHello,\nThere,b\n")

    assert without.columns == ("id", "text")
    assert [row.cells for row in without.rows] == [("row-000001", "Hello"), ("row-000002", "There")]
    assert [row.cells for row in partly.rows] == [("Hello", "row-000001"), ("There", "b")]


def test_line_and_record_part_ways_at_a_quoted_newline_and_a_blank_line(tmp_path: Path) -> None:
    table = table_of(tmp_path, b'id,text\n\n1,"one\r\ntwo"\r\n\r\n2,three\n')

    assert [(row.line, row.record) for row in table.rows] == [(3, 1), (6, 2)]
    assert texts(table) == {"1": "one\r\ntwo", "2": "three"}


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_every_line_ending_is_read(tmp_path: Path, ending: bytes) -> None:
    table = table_of(tmp_path, ending.join([b"id,text", b"1,Hello", b"2,There"]))

    assert texts(table) == {"1": "Hello", "2": "There"}


def test_an_inch_mark_in_a_bare_cell_is_text(tmp_path: Path) -> None:
    table = table_of(tmp_path, b'id,text\n1,20" screen\n2,fine\n')

    assert texts(table) == {"1": '20" screen', "2": "fine"}


def test_a_cell_beyond_the_csv_modules_own_limit_is_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()

    table = table_of(tmp_path, b"id,text\n1,short\n2," + b"word " * 26215 + b"\n3,short\n")

    assert [len(row.request["input"]) for row in table.rows] == [5, 131_075, 5]
    assert csv.field_size_limit() == limit


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"id,text\n\n")

    assert (table.columns, table.rows) == (("id", "text"), ())
    assert table.source == str(tmp_path / "lines.csv")


def test_other_delimiters_are_read_when_named(tmp_path: Path) -> None:
    assert texts(table_of(tmp_path, b"id;text\n1;Hello, world\n", ";")) == {"1": "Hello, world"}
    assert texts(table_of(tmp_path, b"id\ttext\n1\tHello\n", "\t")) == {"1": "Hello"}


# --- files that can't be used ------------------------------------------------


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is empty; its first line must name the columns."),
        (b"\n\n", "is empty; its first line must name the columns."),
        (b"\xef\xbb\xbf", "is empty; its first line must name the columns."),
        (b"id,words\n1,a\n", "line 1: column 'text' not found; found 'id,words'."),
        (
            b"id;text\n1;Hello, world\n",
            "line 1: column 'text' not found; found 'id;text'. The cells seem to be separated "
            "by ';': use --delimiter ';'.",
        ),
        (
            b"id\ttext\n1\ta\n",
            "line 1: column 'text' not found; found 'id\\ttext'. The cells seem to be separated "
            "by tab: use --delimiter tab.",
        ),
        (b"id,text,Text\n1,a,b\n", "line 1: column 'text' is there 2 times."),
        (b"note,text,note\n1,a,b\n", "line 1: column 'note' is there 2 times."),
        (b"id,,text\n1,,b\n", "line 1: column 2 has no name."),
        (
            b'id,text\n1,"20 inch screen\n2,fine\n3,fine\n',
            "line 2 (record 1): a quote opened in this record is never closed.",
        ),
        (b"id,text\n1,ok\n2,a\0b\n", "line 3 (record 2): holds a NUL character; is this a "),
        ("id,text\n1,Hi\n".encode("utf-16-le"), "line 1: holds a NUL character; is this a "),
        ("id,text\n1,Hi\n".encode("utf-16"), "is UTF-16; save it as UTF-8."),
        (
            b"id,text\n1,ok\n2,caf\xe9 noir\n",
            "line 3: is not UTF-8: byte 0xe9 at offset 18; save it as UTF-8.",
        ),
        (
            b"\xef\xbb\xbfid,text\n1,caf\xe9 noir\n",
            "line 2: is not UTF-8: byte 0xe9 at offset 16; save it as UTF-8.",
        ),
        (
            b'id,text\n7,"a\nb"\n7,second\n8,third\n',
            "line 4 (record 2): duplicate id 7, lines 2 and 4.",
        ),
        (
            b"id,text\n,first\nrow-000001,second\n",
            "line 3 (record 2): duplicate id row-000001, lines 2 and 3.",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(
    tmp_path: Path, data: bytes, fault: str
) -> None:
    faults = faults_of(tmp_path, data)

    assert len(faults) == 1
    assert faults[0].startswith(fault)


def test_a_quote_that_is_not_doubled_never_alters_text_in_silence(tmp_path: Path) -> None:
    one_line = faults_of(tmp_path, b'id,text\n1,"He said "hi" loudly"\n2,ok\n')
    two_lines = faults_of(tmp_path, b'id,text\n1,ok\n2,"20 inch\n3,"fine"\n')

    assert one_line[0].startswith("line 2 (record 1): a quote inside a quoted cell must be doubled")
    assert two_lines[0].startswith("line 3 (record 2): ")
    assert "runs on to line 4" in two_lines[0]


def test_ragged_records_are_all_named(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, b'id,text\n1,Hello, world\n2,"a\nb"\n3\n')

    assert [fault.split(";")[0] for fault in faults] == [
        "line 2 (record 1): has 3 cells where the header has 2",
        "line 5 (record 3): has 1 cells where the header has 2",
    ]


def test_a_long_list_of_faults_is_cut_short_for_the_reader(tmp_path: Path) -> None:
    with pytest.raises(TableError) as caught:
        table_of(tmp_path, b"id,text\n" + b"1,a,b\n" * 100)

    lines = caught.value.message.splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("lines.csv: line 2 (record 1): ")
    assert lines[-1] == "lines.csv: and 80 more faults."


def test_a_file_that_is_not_there_or_is_a_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"none\.csv: can't be read: No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(TableError, match="can't be read: Is a directory"):
        read_table(tmp_path)


# --- rows that can't be used -------------------------------------------------


@pytest.mark.parametrize("text", ["！？。，、……——", " \t\u3000\u00a0", "...", "", "… — !"])
def test_text_with_nothing_to_say_fails_its_row_alone(tmp_path: Path, text: str) -> None:
    table = table_of(tmp_path, f'id,text\n1,Good\n2,"{text}"\n3,Also good\n'.encode())

    faults = [row.fault.code if row.fault else None for row in table.rows]
    assert faults == [None, "no_speakable_text", None]


@pytest.mark.parametrize(
    "unsafe",
    ["a/b", "../evil", "/etc/x", "..", ".", "a:b", " lead", "e\u0301", "\u00e9", "x" * 65, "<b>"],
)
def test_an_id_that_is_no_file_name_fails_its_row_alone(tmp_path: Path, unsafe: str) -> None:
    table = table_of(tmp_path, f"id,text\n{unsafe},Hello\nb,Hello\n".encode())

    first, second = table.rows
    assert first.fault is not None
    assert first.fault.code == "invalid_custom_id"
    assert first.cells == (unsafe, "Hello")
    assert second.fault is None


def test_ids_that_differ_only_by_case_are_a_reported_collision(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"id,text\nA,One\na,Two\nb,Three\n")

    fault = table.rows[1].fault
    assert fault is not None
    assert fault.code == "duplicate_custom_id"
    assert fault.message.startswith("id a and id A on line 2 differ only by case")
    assert [row.id for row in table.rows if not row.fault] == ["A", "b"]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("speed", "fast", "invalid_value"),
        ("speed", "0", "invalid_value"),
        ("speed", "4.01", "invalid_value"),
        ("speed", "nan", "invalid_value"),
        ("speed", "inf", "invalid_value"),
        ("speed", '"1,5"', "invalid_value"),
        ("seed", "-1", "invalid_value"),
        ("seed", "1.5", "invalid_value"),
        ("seed", "9" * 5000, "invalid_value"),
        ("seed", "\u0663", "invalid_value"),
        ("response_format", "aiff", "unsupported_feature"),
    ],
)
def test_a_value_that_cannot_be_used_fails_its_row_alone(
    tmp_path: Path, column: str, value: str, code: str
) -> None:
    table = table_of(tmp_path, f"id,text,{column}\n1,Bad,{value}\n2,Good,\n".encode())

    bad, good = table.rows
    assert bad.fault is not None
    assert bad.fault.code == code
    assert column in bad.fault.message
    assert good.request == {"input": "Good"}


def test_every_column_reaches_the_request(tmp_path: Path) -> None:
    header = b"text,id,voice,model,language,speed,seed,instructions,response_format\n"
    table = table_of(tmp_path, header + b"Hi,a, heart,tone ,en-GB,1.5,7, Slowly. ,FLAC\n")

    assert table.rows[0].to_input() == {
        "custom_id": "a",
        "input": "Hi",
        "voice": "heart",
        "model": "tone",
        "language": "en-GB",
        "speed": 1.5,
        "seed": 7,
        "instructions": " Slowly. ",
        "response_format": "flac",
    }


# --- any bytes at all --------------------------------------------------------


@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_table_or_a_table_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(b"id,text\n" + data)

    # Any other exception would fail the test.
    with suppress(TableError):
        table = read_table(path)
        assert len({row.id for row in table.rows}) == len(table.rows)


@given(
    cells=st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1
    )
)
def test_text_written_by_the_csv_module_arrives_unchanged(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "written.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n", "text"])
        writer.writerows(enumerate(cells))

    assert [row.cells[2] for row in read_table(path).rows] == cells

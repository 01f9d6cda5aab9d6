"""What the benchmarks of engines share."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from benchmarks.parts.alone import ProcessLostError, alone, peak_bytes, peak_of
from benchmarks.parts.tables import show, shown
from voicemill.errors import SettingsError


def refuse() -> None:
    """Raise an error of ours."""
    raise SettingsError("No.")


def test_a_function_has_a_process_of_its_own() -> None:
    assert alone(os.getppid) == os.getpid()


def test_an_error_of_ours_comes_back_from_there() -> None:
    with pytest.raises(SettingsError, match=r"^No\.$"):
        alone(refuse)


def test_a_process_that_dies_or_hangs_is_named_so_and_gone() -> None:
    with pytest.raises(ProcessLostError, match=r"^ended with status 3$"):
        alone(os._exit, 3)
    with pytest.raises(ProcessLostError, match=r"^took longer than 0\.1 s$"):
        alone(time.sleep, 3600, seconds=0.1)


def test_a_peak_is_read_as_the_kernel_tells_it() -> None:
    assert peak_of("Name:\tpython\nVmPeak:\t 9000 kB\nVmHWM:\t 2048 kB\nVmRSS:\t 1 kB\n") == 2 << 20
    one = peak_bytes([os.getpid()])
    assert one > 1 << 20
    assert peak_bytes([os.getpid(), os.getpid()]) >= 2 * one


def test_a_cell_has_a_figure_a_word_or_nothing() -> None:
    assert (shown(1.26), shown(1.26, 0), shown(1.256, 2)) == ("1.3", "1", "1.26")
    assert (shown("3.7 %"), shown(None)) == ("3.7 %", "-")


def test_a_table_is_printed_and_put_where_a_page_has_room_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- figures one -->\nold\n<!-- end -->\nAfter.\n<!-- end -->\n")
    written = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    show("one", ["a", "b"], [["1", "2"]], page)
    show("two", ["a"], [["3"]], page)
    assert page.read_text() == (
        f"Before.\n<!-- figures one -->\n\n{written}\n\n<!-- end -->\nAfter.\n<!-- end -->\n"
    )
    assert capsys.readouterr().out == f"\n{written}\n\n| a |\n| --- |\n| 3 |\n"

"""What a child counts of itself."""

from __future__ import annotations

import pytest

from voicemill.errors import NoSpeakableTextError, SynthesisError
from voicemill.settings import Settings
from worker.engines.tone import ToneEngine
from worker.vitals import Tally, Vitals

FAILS = SynthesisError("The engine failed.")
REFUSES = NoSpeakableTextError("Nothing to speak.")
SPEAKS = "audio"


@pytest.mark.parametrize(
    ("calls", "errors"),
    [
        ([[(0, FAILS)], [(1, FAILS)], [(2, FAILS)]], 3),
        ([[(0, FAILS), (1, FAILS), (2, FAILS)]], 3),
        ([[(0, FAILS)], [(0, FAILS)], [(0, FAILS)]], 1),
        ([[(0, FAILS)], [(1, FAILS)], [(0, FAILS)], [(1, FAILS)]], 2),
        ([[(0, FAILS)], [(1, FAILS)], [(2, SPEAKS)], [(3, FAILS)]], 1),
        ([[(0, FAILS)], [(1, FAILS), (2, SPEAKS)]], 0),
        ([[(0, FAILS)], [(1, REFUSES), (2, FAILS)]], 2),
    ],
    ids=[
        "each",
        "one call",
        "one again",
        "two by turns",
        "one spoken",
        "half a call",
        "a bad text",
    ],
)
def test_items_for_which_the_engine_failed_are_counted_once_each_until_it_speaks(
    calls: list[list[tuple[int, object]]], errors: int
) -> None:
    tally = Tally()
    for call in calls:
        tally.note_call("job_1", call)
    assert tally.errors_in_a_row == errors
    tally.clear_errors()
    assert tally.errors_in_a_row == 0


class SparingEngine(ToneEngine):
    """Says how many times it went on in smaller batches."""

    failures = 0

    def memory_failures(self) -> int:
        return self.failures


def test_an_engine_that_runs_out_of_memory_again_and_again_is_short_of_it() -> None:
    engine = SparingEngine()
    vitals = Vitals(Settings(engine="tone"), engine)
    found = []
    for engine.failures in range(4):
        found.append(vitals.measure().out_of_memory)
    assert found == [False, False, True, True]
    assert not Vitals(Settings(engine="tone"), ToneEngine()).measure().out_of_memory

"""Wall-clock schedules, with daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicemill.errors import SettingsError
from worker.schedule import Schedule

NIGHTLY = Schedule.parse("0 2 * * * Europe/Berlin")


def utc(text: str) -> float:
    """Seconds since the epoch of a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def nights(after: str, count: int) -> list[str]:
    """The next times of the nightly schedule, in UTC."""
    times, at = [], utc(after)
    for _ in range(count):
        at = NIGHTLY.next_after(at)
        times.append(datetime.fromtimestamp(at, UTC).strftime("%d %H:%M"))
    return times


def test_a_schedule_keeps_its_time_zone_in_winter_and_summer() -> None:
    assert nights("2026-01-10 12:00", 2) == ["11 01:00", "12 01:00"]
    assert nights("2026-07-10 12:00", 2) == ["11 00:00", "12 00:00"]


def test_a_time_that_a_night_lacks_comes_once_when_the_clock_jumps() -> None:
    assert nights("2026-03-28 12:00", 3) == ["29 01:00", "30 00:00", "31 00:00"]


def test_the_next_time_is_later_also_in_an_hour_that_comes_twice() -> None:
    half_past_two = Schedule.parse("30 2 * * * Europe/Berlin")
    # Ten past two by the clock on the wall, for the second time.
    at = utc("2026-10-25 01:10")
    assert half_past_two.next_after(at) == utc("2026-10-26 01:30")


def test_a_time_that_a_night_has_twice_comes_once() -> None:
    assert nights("2026-10-24 12:00", 3) == ["25 00:00", "26 01:00", "27 01:00"]


@given(st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)))
def test_the_next_time_is_later_and_within_a_day_and_an_hour(moment: datetime) -> None:
    at = moment.replace(tzinfo=UTC).timestamp()
    assert 0 < NIGHTLY.next_after(at) - at <= timedelta(hours=25).total_seconds()


def test_without_a_zone_it_is_the_machine_s() -> None:
    at = datetime.fromtimestamp(Schedule.parse("30 4 * * *").next_after(utc("2026-01-10 12:00")))
    assert (at.hour, at.minute) == (4, 30)


@pytest.mark.parametrize(
    "text", ["2 a.m.", "0 25 * * *", "0 2 * *", "0 2 * * * Mars/Base", "0 2 * * * UTC twice", "*"]
)
def test_what_is_no_schedule_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(SettingsError, match=r"VOICEMILL_RECYCLE_AT=.*five cron fields"):
        Schedule.parse(text)

"""A wall-clock schedule in cron form, with its time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from tzlocal import get_localzone

from voicemill.errors import SettingsError

CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """``0 2 * * *``, in local time; or ``0 2 * * * Europe/Berlin``.

    Daylight saving is treated as Debian's cron does: a time that a day lacks comes when the
    clock jumps, one that it has twice comes once.
    """

    cron: str
    zone: tzinfo

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read a setting; raises ``SettingsError`` for what is no schedule."""
        words = text.split()
        cron, names = " ".join(words[:CRON_FIELDS]), words[CRON_FIELDS:]
        try:
            if len(names) > 1:
                raise ValueError("too many fields")
            zone = ZoneInfo(names[0]) if names else get_localzone()
            next(CronSim(cron, datetime.now(zone)))
        except StopIteration as error:
            raise SettingsError(
                f"VOICEMILL_RECYCLE_AT={text!r} can't be used: such a day never comes."
            ) from error
        except (CronSimError, ValueError, KeyError, OSError) as error:
            raise SettingsError(
                f"VOICEMILL_RECYCLE_AT={text!r} can't be used ({error}): give five cron fields and "
                "maybe a time zone, such as '0 2 * * * Europe/Berlin'."
            ) from error
        return cls(cron, zone)

    def next_after(self, at: float) -> float:
        """The first time after ``at``; both in seconds since the epoch."""
        return next_time(self, at)

    def __str__(self) -> str:
        return f"'{self.cron} {self.zone}'"


@lru_cache(maxsize=8)
def next_time(schedule: Schedule, at: float) -> float:
    """``Schedule.next_after``, worked out once: a child asks each second from the same moment."""
    moment = datetime.fromtimestamp(at, schedule.zone)
    times = (one.timestamp() for one in CronSim(schedule.cron, moment))
    # In an hour that comes twice, the next time by the clock on the wall may be gone by.
    return next(time for time in times if time > at)

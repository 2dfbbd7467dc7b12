"""Cron schedules: when the next run of a chain begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .options import check_text

if TYPE_CHECKING:
    from cronsim import CronSim

#: Names for schedules that people write often.
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def check_schedule(cron: object, time_zone: object, now: int) -> tuple[str, str]:
    """Return a proper schedule and its time zone.

    Args:
        cron: Five fields (minute, hour, day, month, weekday), six (seconds first), or a nickname.
        time_zone: Its name, such as ``Europe/Berlin``.
        now: The wall clock, microseconds.

    Raises:
        ImportError: The package that reads schedules is not installed.
        TypeError: One of them is no string.
        ValueError: It is no schedule, it never comes, or there is no such time zone.
    """
    expression = check_text("cron_schedule", cron)
    zone = check_text("time_zone", time_zone)
    next_time(expression, zone, now)
    return expression, zone


def next_time(cron: str, time_zone: str, after: int) -> int:
    """The first time of a schedule after a moment, both in microseconds since the epoch.

    Where the clocks change it does what the cron of Debian does: a fixed time that they skip comes right behind the
    gap, one that they have twice comes once.

    Raises:
        ImportError: The package that reads schedules is not installed.
        ValueError: It is no schedule, it never comes, or there is no such time zone.
    """
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"time_zone {time_zone!r} is not known here: use a name such as 'Europe/Berlin' (where the system has no "
            f"time zones, pip install tzdata)"
        ) from None
    moment = (_EPOCH + timedelta(microseconds=after)).astimezone(zone)
    times = _times(NICKNAMES.get(cron, cron), cron, moment)
    found = next(times, None)
    if found is None:
        raise ValueError(f"cron_schedule {cron!r} never comes")
    return (found.astimezone(UTC) - _EPOCH) // _MICROSECOND


def _times(expression: str, cron: str, moment: datetime) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ImportError(
            "cron_schedule needs the package cronsim in the environment of the runtime: "
            "pip install 'everact[schedules]'",
            name="cronsim",
        ) from error
    try:
        return CronSim(expression, moment)
    except CronSimError as error:
        known = ", ".join(NICKNAMES)
        raise ValueError(
            f"cron_schedule must be five fields such as '*/5 * * * *' (minute, hour, day, month, weekday), six with "
            f"seconds first, or one of {known}, not {cron!r}: {error}"
        ) from None

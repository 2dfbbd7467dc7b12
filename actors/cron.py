"""Cron schedules: when the next run of a chain begins."""

from __future__ import annotations

import re
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
#: How crontabs name the zone of a schedule.
_ZONE = re.compile(r"\s*(CRON_)?TZ\s*=\s*(?P<zone>\S*)")
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
        ValueError: It is no schedule, it names its zone itself, it never comes, or there is no such time zone.
    """
    expression = check_text("cron_schedule", cron)
    if found := _ZONE.match(expression):
        raise ValueError(
            f"cron_schedule {cron!r}: the zone is an option of its own, "
            f"time_zone={found['zone'] or 'Europe/Berlin'!r}, and cron_schedule has the fields alone"
        )
    zone = check_text("time_zone", time_zone)
    next_time(expression, zone, now)
    return expression, zone


def next_time(cron: str, time_zone: str, after: int) -> int:
    """The first time of a schedule after a moment, both in microseconds since the epoch.

    Where the clocks change it does what the cron of Debian does. A schedule of fixed times, whose fields of minutes and
    of hours both begin with no ``*``: a time that the clocks skip comes right behind the gap, one that they have twice
    comes the first time only. Any other goes by the hands of the clock: what they skip is left out, what they show
    twice comes twice.

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
    expression = NICKNAMES.get(cron, cron)
    moment = (_EPOCH + timedelta(microseconds=after)).astimezone(zone)
    if _has_fixed_times(expression):
        moment = moment.replace(tzinfo=None)
    for shown in _times(expression, cron, moment):
        found = (_real(shown, zone).astimezone(UTC) - _EPOCH) // _MICROSECOND
        if found > after:  # not one that the clocks show again just now
            return found
    raise ValueError(f"cron_schedule {cron!r} never comes")


def _has_fixed_times(expression: str) -> bool:
    """Whether a schedule says at which times of the day, and not how often."""
    fields = expression.split()
    return len(fields) in (5, 6) and not any(field.startswith("*") for field in fields[-5:-3])


def _real(shown: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks of a zone first show a time; of one that they skip, the first moment behind the gap."""
    if shown.tzinfo is not None:
        return shown
    moment = shown.replace(tzinfo=zone)
    while moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != shown:
        shown += timedelta(minutes=1)
        moment = shown.replace(tzinfo=zone)
    return moment


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

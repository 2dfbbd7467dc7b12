"""When a schedule comes where clocks change: spring gaps, autumn folds, zones with other steps than an hour."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, tick

from everact import workflow
from everact.actors.cron import NICKNAMES, next_time
from everact.journal.memory_store import MemoryJournal

BERLIN = "Europe/Berlin"  # 2026: 29 March 02:00 -> 03:00, 25 October 03:00 -> 02:00
NEW_YORK = "America/New_York"  # 2026: 8 March 02:00 -> 03:00, 1 November 02:00 -> 01:00
LORD_HOWE = "Australia/Lord_Howe"  # 2026: 4 October 02:00 -> 02:30, 5 April 02:00 -> 01:30
APIA = "Pacific/Apia"  # had no 30 December 2011

MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micro(moment):
    return (moment - EPOCH) // MICROSECOND


def times(cron, zone, start, count):
    """The next so many times after a moment, given without its zone, as the clocks there show them, with the offset."""
    at = micro(datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)))
    found = []
    for _ in range(count):
        following = next_time(cron, zone, at)
        assert following > at
        at = following
        found.append(f"{(EPOCH + at * MICROSECOND).astimezone(ZoneInfo(zone)):%d %H:%M:%S%z}"[:-2])
    return found


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_that_is_skipped_comes_right_behind_the_gap(cron):
    assert times(cron, BERLIN, "2026-03-28T00:00", 3) == [
        "28 02:30:00+01",
        "29 03:00:00+02",
        "30 02:30:00+02",
    ]


@pytest.mark.parametrize("cron", ["30 2 * * *", "0 30 2 * * *"])
def test_a_fixed_time_that_comes_twice_is_taken_the_first_time(cron):
    assert times(cron, BERLIN, "2026-10-24T12:00", 2) == ["25 02:30:00+02", "26 02:30:00+01"]


@pytest.mark.parametrize("minute", [0, 10, 30, 59])
def test_who_asks_while_the_clocks_show_a_time_again_gets_the_next_day(minute):
    """The run of the first time has taken until then; or somebody starts the schedule just now."""
    moment = datetime(2026, 10, 25, 2, minute, tzinfo=ZoneInfo(BERLIN), fold=1)
    assert EPOCH + next_time("30 2 * * *", BERLIN, micro(moment)) * MICROSECOND == datetime(
        2026, 10, 26, 1, 30, tzinfo=UTC
    )


def test_several_fixed_times_come_each_once():
    cron = "15,45 1-3 * * *"
    assert times(cron, BERLIN, "2026-10-25T00:00", 6) == [
        "25 01:15:00+02",
        "25 01:45:00+02",
        "25 02:15:00+02",
        "25 02:45:00+02",
        "25 03:15:00+01",
        "25 03:45:00+01",
    ]
    assert times(cron, BERLIN, "2026-03-29T00:00", 5) == [
        "29 01:15:00+01", "29 01:45:00+01",
        "29 03:00:00+02",  # both that were skipped, together
        "29 03:15:00+02", "29 03:45:00+02",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        ("30 * * * *", ["01:30:00+01", "03:30:00+02"], ["01:30:00+02", "02:30:00+02", "02:30:00+01", "03:30:00+01"]),
        ("*/30 1-3 * * *",
         ["01:00:00+01", "01:30:00+01", "03:00:00+02", "03:30:00+02"],
         ["01:00:00+02", "01:30:00+02", "02:00:00+02", "02:30:00+02", "02:00:00+01", "02:30:00+01", "03:00:00+01"]),
        ("@hourly", ["01:00:00+01", "03:00:00+02"], ["01:00:00+02", "02:00:00+02", "02:00:00+01", "03:00:00+01"]),
        ("0 */2 * * *", ["04:00:00+02", "06:00:00+02"], ["02:00:00+02", "02:00:00+01", "04:00:00+01"]),
    ],
)  # fmt: skip
def test_how_often_goes_by_the_hands_of_the_clock(cron, spring, autumn):
    assert [t[3:] for t in times(cron, BERLIN, "2026-03-29T00:30", len(spring))] == spring
    assert [t[3:] for t in times(cron, BERLIN, "2026-10-25T00:30", len(autumn))] == autumn


def test_the_day_begins_and_ends_with_its_own_offset():
    assert times("@daily", NEW_YORK, "2026-03-08T00:00", 2) == ["09 00:00:00-04", "10 00:00:00-04"]
    assert times("@daily", NEW_YORK, "2026-10-31T12:00", 3) == [
        "01 00:00:00-04",
        "02 00:00:00-05",
        "03 00:00:00-05",
    ]
    assert times("30 1 * * *", NEW_YORK, "2026-10-31T12:00", 2) == ["01 01:30:00-04", "02 01:30:00-05"]
    assert times("30 2 * * *", NEW_YORK, "2026-03-07T12:00", 2) == ["08 03:00:00-04", "09 02:30:00-04"]


def test_a_step_of_half_an_hour_and_one_of_a_day():
    assert times("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", 2) == ["04 02:30:00+11", "05 02:15:00+11"]
    assert times("45 1 * * *", LORD_HOWE, "2026-04-04T12:00", 2) == ["05 01:45:00+11", "06 01:45:00+10"]
    assert times("0 12 * * *", APIA, "2011-12-29T00:00", 3) == [
        "29 12:00:00-10",
        "31 00:00:00+14",
        "31 12:00:00+14",
    ]


def test_no_clock_changes_in_utc():
    assert times("30 2 * * *", "UTC", "2026-03-28T12:00", 2) == ["29 02:30:00+00", "30 02:30:00+00"]


@pytest.mark.parametrize(
    "cron", [*NICKNAMES, "17 3 * * *", "*/7 1-4 * * *", "10 30 2 * * *", "*/20 30 2 * * 0"]
)
@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
def test_whatever_the_clocks_do_the_next_time_is_later_and_the_same_for_all_who_ask_before_it(cron, zone):
    for start in (
        datetime(2026, 3, 7),
        datetime(2026, 3, 28, 20),
        datetime(2026, 10, 3),
        datetime(2026, 10, 24, 20),
    ):
        at = micro(start.replace(tzinfo=UTC))
        for _ in range(40):
            following = next_time(cron, zone, at)
            assert following > at
            between = at + (following - at) // 2
            if between > at:
                assert next_time(cron, zone, between) == following
            at = following


@workflow.defn
class Nightly:
    def __init__(self) -> None:
        self.go = False

    @workflow.signal
    def end(self) -> None:
        self.go = True

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.go)


async def test_a_run_that_is_over_when_its_time_comes_again_is_not_followed_at_once():
    """02:30 comes twice in this night; the run of the first one ends at 02:50 by the old time, or 02:10 by the new."""
    for minutes in (20, 40):
        first = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
        clock = ManualClock(wall=micro(first) - 3600 * 1_000_000)
        async with hosted(MemoryJournal(), Nightly, clock=clock) as runtime:
            handle = await runtime.spawn(Nightly, id="n", cron_schedule="30 2 * * *", time_zone=BERLIN)
            assert (await handle.describe()).begins_at == first
            await tick(runtime, clock, 3600)
            await tick(runtime, clock, minutes * 60)
            await handle.signal(Nightly.end)
            await settled(runtime)
            seen = await runtime.ref("n").describe()
            assert seen.begins_at == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("CRON_TZ=Asia/Tokyo 0 6 * * *", "'Asia/Tokyo'"),
        ("CRON_TZ=", "'Europe/Berlin'"),
        ("  TZ=Asia/Tokyo 0 6 * * *", "'Asia/Tokyo'"),
        ("CRON_TZ = Asia/Tokyo @daily", "'Asia/Tokyo'"),
    ],
)
async def test_a_zone_inside_the_schedule_is_refused_with_the_option_that_takes_it(cron, zone):
    async with hosted(MemoryJournal(), Nightly) as runtime:
        with pytest.raises(ValueError, match="the zone is an option of its own") as caught:
            await runtime.spawn(Nightly, cron_schedule=cron)
    assert str(caught.value) == (
        f"cron_schedule {cron!r}: the zone is an option of its own, time_zone={zone}, and cron_schedule has the "
        f"fields alone"
    )

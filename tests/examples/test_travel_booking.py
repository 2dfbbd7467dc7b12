"""The travel example as a user runs it: real processes, real SIGKILL; what is left in the outside world is even."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "travel_booking" / "travel.py"
WHOLE = "left: car 120, flight 180.00, hotel 285, payment 585.00"

pytestmark = pytest.mark.slow


def travel(home: Path, *options: str, kills: bool = False) -> list[str]:
    """Run the program to its end; returns the lines that it has printed."""
    process = subprocess.run(
        [sys.executable, str(PROGRAM), *options],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == (-signal.SIGKILL if kills else 0), process.stdout
    return process.stdout.splitlines()


def test_a_trip_that_goes_well_is_whole(tmp_path: Path) -> None:
    printed = travel(tmp_path)
    assert printed[-2:] == ["booked: flight and hotel and car in Lisbon for 585.00", WHOLE]
    assert travel(tmp_path) == printed[-2:]


def test_a_trip_without_a_car_is_cheaper(tmp_path: Path) -> None:
    printed = travel(tmp_path, "--fail-at", "car")
    assert printed[-2:] == [
        "booked: flight and hotel in Lisbon for 465.00",
        "left: flight 180.00, hotel 285, payment 465.00",
    ]


@pytest.mark.parametrize("how", [(), ("--parallel",), ("--collect",)])
@pytest.mark.parametrize(("step", "undone"), [("flight", 1), ("hotel", 1), ("payment", 3), ("tickets", 4)])
def test_whatever_fails_nothing_is_left(tmp_path: Path, step: str, undone: int, how: tuple[str, ...]) -> None:
    printed = travel(tmp_path, "--fail-at", step, *how)
    assert printed[-1] == "left: nothing"
    assert printed[-3].startswith("not booked: activity ")
    assert printed[-2] == f"saga travel: {undone} of {undone} compensations done"
    cancelled = [line.partition(":")[0] for line in printed if line.startswith("cancel-")]
    assert len(cancelled) == undone
    if not how and step == "tickets":  # as the rules say
        assert cancelled[:3] == ["cancel-payment", "cancel-flight", "cancel-car"]


def test_a_compensation_that_fails_quarantines_until_it_is_released(tmp_path: Path) -> None:
    printed = travel(tmp_path, "--fail-at", "payment", "--fail-undo", "hotel")
    assert printed[-3].startswith("quarantined, somebody has to look: ")
    assert printed[-2] == "saga travel: 1 of 3 compensations done; failed hotel"
    assert "hotel 285" in printed[-1]
    printed = travel(tmp_path, "--release")
    assert printed[-1] == "left: nothing"
    assert printed[-2] == "saga travel: 3 of 3 compensations done"


def test_what_could_not_be_undone_is_named_when_the_others_are(tmp_path: Path) -> None:
    printed = travel(tmp_path, "--fail-at", "payment", "--fail-undo", "hotel", "--collect")
    assert printed[-1] == "left: hotel 285"
    assert printed[-2] == "saga travel: 2 of 3 compensations done; failed hotel"
    assert "saga 'travel' could not undo all of its steps" in printed[-3]
    assert "step 'hotel'" in printed[-3]


@pytest.mark.parametrize("deed", ["book-car", "cancel-car", "cancel-hotel", "cancel-flight"])
def test_killed_between_the_deed_and_the_journal_it_is_not_done_twice(tmp_path: Path, deed: str) -> None:
    options = ("--fail-at", "payment")
    assert travel(tmp_path, *options, "--kill-after", deed, kills=True)[-1] == f"kill -9 after {deed}"
    printed = travel(tmp_path)
    assert f"{deed}: was done before under this key, nothing to do" in printed
    assert printed[-2:] == ["saga travel: 3 of 3 compensations done", "left: nothing"]
    ledger = [line.split(" ")[2] for line in (tmp_path / "travel-ledger.txt").read_text().splitlines()]
    assert len(ledger) == len(set(ledger)) == 6

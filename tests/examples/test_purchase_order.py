"""The purchase example as a user runs it: real processes, real SIGKILL; what is left in the outside world is even."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "purchase_order" / "purchase.py"
WHOLE = "left: goods 2, money 59.90, parcels 1"

pytestmark = pytest.mark.slow


def purchase(home: Path, *options: str, kills: bool = False) -> list[str]:
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


@pytest.mark.parametrize("options", [(), ("--fail-at", "mail")])
def test_an_order_that_goes_well_is_delivered_whether_the_customer_gets_her_mails_or_not(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    printed = purchase(tmp_path, *options)
    assert printed[-2].startswith("completed: charge-")
    assert printed[-1] == WHOLE
    assert purchase(tmp_path) == printed[-2:]


@pytest.mark.parametrize(
    ("step", "undone"), [("validate", 0), ("payment", 0), ("inventory", 1), ("shipment", 2), ("warehouse", 3)]
)
def test_whatever_fails_nothing_is_left(tmp_path: Path, step: str, undone: int) -> None:
    printed = purchase(tmp_path, "--fail-at", step)
    assert printed[-1] == "left: nothing"
    assert any(line.startswith("WorkflowFailedError: activity ") for line in printed)
    assert (f"saga purchase: {undone} of {undone} compensations done" in printed) == (undone > 0)
    deeds = [line.partition(":")[0] for line in printed]
    assert [deed for deed in deeds if deed in ("unship", "release", "refund")] == [
        "unship",
        "release",
        "refund",
    ][3 - undone :]


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (("--cancel",), "WorkflowCancelledError: the customer has changed her mind"),
        (("--no-pickup", "--pickup-timeout", "0.05"), "WorkflowFailedError: TimeoutError: wait_condition"),
    ],
)
def test_a_cancel_and_a_time_limit_undo_everything(
    tmp_path: Path, options: tuple[str, ...], end: str
) -> None:
    printed = purchase(tmp_path, *options)
    assert printed[-1] == "left: nothing"
    assert printed[-2] == "saga purchase: 3 of 3 compensations done"
    assert printed[-3].startswith(end)


@pytest.mark.parametrize("deed", ["charge", "reserve", "ship", "unship", "release", "refund"])
def test_killed_between_the_deed_and_the_journal_it_is_not_done_twice(tmp_path: Path, deed: str) -> None:
    options = ("--fail-at", "warehouse", "--kill-after", deed)
    assert purchase(tmp_path, *options, kills=True)[-1] == f"kill -9 after {deed}"
    printed = purchase(tmp_path)
    assert printed[-2:] == ["saga purchase: 3 of 3 compensations done", "left: nothing"]
    ledger = [line.split(" ")[2] for line in (tmp_path / "purchase-ledger.txt").read_text().splitlines()]
    assert len(ledger) == len(set(ledger)) == 6

"""The orders example as a user runs it: real processes, real SIGKILL. Not smoke: examples are not in the wheel."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "orders" / "orders.py"

pytestmark = pytest.mark.slow


class Order:
    """The program in a directory of its own; what it prints is read line by line."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *options],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.printed: list[str] = []

    def type(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, start: str) -> str:
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith(start):
                return self.printed[-1]
        raise AssertionError(f"no line {start!r} in {self.printed}")

    def end(self) -> list[str]:
        self.process.stdin.close()
        self.printed += self.process.stdout.read().splitlines()
        self.process.wait()
        self.process.stdout.close()
        return self.printed

    def kill(self) -> None:
        self.process.kill()
        self.end()
        assert self.process.returncode == -signal.SIGKILL


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Order]]:
    started: list[Order] = []

    def begin(*options: str) -> Order:
        started.append(Order(tmp_path, *options))
        return started[-1]

    yield begin
    for order in started:
        if order.process.poll() is None:
            order.process.kill()
            order.end()


def ledger(home: Path) -> list[str]:
    """What really happened, without the keys."""
    return [line.partition(" ")[2] for line in (home / "orders-ledger.txt").read_text().splitlines()]


def test_a_killed_order_goes_on_where_it_was(start, tmp_path: Path) -> None:
    first = start()
    first.wait_for("order: waiting for approval")
    first.type("address 2 Side Street")
    first.wait_for("address changed, it was 1 Main Street")
    first.kill()
    charged = (tmp_path / "orders-ledger.txt").read_text()
    assert ledger(tmp_path) == ["charge 59.90"]

    second = start()
    assert second.wait_for("order-42:") == "order-42: waiting for approval, address 2 Side Street"
    second.type("approve bob")
    printed = second.end()
    assert second.process.returncode == 0
    assert (tmp_path / "orders-ledger.txt").read_text().startswith(charged)
    assert ledger(tmp_path) == ["charge 59.90", "ship teapot to 2 Side Street"]
    assert printed[-1].startswith("result: teapot for 59.90 shipped to 2 Side Street as ship-")
    # What was logged before the kill is not logged again.
    assert [line for line in printed if line.startswith("order: ")] == ["order: shipping", "order: shipped"]
    assert not any(line.startswith("charge") for line in printed)


def test_a_second_run_attaches_and_prints_the_result_again(start, tmp_path: Path) -> None:
    once = start("--approve").end()
    again = start("--approve")
    twice = again.end()
    assert once[-1].startswith("result: ")
    assert once[-1] == twice[-1]
    assert again.process.returncode == 0
    assert ledger(tmp_path) == ["charge 59.90", "ship teapot to 1 Main Street"]


@pytest.mark.parametrize("point", ["charge", "ship"])
def test_killed_between_the_deed_and_the_journal_it_is_not_done_twice(
    start, tmp_path: Path, point: str
) -> None:
    first = start("--approve", "--crash-after", point)
    assert first.end()[-1] == f"kill -9 after {point}"
    assert first.process.returncode == -signal.SIGKILL
    second = start("--approve")
    assert f"{point}: was done before under this key, nothing to do" in second.end()
    assert second.printed[-1].startswith("result: ")
    assert ledger(tmp_path) == ["charge 59.90", "ship teapot to 1 Main Street"]


def test_an_order_that_nobody_approves_is_refunded_once(start, tmp_path: Path) -> None:
    first = start("--approval-timeout", "0.05", "--crash-after", "refund")
    first.end()
    second = start()
    assert second.end()[-1] == "result: refunded, nobody approved within 0:00:00.050000"
    assert [line.split()[0] for line in ledger(tmp_path)] == ["charge", "refund"]


def test_a_wrong_address_is_refused_and_changes_nothing(start, tmp_path: Path) -> None:
    order = start()
    order.wait_for("order: waiting for approval")
    order.type("address Nowhere")
    refusal = order.wait_for("the update was rejected")
    assert refusal == "the update was rejected: ValueError: 'Nowhere' has no house number"
    order.type("status")
    assert order.wait_for("order-42:").endswith("waiting for approval, address 1 Main Street")
    order.type("nonsense")
    assert order.wait_for("type:")
    order.type("approve")
    assert order.end()[-1].startswith("result: ")

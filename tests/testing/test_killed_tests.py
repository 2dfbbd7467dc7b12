"""Tests whose process is killed and begins again: what holds through it, and what is found out."""

import asyncio
import subprocess
import sys
from datetime import timedelta

import pytest

from everact import activity, workflow
from everact.testing import TestEnvironment


@activity.defn
async def charge(ledger: str, order: str) -> str:
    """Does each thing once for each key, as a good service."""
    key = activity.info().idempotency_key
    with open(ledger, "a+") as file:
        file.seek(0)
        if key not in file.read().splitlines():
            file.write(f"{key}\n")
    return f"paid {order}"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.approvals: list[int] = []
        self.notes: list[str] = []

    @workflow.run
    async def run(self, ledger: str, order: str) -> list[str]:
        paid = await charge(ledger, order)
        await workflow.wait_condition(lambda: len(self.approvals) >= 3)
        await workflow.sleep(timedelta(days=1))
        return [paid, *map(str, self.approvals), *self.notes]

    @workflow.signal
    def approve(self, number: int) -> None:
        self.approvals.append(number)

    @workflow.update
    async def note(self, text: str) -> int:
        await workflow.sleep(60)
        self.notes.append(text)
        return len(self.notes)


async def order(ledger):
    """Every kind of call, none of them with a request id of its own."""
    async with TestEnvironment(workflows=[Order], activities=[charge]) as env:
        handle = await env.spawn(Order, str(ledger), "tea")
        for number in range(3):
            await handle.signal(Order.approve, number)
        await env.sleep(3600)
        await handle.pause("lunch")
        await handle.resume()
        assert await handle.execute_update(Order.note, "hot") == 1
        noted = await handle.start_update(Order.note, "sweet")
        assert await noted.result() == 2
        assert await handle.result() == ["paid tea", "0", "1", "2", "hot", "sweet"]
        assert await env.runtime.count_workflows() == 1
    assert len(ledger.read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.kill_everywhere(limit=40)
async def test_everything_is_applied_once_wherever_it_is_killed(tmp_path):
    await order(tmp_path / "ledger")


@pytest.mark.slow
@pytest.mark.kill_everywhere(points=["journal.open.*", "recovery.*", "activity.result.before:1"])
def test_a_plain_function_whose_journal_is_being_opened(tmp_path):
    asyncio.run(order(tmp_path / "ledger"))


@pytest.fixture
def filled(tmp_path):
    (tmp_path / "stock").mkdir()
    (tmp_path / "stock" / "tea").write_text("1")
    return tmp_path


@workflow.defn
class Nothing:
    @workflow.run
    async def run(self) -> None:
        pass


@pytest.mark.kill_everywhere("journal.commit.after")
async def test_each_round_begins_with_the_folder_as_the_fixtures_left_it(filled):
    lives = filled / "lives"
    lives.write_text(f"{lives.read_text()}+" if lives.exists() else "+")
    async with TestEnvironment(workflows=[Nothing]) as env:
        await env.execute(Nothing)
    assert lives.read_text() in ("+", "++")
    assert (filled / "stock" / "tea").read_text() == "1"


@workflow.defn
class Waits:
    @workflow.run
    async def run(self, seconds: float) -> float:
        await workflow.sleep(seconds)
        return seconds


@pytest.mark.kill_everywhere("message.ack.before")
async def test_tasks_of_a_test_may_come_in_another_order():
    async def both(env, name, seconds):
        assert await env.execute(Waits, seconds, id=name) == seconds
        await env.spawn(Nothing, id=f"{name}-too")

    async with TestEnvironment(workflows=[Waits, Nothing]) as env:
        await asyncio.gather(*[both(env, name, seconds) for name, seconds in (("a", 3), ("b", 1), ("c", 2))])
        assert await env.runtime.count_workflows() == 6


TESTS = """
import os

import pytest

from everact import activity, workflow
from everact.journal.memory_store import MemoryJournal
from everact.testing import TestEnvironment


@activity.defn
async def careless(ledger: str) -> None:
    with open(ledger, "a") as file:
        file.write("paid\\n")


@workflow.defn
class Order:
    @workflow.run
    async def run(self, ledger: str) -> None:
        await careless(ledger)


async def order(ledger, **options):
    async with TestEnvironment(workflows=[Order], activities=[careless], **options) as env:
        await env.execute(Order, str(ledger))


@pytest.mark.asyncio
@pytest.mark.kill_everywhere(points="activity.*")
async def test_careless(tmp_path):
    await order(tmp_path / "ledger")
    assert (tmp_path / "ledger").read_text() == "paid\\n"


@pytest.mark.asyncio
@pytest.mark.kill_everywhere(limit=2)
async def test_limit(tmp_path):
    await order(tmp_path / "ledger")


@pytest.mark.kill_everywhere
def test_wrong_without_a_kill():
    assert 1 + 1 == 3


@pytest.mark.kill_everywhere
def test_dies_of_something_else():
    os._exit(3)


@pytest.mark.kill_everywhere
def test_kills_itself():
    os.kill(os.getpid(), 9)


@pytest.mark.kill_everywhere
def test_skipped():
    pytest.skip("no disk")


@pytest.mark.kill_everywhere
def test_no_environment():
    pass


@pytest.mark.kill_everywhere(points="journal.commit.after:700")
def test_never():
    pass


@pytest.mark.asyncio
@pytest.mark.kill_everywhere
async def test_in_memory(tmp_path):
    await order(tmp_path / "ledger", journal=MemoryJournal())


@pytest.mark.kill_everywhere(points="nowhere")
def test_mistyped():
    pass


@pytest.mark.kill_everywhere(limit=0)
def test_no_limit():
    pass


@pytest.mark.kill_everywhere
@pytest.mark.crash_everywhere
def test_both():
    pass
"""


def test_what_a_killed_test_says(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rP", "--tb=short", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    said = ended.stdout
    assert "10 failed, 1 passed, 1 skipped" in said, said
    assert "E   AssertionError: assert 'paid\\npaid\\n' == 'paid\\n'" in said
    assert (
        "in the life behind a SIGKILL at pass 1 of activity.result.before; only this one: "
        '@pytest.mark.kill_everywhere(points="activity.result.before:1")'
    ) in said
    assert "test_limit is killed at 2 of " in said
    assert "places, evenly spread: name fewer points, or limit=" in said
    assert "E   assert (1 + 1) == 3" in said
    assert "in a life that was not killed" in said
    assert "its process has ended with code 3 before the test was done" in said
    assert "killed by SIGKILL, and not by this test" in said
    assert "test_no_environment passes none of the points *: is there a TestEnvironment in it?" in said
    assert "none of 1 kills has happened: journal.commit.after:700 is not passed so often" in said
    assert "a test whose process is killed has its journals on disk: leave out the MemoryJournal" in said
    assert "no point is named by 'nowhere'; points: journal.open.before" in said
    assert "kill_everywhere's limit is a number, 1 or more, not 0" in said
    assert "has both crash_everywhere and kill_everywhere: make it two tests" in said

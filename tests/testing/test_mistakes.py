"""Wrong use of a test environment is refused at once, in words that say what to write."""

import asyncio
import pickle

import pytest

from everact import Runtime, activity, workflow
from everact.exceptions import RuntimeClosedError, WorkflowFailedError
from everact.testing import ActivityNotMockedError, TestEnvironment


@activity.defn
async def charge(cents: int) -> str:
    return f"receipt-{cents}"


@activity.defn
async def tell(cents: int) -> None: ...


@workflow.defn
class Invoice:
    @workflow.run
    async def run(self) -> str:
        await tell(5)
        return await charge(5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"workflow": [Invoice]},
            r"unknown TestEnvironment option 'workflow'; known: activities, codecs.*, workflows$",
        ),
        ({"clock": 5}, "unknown TestEnvironment option 'clock'"),
        (
            {"workflows": Invoice},
            r"workflows must be a list, not <class '.*Invoice'>: write workflows=\[Invoice\]$",
        ),
        ({"workflows": "Invoice"}, "workflows must be a list, not 'Invoice'$"),
        (
            {"activities": charge},
            r"activities must be a list, not <function charge .*>: write activities=\[charge\]$",
        ),
        ({"activities": 5}, "activities must be a list, not 5$"),
        ({"replay_hash_seeds": 5}, "replay_hash_seeds must be a list, not 5$"),
        ({"strict": "no"}, "strict must be True or False, not 'no'$"),
        ({"replay": 1}, "replay must be True or False, not 1$"),
        ({"journal": 5}, "journal must be the path of a directory or a MemoryJournal, not 5$"),
        ({"patience": "long"}, "patience must be a timedelta or a number of seconds, not 'long'$"),
    ],
)
def test_wrong_options_are_named(options, text):
    with pytest.raises(TypeError, match=text):
        TestEnvironment(**options)


def test_a_runtime_says_how_a_list_is_written():
    with pytest.raises(TypeError, match=r"workflows must be a list, .*: write workflows=\[Invoice\]$"):
        Runtime("j", workflows=Invoice)


def test_wrong_keywords_of_fakes_are_named():
    env = TestEnvironment()
    with pytest.raises(TypeError) as caught:
        env.mock_activity(charge, return_value="x")
    assert str(caught.value) == (
        "mock_activity has no argument 'return_value' (here it is returns=); it takes returns, raises, side_effect, "
        "delay, heartbeats"
    )
    with pytest.raises(TypeError) as caught:
        env.mock_workflow(Invoice, heartbeats=5)
    assert str(caught.value) == (
        "mock_workflow has no argument 'heartbeats'; it takes returns, raises, side_effect, delay"
    )
    with pytest.raises(TypeError, match="heartbeats must be a list, not 5"):
        env.mock_activity(charge, returns="x", heartbeats=5)


async def test_a_fake_without_a_result_says_so_when_none_is_no_result():
    async with TestEnvironment(workflows=[Invoice]) as env:
        env.mock_activity(tell)
        charged = env.mock_activity(charge)
        with pytest.raises(WorkflowFailedError) as caught:
            await env.execute(Invoice)
        assert charged.call_count == 1
        assert (
            "the mock of activity 'charge' has no result, and None is none for it (result of activity charge: expected "
            "str, got None): give it returns=..., raises=... or side_effect=..."
        ) in str(caught.value.__cause__)


async def test_a_missing_activity_is_told_with_those_that_exist():
    async with TestEnvironment(workflows=[Invoice], activities=[tell]) as env:
        env.mock_activity("chrage", returns="x")
        env.mock_workflow("Other")
        with pytest.raises(ActivityNotMockedError) as caught:
            await env.execute(Invoice)
    assert str(caught.value) == (
        "activity 'charge' is neither registered nor mocked: pass it in activities=[...], or call "
        "env.mock_activity('charge', returns=...). There are: 'chrage', 'tell'"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_a_condition_that_is_no_function_is_refused():
    async with TestEnvironment() as env:
        with pytest.raises(
            TypeError, match=r"env.until takes a function that .*env.until\(lambda: ...\), not True"
        ):
            await env.until(True)


LEFT = (
    "the TestEnvironment was left: use it, and its handles, before its block 'async with TestEnvironment(...) as env:' "
    "ends; to look at a run later, take its handle.result() or handle.fetch_history() there"
)


async def test_after_its_block_an_environment_and_its_handles_name_it_and_do_not_hang():
    async with TestEnvironment(workflows=[Invoice], activities=[tell, charge]) as env:
        handle = await env.spawn(Invoice, id="i-1")
        await handle.result()

    async def check():
        raise AssertionError

    for use in (
        lambda: env.spawn(Invoice),
        lambda: env.execute(Invoice),
        lambda: env.sleep(1),
        lambda: env.advance(1),
        lambda: env.until(lambda: True),
        env.restart,
        env.crash,
        handle.result,
        handle.describe,
        lambda: handle.signal("x"),
        env.ref("i-1").fetch_history,
        lambda: env.runtime.spawn(Invoice),
        lambda: asyncio.sleep(0, env.mock_activity(charge, returns="x")),
        lambda: asyncio.sleep(0, env.at_end(check)),
    ):
        with pytest.raises(RuntimeClosedError) as caught:
            await asyncio.wait_for(use(), 10)
        assert str(caught.value) == LEFT
    assert env.report().startswith("the environment is not open; its time is 2026-01-01")
    assert env.crashes == 0


async def test_a_handle_before_the_block_names_the_environment():
    with pytest.raises(
        RuntimeClosedError, match=r"^the TestEnvironment is not open: use it inside 'async with Test"
    ):
        await TestEnvironment(workflows=[Invoice]).ref("i-1").describe()

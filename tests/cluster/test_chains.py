"""Chains of runs from another process: limits, retries and delays of a start; results and handles that follow."""

import asyncio
import json
from datetime import timedelta

import pytest
from support.door_calls import refused
from support.door_workflows import CHAINED, WORKFLOWS, Hops, Order, Waits
from support.hosting import settled, until

from everact import Client, RetryPolicy, Runtime
from everact.exceptions import (
    ResultTimeoutError,
    WorkflowContinuedAsNewError,
    WorkflowFailedError,
    WorkflowTimeoutError,
)


@pytest.fixture
async def both(tmp_journal):
    """A runtime, and a client of it."""
    async with (
        Runtime(tmp_journal, workflows=[*WORKFLOWS, *CHAINED], name="shop", grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        yield runtime, client


async def test_a_handle_follows_the_chain_of_its_run(both):
    runtime, client = both
    handle = await client.spawn(Hops, [], id="a")
    waiting = asyncio.create_task(handle.result())
    for word in ("one", "two"):
        await handle.signal(Hops.hop, word)
        await settled(runtime)
    assert await handle.query(Hops.all) == ["one", "two"]
    first, newest = await handle.describe(), await client.ref("a").describe()
    assert first == await runtime.ref("everact://shop/a/" + handle.run_id).describe()
    assert (first.status, first.run_id) == ("continued_as_new", handle.run_id)
    assert newest.first_run_id == handle.run_id != newest.run_id
    with pytest.raises(WorkflowContinuedAsNewError, match=f"goes on as run {first.continued_to}") as caught:
        await handle.result(follow_runs=False)
    assert caught.value.new_run_id == first.continued_to
    with pytest.raises(ResultTimeoutError, match="waiting on: condition at"):
        await handle.result(timeout=0.01)
    await handle.signal(Hops.hop, "end")
    # The last run is of another type than the caller knows: its result comes as the plain value that travels.
    assert await client.ref("a").result() == {"item": "one,two", "count": 1}
    assert str(await waiting) == str({"item": "one,two", "count": 1})
    assert await runtime.ref("a").result() == Order("one,two")


async def test_options_travel(both):
    runtime, client = both
    policy = RetryPolicy(
        initial_interval=timedelta(milliseconds=10),
        maximum_attempts=3,
        non_retryable_error_types=["KeyError"],
    )
    handle = await client.spawn(
        Hops,
        [],
        id="a",
        retry_policy=policy,
        run_timeout=timedelta(hours=1),
        execution_timeout=7200,
        start_delay=0.01,
    )
    options = runtime._shard.find("a").state.started.options
    assert (options.run_timeout, options.execution_timeout) == (3_600_000_000, 7_200_000_000)
    assert options.retry == policy.to_record()
    assert runtime._shard.find("a").state.started.begins_at
    await handle.signal(Hops.hop, "fail")
    await until(lambda: runtime._shard.find("a").state.started.chain is not None)
    assert (await client.ref("a").describe()).attempt == 2
    await handle.terminate()


async def test_a_schedule_travels_and_what_is_wrong_is_refused_there(both, tmp_journal):
    _runtime, client = both
    handle = await client.spawn(Hops, [], cron_schedule="0 6 * * *", time_zone="Europe/Berlin")
    assert (await handle.describe()).cron_schedule == "0 6 * * *"
    await handle.cancel()
    assert (await handle.describe()).status == "cancelled"
    with pytest.raises(ValueError, match="cron_schedule must be five fields"):
        await client.spawn(Hops, [], cron_schedule="daily")
    with pytest.raises(ValueError, match="run_timeout must be more than 0"):
        await client.spawn(Hops, [], run_timeout=0)
    body = {"workflow": "Hops", "args": [[]], "options": {"retry_policy": {"attempts": 3}}}
    status, kind, text = await refused(tmp_journal, "POST", "/v1/workflows", json.dumps(body))
    assert (status, kind) == (400, "TypeError")
    assert "unknown field 'attempts' of retry_policy" in text
    body = {"workflow": "Hops", "args": [[]], "options": {"retry_policy": ["maximum_attempts"]}}
    status, kind, text = await refused(tmp_journal, "POST", "/v1/workflows", json.dumps(body))
    assert (status, kind) == (400, "TypeError")
    assert "retry_policy must be an object with fields of RetryPolicy" in text


async def test_a_run_that_took_too_long_is_told_with_its_cause(both):
    _runtime, client = both
    handle = await client.spawn(Waits, run_timeout=0.01)
    with pytest.raises(WorkflowFailedError, match="took longer than run_timeout=0.01 s") as caught:
        await handle.result()
    assert isinstance(caught.value.__cause__, WorkflowTimeoutError)
    assert caught.value.__cause__.option == "run_timeout"

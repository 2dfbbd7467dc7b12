"""Updates that a client starts: accepted, and later answered, as in the program itself."""

import asyncio

import pytest
from support.door_calls import lose_answers
from support.door_workflows import WORKFLOWS, Order, Waits, asks
from support.hosting import kinds, until

from everact import Client, Runtime
from everact.cluster import connection as connections
from everact.exceptions import RequestIdReusedError, UpdateCutError, UpdateFailedError, UpdateRejectedError


@pytest.fixture
async def both(tmp_journal):
    """A runtime, and a client of it."""
    async with (
        Runtime(tmp_journal, workflows=WORKFLOWS, activities=[asks], grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        yield runtime, client


@pytest.fixture
def short_waits(monkeypatch):
    """Calls that wait for a run are sent again and again."""
    monkeypatch.setattr(connections, "WAIT", 0.01)
    monkeypatch.setattr(connections, "LEAST_WAIT", 0.01)


async def test_an_update_is_accepted_and_later_answered(both, short_waits):
    _runtime, client = both
    handle = await client.spawn(Waits, id="w")
    update = await handle.start_update(Waits.until, "now")
    assert (update.workflow_id, update.run_id, update.name) == ("w", handle.run_id, "until")
    assert repr(update) == "<UpdateHandle 'until' of 'w', accepted>"
    assert not update.done()
    first = asyncio.create_task(update.result())
    await handle.signal(Waits.hear, "now")
    assert await first == await update.result() == 0
    assert update.done()
    assert repr(update) == "<UpdateHandle 'until' of 'w', answered>"
    again = await client.ref("w").start_update("until", "now", request_id=update.request_id)
    assert again.done()
    assert await again.result() == 0
    assert kinds(await handle.fetch_history()).count("UpdateReceived") == 1
    with pytest.raises(RequestIdReusedError):
        await handle.start_update(Waits.until, "later", request_id=update.request_id)


async def test_the_stage_completed_waits_for_the_answer_whatever_it_is(both):
    runtime, client = both
    handle = await client.spawn(Waits, id="w")
    update = await handle.start_update(Waits.add, Order("tea"), wait_for_stage="completed")
    assert update.done()
    assert await update.result() == 1
    texts = []
    for side in (runtime, client):
        failed = await side.ref("w", Waits).start_update(Waits.add, Order(""), wait_for_stage="completed")
        assert failed.done()
        for _ in range(2):
            with pytest.raises(UpdateFailedError) as caught:
                await failed.result()
            texts.append((str(caught.value), str(caught.value.__cause__)))
        with pytest.raises(UpdateRejectedError):
            await side.ref("w", Waits).start_update(Waits.add, Order("a", -1), wait_for_stage="completed")
    assert len(set(texts)) == 1


async def test_a_paused_run_accepts_after_it_was_resumed_however_often_it_is_asked(both, short_waits):
    runtime, client = both
    handle = await client.spawn(Waits, id="w")
    await handle.pause()
    starting = asyncio.create_task(handle.start_update(Waits.until, "now"))
    served = runtime._door._http
    before = served.requests_count
    await until(lambda: served.requests_count > before + 5)
    assert not starting.done()
    await handle.resume()
    update = await starting
    await handle.signal(Waits.hear, "now")
    assert await update.result() == 0
    assert kinds(await handle.fetch_history()).count("UpdateReceived") == 1


async def test_the_end_of_the_run_is_told(both):
    _runtime, client = both
    handle = await client.spawn(Waits, id="w")
    update = await handle.start_update(Waits.until, "now")
    await handle.terminate("enough")
    with pytest.raises(UpdateCutError, match="it ended before update 'until' was done"):
        await update.result()


async def test_an_update_that_nobody_asks_after_costs_nothing(both):
    runtime, client = both
    handle = await client.spawn(Waits, id="w")
    update = await handle.start_update(Waits.until, "now")
    actor = runtime._shard.find("w")
    assert all(waiter.done() for waiters in actor.update_waiters.values() for waiter in waiters)
    assert (client._connection._waiting, runtime._door._http.requests_count) == (0, 3)
    assert not update.done()
    await until(lambda: client._connection._waiting == 1)


async def test_a_call_that_goes_away_leaves_nobody_waiting(both):
    runtime, client = both
    handle = await client.spawn(Waits, id="w")
    actor = runtime._shard.find("w")

    def waiting():
        return [
            waiter for waiters in actor.update_waiters.values() for waiter in waiters if not waiter.done()
        ]

    call = asyncio.create_task(handle.execute_update(Waits.until, "now"))
    await until(waiting)
    call.cancel()
    await until(lambda: not waiting())


async def test_an_answer_that_is_lost_is_asked_for_again(both, monkeypatch):
    _runtime, client = both
    handle = await client.spawn(Waits, id="w")
    seen = lose_answers(monkeypatch, "/updates/", count=2)
    update = await handle.start_update(Waits.add, Order("tea"))
    assert await update.result() == 1
    assert len(seen) > 3
    assert await handle.query(Waits.words) == ["tea"]


async def test_a_client_that_is_closed_meanwhile_says_so(both):
    _runtime, client = both
    handle = await client.spawn(Waits, id="w")
    update = await handle.start_update(Waits.until, "now")
    asking = asyncio.create_task(update.result())
    await until(lambda: client._connection._waiting == 1)
    await client.close()
    with pytest.raises(RuntimeError, match="this Client is closed"):
        await asking

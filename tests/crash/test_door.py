"""Clients of a program that is killed in the middle of their calls, or that forks: nothing is lost or done twice."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.door_program import Program
from support.door_workflows import Asks, Order, Waits
from support.hosting import kinds
from support.rounds import IS_LONG

from everact import ApplicationError, Client
from everact.exceptions import ActivityNotPendingError, WorkflowTerminatedError

#: The points that a call passes on its way through the program.
POINTS = [
    "journal.commit.before",
    "journal.commit.written",
    "journal.commit.after",
    "runtime.effects.before",
    "message.ack.before",
    "runtime.effects.after",
]
#: How often a life passes such a point before it ends there: the more often, the fewer lives.
PASSES = 3 if IS_LONG else 4


async def keep_running(path, fault, done, count=PASSES):
    """Start the program again and again, which dies at a pass of a fault point; returns how often it died."""
    deaths = 0
    while True:
        with Program(path, EVERACT_FAULT=f"{fault}:{count}") as program:
            ended = asyncio.create_task(asyncio.to_thread(program.process.wait))
            await asyncio.wait([ended, done], return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                program.kill()
                await ended
                return deaths
            assert program.process.returncode == -signal.SIGKILL
            deaths += 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", POINTS)
async def test_each_call_is_applied_once_however_often_the_program_is_killed(tmp_journal, fault):
    with Program(tmp_journal) as first:
        client = await Client.connect(f"unix:{tmp_journal}")
        first.kill()
    done = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(keep_running(tmp_journal, fault, done))
    async with client, asyncio.timeout(50):
        handle = await client.spawn(Waits, Order("tea", 7), id="w")
        late = asyncio.create_task(handle.execute_update(Waits.until, "last"))
        for number in range(3):
            await handle.signal(Waits.hear, f"signal {number}")
            assert await handle.execute_update(Waits.add, Order(f"update {number}")) == 2 * number + 2
        other = await client.spawn(Waits, id="other")
        await other.terminate("enough")
        with pytest.raises(WorkflowTerminatedError):
            await other.result()
        await handle.signal(Waits.hear, "last")
        assert await late == 6
        await handle.signal(Waits.finish, "end")
        heard = [f"{kind} {number}" for number in range(3) for kind in ("signal", "update")]
        assert await handle.result() == Order(",".join([*heard, "last", "end"]), 7)
        assert await client.count_workflows() == 2
        kinds = [event.kind for event in await handle.fetch_history()]
        assert (kinds.count("SignalReceived"), kinds.count("UpdateReceived")) == (5, 4)
        done.set_result(None)
    assert await running > 1


async def attempt_is_left(handle, number):
    """Wait until the code of an attempt has ended without a result."""
    while True:
        for pending in (await handle.describe()).pending_activities:
            if pending.completed_outside and pending.attempt >= number:
                return pending.attempt
        await asyncio.sleep(0.001)


async def ended(handle, end):
    """End the present attempt; one that was lost with its process is another one by then."""
    while True:
        try:
            return await end()
        except ActivityNotPendingError:
            await attempt_is_left(handle, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "count"), [*((point, PASSES) for point in POINTS), ("activity.complete.before", 2)]
)
async def test_updates_are_started_and_attempts_completed_once_however_often_the_program_is_killed(
    tmp_journal, fault, count
):
    with Program(tmp_journal) as first:
        client = await Client.connect(f"unix:{tmp_journal}")
        first.kill()
    done = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(keep_running(tmp_journal, fault, done, count))
    async with client, asyncio.timeout(50):
        handle = await client.spawn(Waits, id="w")
        late = await handle.start_update(Waits.until, "last")
        updates = [await handle.start_update(Waits.add, Order(f"update {number}")) for number in range(3)]
        assert [await update.result() for update in updates] == [1, 2, 3]
        asks = await client.spawn(Asks, id="a")
        outside = client.activity_handle(workflow_id="a", command=1)
        number = await attempt_is_left(asks, 1)
        await ended(asks, lambda: outside.fail(ApplicationError("again", type="Again")))
        await attempt_is_left(asks, number + 1)
        await ended(asks, lambda: outside.heartbeat("half way"))
        await ended(asks, lambda: outside.complete(Order("tea", 7)))
        assert await asks.result() == Order("tea", 7)
        await handle.signal(Waits.hear, "last")
        assert await late.result() == 3
        found = kinds(await asks.fetch_history())
        assert (found.count("AttemptFailed"), found.count("ActivityCompleted")) == (1, 1)
        assert kinds(await handle.fetch_history()).count("UpdateReceived") == 4
        done.set_result(None)
    assert await running >= 1


@pytest.mark.slow
async def test_a_call_whose_program_does_not_come_back_says_how_it_is_repeated(tmp_journal):
    from everact.exceptions import RuntimeUnreachableError

    with Program(tmp_journal, EVERACT_FAULT="message.ack.before:2"):
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = await client.spawn(Waits, id="w")
            client._connection._timeout = 1.0
            with pytest.raises(RuntimeUnreachableError) as caught:
                await handle.signal(Waits.hear, "one")
    error = caught.value
    assert list(error.repeat_with) == ["request_id"]
    assert "went away in the middle of the call, and none has come back in time: nobody listens" in str(error)
    assert str(error).endswith(
        f"Whether it was done is unknown; repeat it when the program runs again with "
        f"request_id={error.repeat_with['request_id']!r}: it is then done once."
    )
    with Program(tmp_journal):
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = client.ref("w", Waits)
            assert await handle.query(Waits.words) == ["one"], "it was durable; only the answer was lost"
            await handle.signal(Waits.hear, "one", **error.repeat_with)
            assert await handle.query(Waits.words) == ["one"]
    with pytest.raises(RuntimeUnreachableError) as caught:
        async with await Client.connect(f"unix:{tmp_journal}", timeout=0.3):
            raise AssertionError
    assert caught.value.repeat_with is None


FORKS = """
import asyncio, os, signal, sys
from support.door_workflows import WORKFLOWS, Waits
from everact import Runtime

path, loop, way = sys.argv[1:]

async def main():
    async with Runtime(path, workflows=WORKFLOWS, grace=0.0) as runtime:
        await runtime.spawn(Waits, id="w")
        print("ready", flush=True)
        while not runtime._shard.find("w").result_waiters:
            await asyncio.sleep(0.001)
        pid = os.fork()
        if not pid:
            if way == "stays":
                print(os.getpid(), flush=True)
                signal.pause()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            return
        if way == "stays":
            signal.pause()
        await asyncio.to_thread(os.waitpid, pid, 0)
        print("forked", flush=True)
        await runtime.ref("w").result()
        await asyncio.sleep(0.05)

if loop == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


def forking(path, loop, way):
    here = Path(__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-c", FORKS, os.fspath(path), loop, way],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.fspath(here), "PYTHONWARNINGS": "ignore::DeprecationWarning"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_forked_child_that_outlives_its_parent_keeps_no_client_waiting(tmp_journal, loop):
    parent = forking(tmp_journal, loop, "stays")
    child = 0
    try:
        assert parent.stdout.readline() == "ready\n"
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = client.ref("w", Waits)
            waiting = asyncio.create_task(handle.result())
            child = int(await asyncio.to_thread(parent.stdout.readline))
            parent.kill()
            parent.wait()
            with Program(tmp_journal):  # the child has neither the lock nor the door
                await asyncio.wait_for(handle.signal(Waits.finish, "end"), 10)
                assert (await asyncio.wait_for(waiting, 10)).item == "end"
    finally:
        parent.kill()
        if child:
            os.kill(child, signal.SIGKILL)
        parent.stdout.close()
        parent.wait()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_forked_child_that_ends_does_not_cut_the_clients_of_its_parent(tmp_journal, loop):
    with forking(tmp_journal, loop, "ends") as parent:
        assert parent.stdout.readline() == "ready\n"
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = client.ref("w", Waits)
            waiting = asyncio.create_task(handle.result())
            assert await asyncio.to_thread(parent.stdout.readline) == "forked\n"
            for _ in range(3):  # at once: a connection that was cut would need another try
                assert json.loads(await client._connection.call("GET", again=False))["pid"] == parent.pid
            await handle.signal(Waits.finish, "end")
            assert (await waiting).item == "end"
    assert parent.returncode == 0

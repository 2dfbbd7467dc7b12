"""A program whose code holds its event loop: clients say so, and say what holds it."""

import asyncio
import logging
import os
import signal

import pytest
from support.door_program import Program
from support.door_workflows import WORKFLOWS, Asks, Blocks, Waits, asks
from support.hosting import until

from everact import Client, Runtime
from everact.actors.marks import ATTEMPT, QUERY, REPLAY, START, TURN, VALIDATOR
from everact.cluster import silence
from everact.cluster.holder import holder_of
from everact.exceptions import CallTimeoutError


@pytest.fixture
def impatient(monkeypatch):
    """From its call on silence is noticed at once, but not before a program that lives, and serves, can answer."""

    def begin():
        monkeypatch.setattr(silence, "SUSPICIOUS", 0.05)
        monkeypatch.setattr(silence, "SUSPICIOUS_WAIT", 0.05)
        monkeypatch.setattr(silence, "PATIENCE", 0.3)

    return begin


def test_the_limits_are_two_seconds():
    assert silence.SUSPICIOUS + silence.PATIENCE == 2.0


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "everact.client"]


@pytest.mark.slow
async def test_a_client_says_once_what_holds_the_program_and_goes_on(tmp_journal, impatient, caplog):
    free = tmp_journal.parent / "free"
    with Program(tmp_journal) as program:
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = await client.spawn(Blocks, id="b")
            impatient()
            with caplog.at_level(logging.WARNING, "everact.client"):
                calls = [
                    asyncio.create_task(handle.signal(Blocks.hold, str(free))),
                    asyncio.create_task(client.count_workflows()),
                ]
                await until(lambda: said(caplog))
                calls.append(asyncio.create_task(handle.describe()))
                free.touch()
                await asyncio.gather(*calls)
            (text,) = said(caplog)
            assert text == (
                f"the program that has the journal '{tmp_journal}' open does not answer: the event loop of process "
                f"{program.process.pid} is held by a turn of workflow 'b' (Blocks, run {handle.run_id}, event 3); "
                f"waiting up to 30 s for it"
            )
            assert client._connection._silence.holder == ""


@pytest.mark.slow
async def test_a_call_that_runs_out_of_time_says_what_holds_the_program(tmp_journal, impatient):
    free = tmp_journal.parent / "free"
    with Program(tmp_journal):
        async with await Client.connect(f"unix:{tmp_journal}", timeout=1) as client:
            handle = await client.spawn(Blocks, id="b")
            impatient()
            asking = asyncio.create_task(handle.query(Blocks.held, str(free), timeout=20))
            with pytest.raises(CallTimeoutError) as caught:
                while True:
                    await client.ref("b").signal("hold", str(tmp_journal), request_id="r")
            text = str(caught.value)
            assert (
                "did not answer POST /v1/workflows/b/signals/hold within 1 s (the event loop of process"
                in text
            )
            assert "is held by query 'held' of workflow 'b' (Blocks, run " in text
            assert (
                "Whether it was done is unknown; repeat it with request_id='r': it is then done once." in text
            )
            assert caught.value.repeat_with == {"request_id": "r"}
            free.touch()
            assert await asking == "no longer"


@pytest.mark.slow
async def test_a_process_that_is_stopped_is_no_workflow_code(tmp_journal, impatient):
    with Program(tmp_journal) as program:
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            await client.count_workflows()
            impatient()
            os.kill(program.process.pid, signal.SIGSTOP)
            client._connection._timeout = 2.0  # from here on: a slow machine may need longer to connect
            with pytest.raises(CallTimeoutError, match="It only reads: repeat it") as caught:
                await client.count_workflows()
            assert (
                "is busy, not with workflow code: the rest of the program has it, or the process is stopped"
                in str(caught.value)
            )
            os.kill(program.process.pid, signal.SIGCONT)
            client._connection._timeout = 30
            assert await client.count_workflows() == 0


async def test_a_call_that_takes_its_time_is_no_silence(tmp_journal, impatient, caplog):
    async with (
        Runtime(tmp_journal, workflows=WORKFLOWS, grace=0.0) as runtime,
        await Client.connect(f"unix:{tmp_journal}") as client,
    ):
        handle = await client.spawn(Waits, id="w")
        impatient()
        waiting = [asyncio.create_task(handle.result()) for _ in range(20)]
        served = runtime._door._http
        before = served.requests_count
        await until(lambda: served.requests_count >= before + 23)  # signs of life that were asked for
        assert served.requests_count < before + 40, "they are shared"
        await handle.signal(Waits.finish, "end")
        await asyncio.gather(*waiting)
        assert client._connection._silence._asking is None
    assert not said(caplog)


@pytest.mark.slow
async def test_a_program_that_ends_in_the_middle_is_said_while_it_is_waited_for(
    tmp_journal, impatient, caplog, monkeypatch
):
    with Program(tmp_journal) as first:
        async with await Client.connect(f"unix:{tmp_journal}") as client:
            handle = await client.spawn(Waits, id="w")
            result = asyncio.create_task(handle.result())
            await until(lambda: client._connection._waiting)
            await client.count_workflows()
            impatient()
            first.kill()
            await until(lambda: said(caplog))
            monkeypatch.setattr(silence, "PATIENCE", 30)  # the next program may be slow to start
            with Program(tmp_journal):
                await handle.signal(Waits.finish, "end")
                assert (await result).item == "end"
    (text,) = said(caplog)
    assert text == (
        f"no program answers any more for the journal '{tmp_journal}': nobody listens at its socket 'everact.sock' "
        f"(Connection refused); waiting up to 30 s for it to come back"
    )


async def test_what_the_flight_recorder_tells(tmp_journal):
    async with Runtime(tmp_journal, workflows=WORKFLOWS, activities=[asks], grace=0.0) as runtime:
        handle = await runtime.spawn(Waits, id="w")
        await runtime.spawn(Asks, id="a")
        await until(lambda: runtime._shard.find("a").state.activities[1].deadline)
        marks, key = runtime._shard.marks, runtime._shard.find("w").key
        run = f"workflow 'w' (Waits, run {handle.run_id}, event 7)"
        who = f"the event loop of process {os.getpid()}"

        async def told():
            return await asyncio.to_thread(holder_of, str(tmp_journal))

        for kind, label, says in (
            (TURN, b"", f"{who} is held by a turn of {run}"),
            (REPLAY, b"", f"{who} is held by the replay of {run}"),
            (QUERY, b"words", f"{who} is held by query 'words' of {run}"),
            (VALIDATOR, b"add", f"{who} is held by the validator of update 'add' of {run}"),
            (START, b"new", f"{who} is held by the first turn of workflow 'new'"),
        ):
            marks.recorder.run(marks._slot, kind, key, 7, 0, label)
            assert await told() == says
        marks.recorder.run(marks._slot, TURN, 4711, 7)
        assert await told() == f"{who} is held by a turn of run number 4711"
        marks.finish()
        assert "is busy, not with workflow code" in await told()
        slots = [marks.recorder.take() for _ in range(5)]
        for slot in slots:
            marks.recorder.run(slot, ATTEMPT, runtime._shard.find("a").key, 1, 1)
        assert (await told()).endswith(
            "activities that run: 'asks' of workflow 'a', 'asks' of workflow 'a', 'asks' of workflow 'a' and 2 more"
        )
        for slot in slots:
            marks.recorder.free(slot)
    assert (await told()).startswith("its event loop is busy, not with workflow code")


def test_a_journal_that_cannot_be_read_says_little(tmp_path):
    assert holder_of(str(tmp_path)) == "its event loop is busy"

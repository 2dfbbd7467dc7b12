"""What a start does when its workflow id is taken: one decision, one transaction."""

import asyncio
import itertools

import pytest
from support.blocking import Blocked
from support.hosting import hosted, kinds, settled
from support.stores import TroubledStore, turns

from everact import ApplicationError, workflow
from everact.actors.start_policies import decide
from everact.exceptions import (
    PayloadCodecError,
    RequestIdReusedError,
    WorkflowAlreadyStartedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
)
from everact.journal.codecs import PayloadCodec
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal, MemoryStore

OPEN = ["running", "paused", "quarantined", "held"]
CLOSED = ["completed", "failed", "cancelled", "terminated"]


@workflow.defn(name="W")
class W:
    @workflow.run
    async def run(self, how: str) -> str:
        match how:
            case "completed":
                return "done"
            case "failed":
                raise ApplicationError("no")
            case "quarantined":
                raise ValueError("bug")
            case _:
                await workflow.sleep(3600)
        return "?"

    @workflow.query
    def look(self) -> None:
        pass

    @workflow.signal
    def note(self) -> None:
        pass


@workflow.defn(name="W")
class Changed:
    @workflow.run
    async def run(self, how: str) -> str:
        await workflow.sleep(1)
        return "?"

    @workflow.query
    def look(self) -> None:
        pass


def expected(status, if_running, if_closed):
    if status in OPEN:
        return "refuse" if if_running == "fail" else if_running
    return {
        "allow": "start",
        "allow_if_failed": "refuse" if status == "completed" else "start",
        "refuse": "refuse",
        "attach": "attach",
    }[if_closed]


def test_an_unused_id_always_starts():
    for options in itertools.product(
        ["fail", "attach", "replace"], ["allow", "allow_if_failed", "refuse", "attach"]
    ):
        assert decide(None, *options) == "start"


@pytest.mark.parametrize("status", [*OPEN, *CLOSED])
async def test_every_pair_of_options_does_what_it_says(status):
    """The same before and after a restart, and for each status of the run that has the id."""
    for number, (if_running, if_closed) in enumerate(
        itertools.product(["fail", "attach", "replace"], ["allow", "allow_if_failed", "refuse", "attach"])
    ):
        journal = MemoryJournal()
        async with hosted(journal, W) as runtime:
            old = await runtime.spawn(W.run, status, id="a")
            await settled(runtime)
            if status == "quarantined":
                with pytest.raises(WorkflowQuarantinedError):
                    await old.result()
            if status == "paused":
                await old.pause()
            if status in ("cancelled", "terminated"):
                await (old.cancel() if status == "cancelled" else old.terminate())
                await settled(runtime)
            if status != "held" and number % 2:
                await self_check(runtime, old, status, if_running, if_closed)
                continue
        async with hosted(journal, Changed if status == "held" else W) as runtime:
            if status == "held":
                with pytest.raises(WorkflowHeldError):
                    await runtime.ref("a").query("look")
            await settled(runtime)
            await self_check(runtime, runtime.ref("a", W), status, if_running, if_closed)


async def self_check(runtime, old, status, if_running, if_closed):
    old_description = await old.describe()
    assert old_description.status == status
    what = expected(status, if_running, if_closed)
    before = runtime._shard.store.position
    start = runtime.spawn("W", "new", id="a", if_running=if_running, if_closed=if_closed)
    if what == "refuse":
        with pytest.raises(WorkflowAlreadyStartedError) as caught:
            await start
        assert (caught.value.run_id, caught.value.status) == (old_description.run_id, status)
        assert runtime._shard.store.position == before
        return
    handle = await start
    if what == "attach":
        assert handle.run_id == old_description.run_id
        assert runtime._shard.store.position == before
        return
    assert handle.run_id != old_description.run_id
    assert (await runtime.ref("a").describe()).run_id == handle.run_id
    if what == "replace":
        ref = runtime.ref(f"everact://local/a/{old_description.run_id}")
        with pytest.raises(WorkflowTerminatedError, match="replaced"):
            await ref.result()
        ((_sequence, entries),) = runtime._shard.store.scan(before.sequence)
        assert len(entries) == 2  # the end of the one and the start of the other


async def test_twenty_starts_of_one_id_at_once_make_one_run():
    """E02"""
    for options, fails in (({}, 19), ({"if_running": "attach"}, 0)):
        async with hosted(MemoryJournal(), W) as runtime:
            results = await asyncio.gather(
                *(runtime.spawn(W.run, "new", id="a", **options) for _ in range(20)), return_exceptions=True
            )
            errors = [r for r in results if isinstance(r, WorkflowAlreadyStartedError)]
            assert len(errors) == fails and len(results) - len(errors) == 20 - fails
            assert len({r.run_id for r in results}) == 1
            assert await runtime.count_workflows() == 1


@pytest.mark.parametrize("if_running", ["attach", "fail"])
async def test_an_answer_that_comes_from_a_start_waits_until_that_start_is_durable(if_running):
    """R5: whoever is told of a run can rely on it."""
    blocked = Blocked()
    async with hosted(MemoryJournal(), W) as runtime:
        with armed("journal.commit.before", blocked):
            first = asyncio.create_task(runtime.spawn(W.run, "new", id="a"))
            second = asyncio.create_task(runtime.spawn(W.run, "new", id="a", if_running=if_running))
            await asyncio.to_thread(blocked.reached.wait)
            for _ in range(5):
                await asyncio.sleep(0)
            assert not first.done() and not second.done()
            blocked.go.set()
            await asyncio.wait([first, second])
        assert (second.exception() is None) is (if_running == "attach")


async def test_the_last_of_several_replacing_starts_is_the_one_that_runs():
    async with hosted(MemoryJournal(), W) as runtime:
        handles = await asyncio.gather(
            *(runtime.spawn(W.run, "new", id="a", if_running="replace") for _ in range(5))
        )
        assert (await runtime.ref("a").describe()).run_id == handles[-1].run_id
        states = [(await handle.describe()).status for handle in handles]
    assert states == ["terminated"] * 4 + ["running"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("end", [False, True])
async def test_a_repeated_start_finds_the_run_that_the_first_one_made(restart, end):
    journal = MemoryJournal()
    how = "completed" if end else "new"
    runtime = hosted(journal, W)
    async with runtime:
        first = await runtime.spawn(W.run, how, id="a", request_id="q")
        await settled(runtime)
        if not restart:
            await repeats(runtime, first, how)
    if restart:
        async with hosted(journal, W) as runtime:
            await repeats(runtime, first, how)


async def repeats(runtime, first, how):
    for options in ({}, {"if_closed": "refuse"}, {"if_running": "replace", "if_closed": "allow"}):
        again = await runtime.spawn(W.run, how, id="a", request_id="q", **options)
        assert again.run_id == first.run_id
    with pytest.raises(RequestIdReusedError):
        await runtime.spawn(W.run, "other", id="a", request_id="q")
    assert await runtime.count_workflows() == 1
    # Another request is another wish, and the first one is still known after it.
    second = await runtime.spawn(W.run, how, id="a", request_id="q2", if_running="replace")
    assert second.run_id != first.run_id
    assert (await runtime.spawn(W.run, how, id="a", request_id="q")).run_id == first.run_id


class Refuses(PayloadCodec):
    inline_limit = 1000

    def encode(self, payloads):
        if any(b"refused" in payload.data for payload in payloads):
            raise ValueError("refused")
        return payloads

    def decode(self, payloads):
        return payloads


async def test_a_start_that_comes_to_nothing_does_not_hide_the_run_that_it_was_to_replace():
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with hosted(store, W, codecs=[Refuses()]) as runtime:
        store.hold()
        first = asyncio.create_task(runtime.spawn(W.run, "new", id="a"))
        await store.held()  # it is known to nobody but the shard
        with pytest.raises(PayloadCodecError):
            await runtime.spawn(W.run, "refused", id="a", if_running="replace")
        third = asyncio.create_task(runtime.spawn(W.run, "new", id="a"))
        await turns()
        store.release()
        await first
        with pytest.raises(WorkflowAlreadyStartedError):
            await third
        assert await runtime.count_workflows() == 1


async def test_the_request_id_of_a_signal_is_no_start_although_the_run_was_started_alike():
    async with hosted(MemoryJournal(), W) as runtime:
        run = await runtime.spawn(W.run, "new", id="a", request_id="start")
        await run.signal(W.note, request_id="signal")
        with pytest.raises(RequestIdReusedError):
            await runtime.spawn(W.run, "new", id="a", request_id="signal")


async def test_a_bound_handle_keeps_to_its_run_and_an_id_finds_the_newest():
    async with hosted(MemoryJournal(), W) as runtime:
        first = await runtime.spawn(W.run, "completed", id="a")
        assert await first.result() == "done"
        second = await runtime.spawn(W.run, "failed", id="a")
        assert await first.result() == "done"
        with pytest.raises(WorkflowFailedError):
            await runtime.ref("a", W).result()
        assert await runtime.ref(first.address, W).result() == "done"
        assert [line.run_id for line in await runtime.list_workflows()] == [second.run_id, first.run_id]


async def test_ids_are_made_when_none_is_given():
    async with hosted(MemoryJournal(), W) as runtime:
        ids = {(await runtime.spawn(W.run, "completed")).workflow_id for _ in range(20)}
    assert len(ids) == 20


async def test_a_run_that_ended_is_replaced_by_nothing_but_started_anew():
    """The run ends in the same batch as the replacing start comes."""
    async with hosted(MemoryJournal(), W) as runtime:
        first, second = await asyncio.gather(
            runtime.spawn(W.run, "completed", id="a"),
            runtime.spawn(W.run, "completed", id="a", if_running="replace"),
        )
        assert await first.result() == "done"
        assert await second.result() == "done"
        assert kinds(await first.fetch_history()) == ["WorkflowStarted", "WorkflowCompleted"]

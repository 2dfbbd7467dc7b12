"""Attempts that somebody outside completes: by task token, through restarts, behind the fence (R3)."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import hosted, settled, tick, until

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.actors import rebuilding
from everact.actors.recovery import rebuild
from everact.actors.workflow_actor import WorkflowActor
from everact.exceptions import (
    ActivityCancelledError,
    ActivityNotPendingError,
    ActivityTimeoutError,
    CommitUnknownError,
    PayloadEncodeError,
    WorkflowFailedError,
    WorkflowNotFoundError,
)
from everact.journal.events import AttemptNoted
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal

CODECS = pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)


class Outside:
    """An activity that leaves its token, and a workflow that calls it."""

    def __init__(self, colour="async", cancellation="try_cancel", **options):
        self.tokens, self.found = [], []

        def leaves(question: str) -> int:
            self.found.append(activity.info().heartbeat_details)
            self.tokens.append(activity.info().task_token)
            activity.raise_complete_async()

        async def leaves_async(question: str) -> int:
            return leaves(question)

        options = {"retry_policy": QUICK, **options}
        self.fn = activity.defn(name="asks", **options)(leaves_async if colour == "async" else leaves)
        fn = self.fn

        @workflow.defn(name="Asks")
        class Asks:
            def __init__(self) -> None:
                self.stop = False

            @workflow.signal
            def end(self) -> None:
                self.stop = True

            @workflow.run
            async def run(self) -> object:
                asked = workflow.start_activity(fn, "how many?", cancellation_type=cancellation)
                stop = asyncio.create_task(workflow.wait_condition(lambda: self.stop))
                await asyncio.wait([asked, stop], return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                stop.cancel()
                try:
                    return await asked
                except asyncio.CancelledError:
                    return "cancelled"

        self.W = Asks

    async def spawn(self, runtime):
        handle = await runtime.spawn(self.W.run, id="a")
        await self.is_left(runtime)
        return handle

    async def is_left(self, runtime, count=1):
        await until(lambda: len(self.tokens) == count)
        await until(lambda: runtime._shard.find("a").state.activities[1].deadline)
        await settled(runtime)


@CODECS
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_whoever_has_the_token_completes_the_attempt(colour, codecs):
    it = Outside(colour)
    options = {"codecs": codecs, "max_concurrent_activities": 1, "max_activity_threads": 1}
    async with hosted(MemoryJournal(), it.W, activities=[it.fn], **options) as runtime:
        handle = await it.spawn(runtime)
        assert runtime.activity_slots()[:4] == (0, 0, 0, 0), "its slot is free"
        (pending,) = (await handle.describe()).pending_activities
        assert pending.completed_outside
        await runtime.activity_handle(it.tokens[0]).complete(42)
        assert await handle.result() == 42


@CODECS
async def test_a_token_is_good_in_the_next_start(codecs):
    it = Outside()
    journal = MemoryJournal()
    async with hosted(journal, it.W, activities=[it.fn], codecs=codecs) as runtime:
        await it.spawn(runtime)
    for _ in range(2):
        async with hosted(journal, it.W, activities=[it.fn], codecs=codecs) as runtime:
            await settled(runtime)
            assert len(it.tokens) == 1, "it is not run again"
    async with hosted(journal, it.W, activities=[it.fn], codecs=codecs) as runtime:
        await runtime.activity_handle(it.tokens[0]).complete(42)
        assert await runtime.ref("a", it.W).result() == 42


async def test_ids_do_as_well():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        await runtime.activity_handle(workflow_id="a", command=1, run_id=handle.run_id).complete(7)
        assert await handle.result() == 7
        with pytest.raises(ActivityNotPendingError, match="does not wait for activity command 1 any more"):
            await runtime.activity_handle(workflow_id="a", command=1).complete(7)


@CODECS
async def test_a_failure_from_outside_is_repeated_as_any_other(codecs):
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn], codecs=codecs) as runtime:
        handle = await it.spawn(runtime)
        await runtime.activity_handle(it.tokens[0]).heartbeat("half way")
        await runtime.activity_handle(it.tokens[0]).fail(OSError("line is dead"))
        await it.is_left(runtime, 2)
        assert it.found == [(), ("half way",)]
        with pytest.raises(ActivityNotPendingError) as caught:  # the first attempt's
            await runtime.activity_handle(it.tokens[0]).complete(1)
        assert (caught.value.command, caught.value.attempt) == (1, 1)
        assert "attempt 1 of activity command 1" in str(caught.value)
        await runtime.activity_handle(it.tokens[1]).fail(ApplicationError("no", non_retryable=True))
        with pytest.raises(WorkflowFailedError) as failed:
            await handle.result()
    error = failed.value.__cause__
    assert isinstance(error, ActivityError) and error.attempt == 2
    assert error.__cause__.message == "no"


async def test_a_second_answer_is_refused():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        asked = runtime.activity_handle(it.tokens[0])
        first, second = await asyncio.gather(asked.complete(1), asked.complete(2), return_exceptions=True)
        assert first is None and isinstance(second, ActivityNotPendingError)
        assert await handle.result() == 1


async def test_an_answer_may_come_before_the_code_has_returned():
    go = asyncio.Event()
    tokens = []

    @activity.defn
    async def asks() -> int:
        tokens.append(activity.info().task_token)
        await go.wait()
        activity.raise_complete_async()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> int:
            return await asks()

    async with hosted(MemoryJournal(), W, activities=[asks]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: tokens)
        await runtime.activity_handle(tokens[0]).complete(3)
        assert await handle.result() == 3
        go.set()
        await until(lambda: runtime.activity_slots().running == 0)


async def test_the_time_limit_goes_on_and_survives_a_restart():
    """G03"""
    clock = ManualClock()
    it = Outside(start_to_close_timeout=60, retry_policy=RetryPolicy(maximum_attempts=1))
    journal = MemoryJournal()
    async with hosted(journal, it.W, activities=[it.fn], clock=clock) as runtime:
        await it.spawn(runtime)
        await tick(runtime, clock, 25)
    async with hosted(journal, it.W, activities=[it.fn], clock=clock) as runtime:
        await settled(runtime)
        await tick(runtime, clock, 30)
        handle = runtime.ref("a", it.W)
        assert (await handle.describe()).status == "running"
        await tick(runtime, clock, 6)
        with pytest.raises(WorkflowFailedError) as caught:
            await handle.result()
        with pytest.raises(ActivityNotPendingError):
            await runtime.activity_handle(it.tokens[0]).complete(1)
    cause = caught.value.__cause__.__cause__
    assert isinstance(cause, ActivityTimeoutError) and cause.option == "start_to_close_timeout"


@pytest.mark.parametrize("restarts", [False, True])
async def test_heartbeats_from_outside_are_counted(restarts):
    clock = ManualClock()
    it = Outside(heartbeat_timeout=10, retry_policy=RetryPolicy(maximum_attempts=1))
    journal = MemoryJournal()
    async with hosted(journal, it.W, activities=[it.fn], clock=clock) as runtime:
        await it.spawn(runtime)
        if not restarts:
            await watched(runtime, clock, it)
    if restarts:
        async with hosted(journal, it.W, activities=[it.fn], clock=clock) as runtime:
            await settled(runtime)
            await watched(runtime, clock, it)


async def watched(runtime, clock, it):
    watch = runtime._shard.dispatcher.pool.heartbeats
    for n in range(4):
        clock.advance(8)
        await runtime.activity_handle(it.tokens[0]).heartbeat(*[n][: n % 2])
        watch.check()
    assert runtime._shard.find("a").state.activities[1].details[0].data == b"3"
    clock.advance(11)
    watch.check()
    with pytest.raises(WorkflowFailedError) as caught:
        await runtime.ref("a", it.W).result()
    assert caught.value.__cause__.__cause__.option == "heartbeat_timeout"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_heartbeat_tells_that_the_workflow_waits_for_the_end(restarts):
    it = Outside(cancellation="wait_cancellation_completed")
    journal = MemoryJournal()
    async with hosted(journal, it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        await handle.signal(it.W.end)
        await settled(runtime)
        if not restarts:
            await told_to_stop(runtime, it)
    if restarts:
        async with hosted(journal, it.W, activities=[it.fn]) as runtime:
            await settled(runtime)
            await told_to_stop(runtime, it)


async def told_to_stop(runtime, it):
    handle = runtime.ref("a", it.W)
    assert (await handle.describe()).status == "running"
    asked = runtime.activity_handle(it.tokens[0])
    with pytest.raises(ActivityCancelledError, match=r"'asks' to stop.*report_cancelled\(\)"):
        await asked.heartbeat("last words")
    await asked.report_cancelled()
    assert await handle.result() == "cancelled"


async def test_a_heartbeat_that_finds_the_run_made_anew_asks_the_new_one(monkeypatch):
    """A rebuild between the answer and what the caller looks at next: it must not wait for the old object."""
    it = Outside(cancellation="wait_cancellation_completed")
    put = WorkflowActor.put

    def then_rebuild(actor, event, reply=None):
        if type(event) is AttemptNoted and event.details:
            reply.add_done_callback(lambda _: anew(actor))
        put(actor, event, reply)

    def anew(actor):
        actor.shard.enqueue(actor)  # it has been given a turn that it will never have
        actor.shard.writer.error = OSError("the disk is on fire")
        for _ in rebuild(actor.shard):
            pass

    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        await handle.signal(it.W.end)
        await settled(runtime)
        monkeypatch.setattr(WorkflowActor, "put", then_rebuild)
        async with asyncio.timeout(5):
            await told_to_stop(runtime, it)


async def test_what_stops_without_being_asked_fails():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        await runtime.activity_handle(it.tokens[0]).report_cancelled()
        await it.is_left(runtime, 2)  # repeated, as any failure
        await handle.terminate()


async def test_a_try_cancel_makes_the_token_stale():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        await handle.signal(it.W.end)
        assert await handle.result() == "cancelled"
        for call in ("complete", "report_cancelled", "heartbeat"):
            with pytest.raises(ActivityNotPendingError):
                await getattr(runtime.activity_handle(it.tokens[0]), call)()


async def test_an_answer_that_does_not_fit_is_an_error_of_the_call():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        asked = runtime.activity_handle(it.tokens[0])
        with pytest.raises(PayloadEncodeError, match="result of activity asks"):
            await asked.complete("many")
        with pytest.raises(TypeError, match="the error itself"):
            await asked.fail("many")
        await asked.complete(5)
        assert await handle.result() == 5


@contextlib.contextmanager
def one_commit_fails(now=lambda: True):
    """Let one commit fail, as soon as it may; gives a list that is empty from then on."""
    left = [1]

    def fail():
        if left and now():
            left.pop()
            raise OSError("disk")

    with armed("journal.commit.before", fail):
        yield left


async def test_an_answer_through_a_failed_commit_is_told_so_and_not_lost():
    it = Outside()
    journal = MemoryJournal()
    async with hosted(journal, it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)

        with one_commit_fails():
            with pytest.raises(Exception) as caught:
                await runtime.activity_handle(it.tokens[0]).complete(8)
            assert type(caught.value).__name__ == "CommitUnknownError"
            assert await handle.result() == 8


async def test_that_an_attempt_is_left_goes_through_a_failed_commit():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        with one_commit_fails(lambda: it.tokens) as left:
            handle = await it.spawn(runtime)
        assert not left and len(it.tokens) == 1
        await runtime.activity_handle(it.tokens[0]).complete(9)
        assert await handle.result() == 9


@pytest.mark.parametrize(
    ("wrong", "error"),
    [("", ValueError), ("abc", ValueError), ("öö", ValueError), (7, TypeError), (b"x", TypeError)],
)
async def test_what_is_no_token_is_named(wrong, error):
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        with pytest.raises(error, match="task token"):
            runtime.activity_handle(wrong)


async def test_a_handle_needs_a_token_or_ids():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        with pytest.raises(TypeError, match="needs a task token, or workflow_id and command"):
            runtime.activity_handle(workflow_id="a")
        with pytest.raises(TypeError, match="not both"):
            runtime.activity_handle("x", workflow_id="a")
        with pytest.raises(WorkflowNotFoundError):
            await runtime.activity_handle(workflow_id="none", command=1).complete()


async def test_tokens_are_text_for_urls():
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        await it.spawn(runtime)
        token = it.tokens[0]
        assert token.isascii() and token.replace("-", "").replace("_", "").replace("=", "").isalnum()
        assert "workflow 'a'" in repr(runtime.activity_handle(token))


@contextlib.asynccontextmanager
async def during_a_rebuild(runtime, monkeypatch, lost):
    """Let the commit of what ``lost`` does fail; the block, which gets its task, still sees the old objects.

    The rebuild goes on at the block's first pause.
    """
    begun, rebuild_it = [], rebuilding.recovery.rebuild

    def later(shard):
        begun.append(shard)
        while not goes_on:
            yield
        yield from rebuild_it(shard)

    goes_on = []
    monkeypatch.setattr(rebuilding, "REBUILD_SLICE", -1.0)  # it pauses at each step
    with monkeypatch.context() as patch, one_commit_fails():
        patch.setattr(rebuilding.recovery, "rebuild", later)
        task = asyncio.create_task(lost)
        await until(lambda: begun)
        asyncio.get_running_loop().call_soon(goes_on.append, True)
        yield task


async def test_a_heartbeat_is_not_told_of_a_cancel_that_was_lost(monkeypatch):
    """R5: what only a lost turn has decided reaches nobody, not even whoever asked in between."""
    it = Outside(cancellation="wait_cancellation_completed")
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        outside = runtime.activity_handle(it.tokens[0])
        async with during_a_rebuild(runtime, monkeypatch, handle.signal(it.W.end)) as signal:
            assert runtime._shard.find("a").state.activities[1].cancel, "it looks as if it was asked to stop"
            await outside.heartbeat()
        with pytest.raises(CommitUnknownError):
            await signal
        await outside.heartbeat("half")
        await handle.signal(it.W.end)
        await until(lambda: runtime._shard.find("a").state.activities[1].cancel)
        with pytest.raises(ActivityCancelledError, match="asked activity 'asks' to stop"):
            await outside.heartbeat("more")
        await outside.report_cancelled()
        assert await handle.result() == "cancelled"


async def test_an_end_that_was_lost_refuses_no_completion(monkeypatch):
    """The activity was given up in a turn that is lost: it is pending, and takes its result."""
    it = Outside()
    async with hosted(MemoryJournal(), it.W, activities=[it.fn]) as runtime:
        handle = await it.spawn(runtime)
        async with during_a_rebuild(runtime, monkeypatch, handle.signal(it.W.end)) as signal:
            assert not runtime._shard.find("a").state.activities, "it looks as if nobody waits"
            await runtime.activity_handle(it.tokens[0]).complete(8)
        with pytest.raises(CommitUnknownError):
            await signal
        assert await handle.result() == 8

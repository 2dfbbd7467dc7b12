"""Cancelling one activity: asking and going on, waiting until it is over, letting it go on (A07); how it is told."""

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.codecs import InThreads
from support.hosting import gate, hosted, kinds, settled, tick, until

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import CommitUnknownError, WorkflowCancelledError, WorkflowHeldError
from everact.journal import events as ev
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal

WAIT = "wait_cancellation_completed"
LET_END = "wait_completed"
BOTH_WAITS = pytest.mark.parametrize("cancellation", [WAIT, LET_END])
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)
CODECS = pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])


class Told:
    """An activity that waits, and what it saw when it was told to stop."""

    def __init__(self, colour, result=None, slow=False, **options):
        self.begun, self.may_end, self.seen = threading.Event(), threading.Event(), []
        if not slow:
            self.may_end.set()

        async def waits() -> str:
            self.begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.seen.append(activity.is_cancelled())
                while not self.may_end.is_set():
                    await asyncio.sleep(0.001)
                if result is not None:
                    return result
                raise
            return "?"

        def waits_in_thread() -> str:
            self.begun.set()
            try:
                while True:
                    time.sleep(0.001)
            except asyncio.CancelledError:
                self.seen.append(activity.is_cancelled())
                self.may_end.wait(20)
                if result is not None:
                    return result
                raise

        fn = waits if colour == "async" else waits_in_thread
        self.fn = activity.defn(name="waits", **options)(fn)


COLOURS = pytest.mark.parametrize("colour", ["async", "thread"])


def canceller(told, cancellation, then=None):
    @workflow.defn(name="Canceller")
    class Canceller:
        def __init__(self) -> None:
            self.stop = False
            self.after: list[str] = []

        @workflow.signal
        def end(self) -> None:
            self.stop = True

        @workflow.query
        def look(self) -> list[str]:
            return self.after

        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(told.fn, cancellation_type=cancellation)
            await workflow.wait_condition(lambda: self.stop)
            handle.cancel()
            handle.cancel()  # R10: one command
            self.after.append("asked")
            try:
                outcome = f"result {await handle}"
            except asyncio.CancelledError:
                outcome = "cancelled"
            except ActivityError as error:
                outcome = f"{error.retry_state}: {error.__cause__}"
            if then is not None:
                outcome += f" {await then.fn('x')}"
            return outcome

    return Canceller


@CODECS
@COLOURS
async def test_waiting_ends_when_the_activity_really_is_over(colour, codecs):
    told = Told(colour, slow=True)
    W = canceller(told, WAIT)
    async with hosted(MemoryJournal(), W, activities=[told.fn], codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: told.seen)  # pushed: it has sent no heartbeat
        await settled(runtime)
        assert (await handle.describe()).status == "running"
        assert (await handle.describe()).pending_activities[0].cancel_requested
        assert await handle.query(W.look) == ["asked"]
        told.may_end.set()
        assert await handle.result() == "cancelled"
        history = await handle.fetch_history()
    assert told.seen == [True]
    assert kinds(history).count("ActivityCancelRequested") == 1
    assert kinds(history).count("ActivityCancelled") == 1


@COLOURS
async def test_an_activity_that_finishes_all_the_same_gives_its_result_to_who_waits(colour):
    told = Told(colour, result="done anyway")
    W = canceller(told, WAIT)
    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        assert await handle.result() == "result done anyway"


@COLOURS
async def test_asking_does_not_wait(colour):
    told = Told(colour, slow=True)
    W = canceller(told, "try_cancel")
    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        assert await handle.result() == "cancelled"
        await until(lambda: told.seen)
        told.may_end.set()
    assert told.seen == [True]


@COLOURS
async def test_an_abandoned_activity_is_not_told_and_goes_on_behind_the_end_of_its_run(colour):
    told = Told(colour)
    W = canceller(told, "abandon")
    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        assert await handle.result() == "cancelled"
        await settled(runtime)
        assert told.seen == [], "neither the cancel nor the end of the run tells it"
        slots = runtime.activity_slots()
        assert slots.running + slots.running_threads == 1
    assert told.seen == [True], "leaving the runtime does"


@pytest.mark.parametrize("cancellation", ["try_cancel", WAIT, "abandon"])
async def test_what_is_scheduled_and_cancelled_in_one_turn_is_never_begun(cancellation):
    """R10; for ``abandon`` too: there is nothing yet to let go on."""
    one = gate()
    one.open.set()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(one.fn, "x", cancellation_type=cancellation)
            handle.cancel()
            handle.cancel()
            try:
                await handle
            except asyncio.CancelledError:
                await workflow.sleep(0.001)
                return "cancelled"
            return "through"

    journal = MemoryJournal()
    async with hosted(journal, W, activities=[one.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="w")
        assert await handle.result() == "cancelled"
        history = await handle.fetch_history()
        assert kinds(history).count("ActivityCancelRequested") == 1
        assert not runtime._shard.actors
    async with hosted(journal, W, activities=[one.fn]) as runtime:
        await settled(runtime)
        assert one.calls == []


async def test_what_an_earlier_turn_has_started_goes_on_when_it_is_abandoned_before_it_began():
    """The only slot is taken: the abandoned one begins when that is free."""
    first, second = gate("first"), gate("second")
    second.open.set()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            blocker = workflow.start_activity(first.fn, "x")
            handle = workflow.start_activity(second.fn, "y", cancellation_type="abandon")
            await asyncio.wait([handle], timeout=0.001)
            handle.cancel()
            return await blocker

    async with hosted(
        MemoryJournal(), W, activities=[first.fn, second.fn], max_concurrent_activities=1
    ) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: "ActivityCancelRequested" in seen(runtime))
        first.open.set()
        await handle.result()
        await until(lambda: second.calls == ["y"])


def seen(runtime):
    """Kinds of the events of the only run."""
    (actor,) = runtime._shard.actors.values()
    records = runtime._shard.records(actor)
    return [type(event).__name__ for _, record in records for event in getattr(record, "outputs", ())]


async def test_an_abandoned_activity_that_ends_while_its_run_goes_on_is_recorded_and_unseen():
    gated, then = gate(), gate("then")
    gated.fn_ = gated.fn

    class Told_:
        fn = activity.defn(name="g")(lambda_async(gated))

    W = canceller(Told_, "abandon", then)
    async with hosted(MemoryJournal(), W, activities=[Told_.fn, then.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: gated.calls)
        await handle.signal(W.end)
        await until(lambda: then.calls)
        gated.open.set()
        await until(lambda: 1 not in runtime._shard.find(handle.workflow_id).state.activities)
        then.open.set()
        assert await handle.result() == "cancelled through"
        assert "ActivityCompleted" in kinds(await handle.fetch_history())


def lambda_async(gated):
    async def fn() -> str:
        gated.calls.append("x")
        await gated.open.wait()
        return "late"

    return fn


@COLOURS
async def test_an_error_on_the_way_out_is_no_further_attempt(colour):
    class Fails:
        begun = threading.Event()

    async def waits() -> None:
        Fails.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("clean-up failed") from None

    def waits_in_thread() -> None:
        Fails.begun.set()
        try:
            while True:
                time.sleep(0.001)
        except asyncio.CancelledError:
            raise ValueError("clean-up failed") from None

    Fails.fn = activity.defn(name="waits", retry_policy=QUICK)(
        waits if colour == "async" else waits_in_thread
    )
    W = canceller(Fails, WAIT)
    async with hosted(MemoryJournal(), W, activities=[Fails.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(Fails.begun.is_set)
        await handle.signal(W.end)
        assert await handle.result() == "cancelled: ValueError: clean-up failed"


async def test_one_that_never_ends_is_waited_for_until_its_limit():
    told = Told("async", slow=True, start_to_close_timeout=30)
    clock = ManualClock()
    W = canceller(told, WAIT)
    async with hosted(MemoryJournal(), W, activities=[told.fn], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: told.seen)
        clock.advance(31)
        runtime._shard.dispatcher.pool.deadlines.check()
        result = await handle.result()
        told.may_end.set()
    assert result.startswith(
        "cancelled: attempt 1 of activity 'waits' took longer than start_to_close_timeout=30 s"
    )


@BOTH_WAITS
async def test_one_that_waits_for_its_next_attempt_is_over_at_once(cancellation):
    """A10"""
    clock = ManualClock()

    class Fails:
        calls = 0

    @activity.defn
    async def fails() -> None:
        Fails.calls += 1
        raise OSError("down")

    Fails.fn = fails
    W = canceller(Fails, cancellation)
    async with hosted(MemoryJournal(), W, activities=[fails], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: runtime._shard.timers._heap)
        await handle.signal(W.end)
        assert await handle.result() == "cancelled"
        await tick(runtime, clock, 100)
    assert Fails.calls == 1


@BOTH_WAITS
async def test_one_that_waits_for_a_slot_is_over_at_once_and_never_begins(cancellation):
    blocker, told = gate("blocker"), Told("async")
    W = canceller(told, cancellation)

    @workflow.defn
    class Blocks:
        @workflow.run
        async def run(self) -> None:
            await blocker.fn("x")

    async with hosted(
        MemoryJournal(), W, Blocks, activities=[told.fn, blocker.fn], max_concurrent_activities=1
    ) as runtime:
        await runtime.spawn(Blocks.run)
        await until(lambda: blocker.calls)
        handle = await runtime.spawn(W.run)
        await settled(runtime)
        assert runtime.activity_slots()[:2] == (1, 1)
        await handle.signal(W.end)
        assert await handle.result() == "cancelled"
        assert runtime.activity_slots()[:2] == (1, 0)
        blocker.open.set()
    assert not told.begun.is_set()


@BOTH_WAITS
async def test_one_that_is_started_and_cancelled_in_one_turn_never_begins(cancellation):
    """R10"""
    told = Told("async")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            handle = workflow.start_activity(told.fn, cancellation_type=cancellation)
            handle.cancel()
            try:
                await handle
            except asyncio.CancelledError:
                return "cancelled"
            return "?"

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        assert await runtime.execute(W.run) == "cancelled"
    assert not told.begun.is_set()


@CODECS
async def test_after_a_restart_what_was_asked_to_stop_is_over(codecs):
    told = Told("async", slow=True)
    W = canceller(told, WAIT)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[told.fn], codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: told.seen)
        told.may_end.set()
        runtime._shard.dispatcher.pool._ended = lambda *_: None  # its end is not taken any more
    told.begun.clear()
    async with hosted(journal, W, activities=[told.fn], codecs=codecs) as runtime:
        assert await runtime.ref("a", W).result() == "cancelled"
    assert not told.begun.is_set()


@CODECS
@pytest.mark.parametrize("bad", range(1, 5))
@COLOURS
async def test_a_cancel_that_waits_goes_through_failed_commits(colour, bad, codecs):
    """R5: whichever commit fails, the activity is told once it is durable, and its end is not lost."""
    told = Told(colour)
    W = canceller(told, WAIT)
    async with hosted(MemoryJournal(), W, activities=[told.fn], codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await settled(runtime)
        passes = []

        def fail():
            passes.append(1)
            if len(passes) == bad:
                raise OSError("disk")

        with armed("journal.commit.before", fail):
            while True:
                try:
                    await handle.signal(W.end, request_id="end")
                    break
                except CommitUnknownError:
                    assert len(passes) >= bad
                    await asyncio.sleep(0)  # let the rebuild go on
            while True:
                try:
                    assert await handle.result() == "cancelled"
                    break
                except CommitUnknownError:  # it waited for the very commit that failed
                    assert len(passes) >= bad
                    await asyncio.sleep(0)  # let the rebuild go on
        history = await handle.fetch_history()
    assert told.seen == [True]
    assert kinds(history).count("ActivityCancelled") == 1


@pytest.mark.parametrize("cancellation", ["try_cancel", WAIT, "abandon"])
async def test_the_cancel_of_a_run_cancels_what_it_waits_for_in_the_same_way(cancellation):
    told = Told("async", slow=True)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(told.fn, cancellation_type=cancellation)

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.cancel("enough")
        if cancellation == WAIT:
            await until(lambda: told.seen)
            await settled(runtime)
            assert (await handle.describe()).status == "running"
        told.may_end.set()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        if cancellation == "abandon":
            assert told.seen == []


async def test_a_result_that_comes_all_the_same_leaves_the_cancel_of_the_run_for_its_next_await():
    told = Told("async", result="done anyway")
    seen = []

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            seen.append(await workflow.execute_activity(told.fn, cancellation_type=WAIT))
            await workflow.sleep(3600)

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
    assert set(seen) == {"done anyway"}


async def test_a_time_limit_in_the_code_waits_too():
    told = Told("async", slow=True)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                async with asyncio.timeout(0.01):
                    await workflow.execute_activity(told.fn, cancellation_type=WAIT)
            except TimeoutError:
                return "too late"
            return "?"

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: told.seen)
        await settled(runtime)
        assert (await handle.describe()).status == "running"
        told.may_end.set()
        assert await handle.result() == "too late"


async def test_a_task_that_is_cancelled_before_its_first_step_waits_for_the_activity_as_well():
    told = Told("async", slow=True)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            task = asyncio.create_task(workflow.execute_activity(told.fn, cancellation_type=WAIT))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                return "cancelled"
            return "?"

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        assert await runtime.execute(W.run) == "cancelled"


async def test_code_that_cancels_in_another_way_than_it_did_is_held():
    told = Told("async", slow=True)
    journal = MemoryJournal()
    W = canceller(told, WAIT)
    async with hosted(journal, W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: told.seen)
        await settled(runtime)
        runtime._shard.dispatcher.pool._ended = lambda *_: None
        told.may_end.set()
    other = canceller(told, "abandon")
    async with hosted(journal, other, activities=[told.fn]) as runtime:
        with pytest.raises(WorkflowHeldError, match="waiting until it is over.*letting it go on"):
            await runtime.ref("a", other).result()


def test_an_unknown_way_to_cancel_is_named():
    with pytest.raises(
        ValueError, match="cancellation_type must be one of 'try_cancel', 'wait_canc.*not 'wait'"
    ):
        activity.defn(cancellation_type="wait")(lambda_async(None))


# --- in threads ---------------------------------------------------------------------------------------------------


async def test_nothing_interrupts_a_shielded_block_and_its_end_does():
    begun, go, seen = threading.Event(), threading.Event(), []

    class Told_:
        pass

    @activity.defn(name="waits")
    def waits() -> None:
        with activity.shield_thread_cancel_exception():
            begun.set()
            seen.append(activity.wait_for_cancelled_sync(20))
            go.wait(20)
            seen.append("whole")
        seen.append("never")

    Told_.fn = waits
    W = canceller(Told_, WAIT)
    async with hosted(MemoryJournal(), W, activities=[waits]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(begun.is_set)
        await handle.signal(W.end)
        await until(lambda: seen)
        go.set()
        assert await handle.result() == "cancelled"
    assert seen == [True, "whole"]


async def test_a_shield_is_for_threads():
    @activity.defn
    async def wrong() -> str:
        try:
            with activity.shield_thread_cancel_exception():
                pass
        except RuntimeError as error:
            return str(error)
        return ""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            return await wrong()

    async with hosted(MemoryJournal(), W, activities=[wrong]) as runtime:
        assert "asyncio.shield" in await runtime.execute(W.run)


async def test_an_interrupt_never_arrives_outside_the_code_of_its_attempt():
    """Cancels race with ends, over and over: no thread dies, no other attempt gets it."""
    ran, wrong = [], []

    @activity.defn(name="short", retry_policy=RetryPolicy(maximum_attempts=1))
    def short() -> None:
        for _ in range(200):
            pass

    @activity.defn(name="other", retry_policy=RetryPolicy(maximum_attempts=1))
    def other() -> None:
        try:
            for _ in range(200):
                pass
            ran.append(1)
        except BaseException as error:
            wrong.append(error)
            raise

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            for _ in range(100):
                handle = workflow.start_activity(short, cancellation_type=WAIT)
                await workflow.sleep(0.0005)
                handle.cancel()
                try:
                    await handle
                except asyncio.CancelledError:
                    pass
                await workflow.execute_activity(other)

    async with hosted(MemoryJournal(), W, activities=[short, other], max_activity_threads=1) as runtime:
        await runtime.execute(W.run)
        assert runtime.activity_slots().lost_threads == ()
        assert runtime._shard.dispatcher.pool.threads._threads._names <= 2
    assert (len(ran), wrong) == (100, [])


async def test_a_beside_task_hears_of_the_cancel_and_threads_may_ask():
    seen = []
    begun = asyncio.Event()

    @activity.defn(name="waits")
    async def waits() -> None:
        assert not activity.is_cancelled()

        async def beside() -> None:
            await activity.wait_for_cancelled()
            seen.append("told")

        task = asyncio.create_task(beside())
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.wait([task])

    class Told_:
        fn = waits

    W = canceller(Told_, WAIT)
    async with hosted(MemoryJournal(), W, activities=[waits]) as runtime:
        handle = await runtime.spawn(W.run)
        await begun.wait()
        await handle.signal(W.end)
        assert await handle.result() == "cancelled"
    assert seen == ["told"]


def test_the_journal_says_how_an_activity_was_cancelled():
    assert (ev.TRY_CANCEL, ev.WAIT_CANCELLED, ev.ABANDON, ev.WAIT_COMPLETED) == (0, 1, 2, 3), "stored"


# --- work that nobody breaks into


class Asks:
    """An activity that ends once it sees that it may stop; what it did by then, and how often it began."""

    def __init__(self, colour, *, raises=False):
        self.seen: list[str] = []
        self.begun = threading.Event()

        def over(is_told) -> str:
            self.seen.append(f"told {is_told}")
            if raises:
                raise asyncio.CancelledError
            return "whole"

        async def asks() -> str:
            self.begun.set()
            await activity.wait_for_cancelled()
            await asyncio.sleep(0)
            return over(activity.is_cancelled())

        def asks_in_thread() -> str:
            self.begun.set()
            told = activity.wait_for_cancelled_sync(20)
            sum(range(100_000))  # bytecodes at which an interrupt would come
            return over(told)

        self.fn = activity.defn(name="asks")(asks if colour == "async" else asks_in_thread)


@CODECS
@COLOURS
@pytest.mark.parametrize("raises", [False, True])
async def test_one_that_is_not_broken_into_hears_of_the_cancel_when_it_asks(colour, codecs, raises):
    asks = Asks(colour, raises=raises)
    W = canceller(asks, LET_END)
    async with hosted(MemoryJournal(), W, activities=[asks.fn], codecs=codecs) as runtime:
        handle = await runtime.spawn(W.run)
        await until(asks.begun.is_set)
        await handle.signal(W.end)
        assert await handle.result() == ("cancelled" if raises else "result whole")
        history = await handle.fetch_history()
    assert asks.seen == ["told True"]
    assert kinds(history).count("ActivityCancelRequested") == 1


@COLOURS
async def test_one_that_does_not_ask_goes_on_to_its_end(colour):
    told = Told(colour)
    told.may_end.clear()

    async def works() -> str:
        told.begun.set()
        while not told.may_end.is_set():
            await asyncio.sleep(0.001)
        return "whole"

    def works_in_thread() -> str:
        told.begun.set()
        told.may_end.wait(20)
        return "whole"

    told.fn = activity.defn(name="works")(works if colour == "async" else works_in_thread)
    W = canceller(told, LET_END)
    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await settled(runtime)
        described = await handle.describe()
        assert (described.status, described.pending_activities[0].cancel_requested) == ("running", True)
        told.may_end.set()
        assert await handle.result() == "result whole"


@CODECS
async def test_after_a_restart_it_runs_again_so_that_it_is_known_what_it_did(codecs):
    """The attempt may have done its work when the process ended: the next one finds out."""
    asks = Asks("async")
    W = canceller(asks, LET_END)
    journal = MemoryJournal()
    async with hosted(journal, W, activities=[asks.fn], codecs=codecs) as runtime:
        runtime._shard.dispatcher.pool._report = lambda *_: None  # its end is not taken any more
        handle = await runtime.spawn(W.run, id="a")
        await until(asks.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: asks.seen)
    async with hosted(journal, W, activities=[asks.fn], codecs=codecs) as runtime:
        assert await runtime.ref("a", W).result() == "result whole"
    assert asks.seen == ["told True", "told True"]


async def test_a_terminated_run_breaks_into_it_all_the_same():
    told = Told("async")
    W = canceller(told, LET_END)
    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await settled(runtime)
        assert told.seen == []
        await handle.terminate("now")
        await until(lambda: told.seen)


async def test_a_history_of_one_that_was_told_to_stop_goes_on_under_code_that_lets_it_end():
    """How a run waits for an end it has asked for is the activity's business: it changes no decision."""
    told, journal = Told("async", slow=True), MemoryJournal()
    W = canceller(told, WAIT)
    async with hosted(journal, W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(told.begun.is_set)
        await handle.signal(W.end)
        await until(lambda: told.seen)
        runtime._shard.dispatcher.pool._ended = lambda *_: None
        told.may_end.set()
    W = canceller(told, LET_END)
    async with hosted(journal, W, activities=[told.fn]) as runtime:
        assert await runtime.ref("a", W).result() == "cancelled"


@pytest.mark.parametrize("cancellation", [WAIT, LET_END])
@pytest.mark.parametrize("how", ["limit", "task", "group"])
async def test_a_result_that_comes_all_the_same_leaves_a_limit_or_a_cancel_for_the_next_await(
    how, cancellation
):
    """A07: neither is lost, and what was done is known."""
    told = Told("async", result="done", slow=True) if cancellation == WAIT else Asks("async")
    log = []

    @workflow.defn
    class W:
        async def work(self) -> str:
            log.append(await workflow.execute_activity(told.fn, cancellation_type=cancellation))
            await asyncio.sleep(3600)
            return "never"

        @workflow.run
        async def run(self) -> str:
            if how == "limit":
                try:
                    async with asyncio.timeout(0.01):
                        return await self.work()
                except TimeoutError:
                    return "too late"
            if how == "task":
                task = asyncio.create_task(self.work())
                await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.wait([task])
                return f"cancelled {task.cancelled()}"
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.work())
                    await asyncio.sleep(0.01)
                    raise ApplicationError("of another one")
            except ExceptionGroup as errors:
                return str([str(error) for error in errors.exceptions])

    async with hosted(MemoryJournal(), W, activities=[told.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        if cancellation == WAIT:
            await until(lambda: told.seen)
            told.may_end.set()
        result = await handle.result(timeout=10)
    assert set(log) == {"done" if cancellation == WAIT else "whole"}
    assert result == {"limit": "too late", "task": "cancelled True", "group": "['of another one']"}[how]


async def test_code_that_takes_the_result_and_ends_is_not_cancelled():
    asks = Asks("async")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            async with asyncio.timeout(0.01):
                result = await workflow.execute_activity(asks.fn, cancellation_type=LET_END)
            await asyncio.sleep(0.01)
            return result

    async with hosted(MemoryJournal(), W, activities=[asks.fn]) as runtime:
        assert await runtime.execute(W.run) == "whole"

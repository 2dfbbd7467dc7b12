"""``workflow.complete`` and ``workflow.cancel``: a run ends or cancels itself, from wherever its code is."""

import asyncio

import pytest
from support.hosting import gate, hosted, kinds, settled, until

from everact import ApplicationError, activity, workflow
from everact.exceptions import (
    QueryFailedError,
    UpdateCutError,
    UpdateFailedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowHeldError,
)
from everact.journal.memory_store import MemoryJournal


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.cleaned = False

    @workflow.run
    async def run(self) -> int:
        try:
            await workflow.wait_condition(lambda: False)
        finally:
            self.cleaned = True
            await workflow.sleep(1)
        return 0

    @workflow.signal
    def note(self, text: str) -> None:
        self.seen.append(text)

    @workflow.signal
    def finish(self, result: int) -> None:
        workflow.complete(result)

    @workflow.signal
    async def finish_twice(self) -> None:
        workflow.complete(1)
        workflow.complete(2)

    @workflow.update
    def finish_now(self, result: int) -> str:
        workflow.complete(result)
        return "done"

    @workflow.update
    async def finish_soon(self, result: int) -> str:
        await asyncio.sleep(0)
        workflow.complete(result)
        await asyncio.sleep(0)
        return "done soon"

    @workflow.update
    async def finish_and_wait(self) -> str:
        workflow.complete(3)
        await workflow.sleep(10)
        return "never"

    @workflow.update
    def finish_wrongly(self) -> None:
        workflow.complete("no number")

    @workflow.update
    def stop(self, why: str) -> str:
        workflow.cancel(why)
        workflow.cancel("once more")
        return f"stopping, asked={workflow.cancellation_requested()}"

    @workflow.query
    def notes(self) -> list[str]:
        return self.seen

    @workflow.query
    def is_cleaned(self) -> bool:
        return self.cleaned

    @workflow.query
    def completes(self) -> None:
        workflow.complete(1)

    @workflow.query
    def cancels(self) -> None:
        workflow.cancel()


async def test_a_signal_ends_the_run_with_a_result():
    journal = MemoryJournal()
    async with hosted(journal, Order) as runtime:
        handle = await runtime.spawn(Order.run, id="o")
        await handle.signal(Order.note, "one")
        await handle.signal(Order.finish, 7)
        assert await handle.result() == 7
        with pytest.raises(WorkflowClosedError):
            await handle.signal(Order.note, "late")
        history = await handle.fetch_history()
        assert kinds(history)[-1] == "WorkflowCompleted"
        assert "TimerStarted" not in kinds(history)
        assert await handle.query(Order.notes) == ["one"]
    async with hosted(journal, Order) as runtime:  # the closed run's code is replayed
        handle = runtime.ref("o", Order)
        assert await handle.result() == 7
        assert await handle.query(Order.notes) == ["one"]
        assert await handle.query(Order.is_cleaned) is False


@pytest.mark.parametrize(
    ("update", "answer"),
    [(Order.finish_now, "done"), (Order.finish_soon, "done soon")],
    ids=["plain", "async"],
)
async def test_the_update_that_ends_the_run_is_answered(update, answer):
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        assert await handle.execute_update(update, 5) == answer
        assert await handle.result() == 5
        assert kinds(await handle.fetch_history())[-2:] == ["UpdateCompleted", "WorkflowCompleted"]


async def test_an_update_that_waits_on_is_cut():
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        with pytest.raises(UpdateCutError, match="it ended before update 'finish_and_wait' was done"):
            await handle.execute_update(Order.finish_and_wait)
        assert await handle.result() == 3
        assert (await handle.describe()).timers == ()


async def test_the_first_call_counts():
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        await handle.signal(Order.finish_twice)
        assert await handle.result() == 1


async def test_the_result_is_checked_at_the_call():
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        with pytest.raises(UpdateFailedError, match=r"result of workflow Order.*int") as caught:
            await handle.execute_update(Order.finish_wrongly)
        assert caught.value.__cause__ is not None
        assert (await handle.describe()).status == "running"
        await handle.signal(Order.finish, 1)
        assert await handle.result() == 1


@pytest.mark.parametrize("query", [Order.completes, Order.cancels])
async def test_queries_may_not(query):
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        with pytest.raises(QueryFailedError, match="queries and validators may not call"):
            await handle.query(query)
        assert (await handle.describe()).status == "running"


async def test_messages_received_before_the_end_are_all_handled_in_order():
    """R1 b: the turn that would end the run takes the messages that were received before."""
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        await handle.pause()
        await handle.signal(Order.note, "before")
        await handle.signal(Order.finish, 4)
        await handle.signal(Order.note, "behind")
        await handle.signal(Order.finish, 5)
        asked = asyncio.create_task(handle.execute_update(Order.finish_now, 6))
        await settled(runtime)
        await handle.resume()
        assert await handle.result() == 4
        assert await asked == "done"
        assert await handle.query(Order.notes) == ["before", "behind"]
        assert (await handle.describe()).dead_letters == ()


async def test_main_that_ends_first_stands_and_one_that_ends_later_does_not():
    @workflow.defn
    class Racing:
        def __init__(self) -> None:
            self.go = False

        @workflow.run
        async def run(self, fails: bool) -> str:
            await workflow.wait_condition(lambda: self.go)
            if fails:
                raise ApplicationError("too late to matter")
            return "main"

        @workflow.signal
        async def both(self) -> None:
            self.go = True
            workflow.complete("handler")

        @workflow.signal
        async def after(self) -> None:
            self.go = True
            await workflow.wait_condition(lambda: self.go and workflow.all_handlers_finished())

    async with hosted(MemoryJournal(), Racing) as runtime:
        for fails in (False, True):
            handle = await runtime.spawn(Racing.run, fails)
            await handle.signal(Racing.both)
            assert await handle.result() == "handler"
            failed = [e for e in await handle.fetch_history() if e.kind == "TaskFailed"]
            assert [e.event.task for e in failed] == (["main"] if fails else [])


async def test_a_call_after_main_has_ended_does_nothing():
    @workflow.defn
    class Late:
        @workflow.run
        async def run(self) -> str:
            main = asyncio.current_task()

            async def later() -> None:
                while not main.done():
                    await asyncio.sleep(0)
                workflow.complete("later")

            self.task = asyncio.create_task(later())
            return "main"

    async with hosted(MemoryJournal(), Late) as runtime:
        assert await runtime.execute(Late.run) == "main"


async def test_main_may_end_itself_and_what_it_asks_for_then_never_leaves():
    calls = []

    @activity.defn
    async def charge() -> None:
        calls.append("charge")

    @workflow.defn
    class Self:
        @workflow.run
        async def run(self) -> str:
            workflow.complete("early")
            await charge()
            return "late"

    async with hosted(MemoryJournal(), Self, activities=[charge]) as runtime:
        handle = await runtime.spawn(Self.run)
        assert await handle.result() == "early"
        await settled(runtime)
        assert kinds(await handle.fetch_history()) == [
            "WorkflowStarted",
            "ActivityScheduled",
            "WorkflowCompleted",
        ]
    assert calls == []


async def test_a_message_before_the_first_turn_and_init_may_end_the_run():
    @workflow.defn
    class Early:
        @workflow.init
        def __init__(self, how: str) -> None:
            if how == "complete":
                workflow.complete("init")
            if how == "cancel":
                workflow.cancel("init")

        @workflow.run
        async def run(self, how: str) -> str:
            self.how = how
            try:
                await workflow.wait_condition(lambda: False)
            finally:
                self.how = "entered"
            return "no"

        @workflow.query
        def state(self) -> str:
            return self.how

    async with hosted(MemoryJournal(), Early) as runtime:
        assert await runtime.execute(Early.run, "complete") == "init"
        handle = await runtime.spawn(Early.run, "cancel")
        with pytest.raises(WorkflowCancelledError, match="init"):
            await handle.result()
        assert await handle.query(Early.state) == "entered"  # R10: an unstarted main is entered


async def test_a_handler_cancels_the_run_and_main_cleans_up():
    cleanup = gate("cleanup")

    @workflow.defn
    class Trip:
        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                await workflow.execute_activity(cleanup.fn, "tidy")

        @workflow.update
        def stop(self) -> str:
            workflow.cancel("from inside")
            return "stopping"

    async with hosted(MemoryJournal(), Trip, activities=[cleanup.fn]) as runtime:
        handle = await runtime.spawn(Trip.run)
        assert await handle.execute_update(Trip.stop) == "stopping"
        await until(lambda: cleanup.calls)
        seen = await handle.describe()
        assert seen.cancel_requested
        await handle.cancel("from outside")  # a second request does nothing
        cleanup.open.set()
        with pytest.raises(WorkflowCancelledError, match="from inside"):
            await handle.result()
        history = kinds(await handle.fetch_history())
        assert history.count("CancelRequested") == 1
        assert history.count("TimerCancelled") == 1


async def test_the_update_that_cancels_the_run_is_answered_and_the_first_reason_stands():
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        assert await handle.execute_update(Order.stop, "enough") == "stopping, asked=True"
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await handle.result()


async def test_main_cancels_itself_at_its_next_await_only_once():
    @workflow.defn
    class Self:
        @workflow.run
        async def run(self) -> list[str]:
            seen = ["called"]
            workflow.cancel()
            seen.append("still here")
            try:
                await workflow.sleep(3600)
            except asyncio.CancelledError:
                seen.append("thrown")
            await asyncio.sleep(0)
            await workflow.sleep(0.001)
            seen.append(f"asked={workflow.cancellation_requested()}")
            return seen

    async with hosted(MemoryJournal(), Self) as runtime:
        handle = await runtime.spawn(Self.run)
        assert await handle.result() == ["called", "still here", "thrown", "asked=True"]


async def test_a_cancel_in_the_step_that_wakes_main_is_thrown_once():
    """Main's wake-up is under way: the throw takes the place of what it waited for."""

    @workflow.defn
    class Woken:
        def __init__(self) -> None:
            self.event = asyncio.Event()

        @workflow.run
        async def run(self) -> list[str]:
            seen = []
            for _ in range(3):
                try:
                    await self.event.wait()
                    seen.append("woken")
                except asyncio.CancelledError:
                    seen.append("thrown")
            return seen

        @workflow.signal
        async def wake(self) -> None:
            workflow.cancel()
            self.event.set()

    async with hosted(MemoryJournal(), Woken) as runtime:
        handle = await runtime.spawn(Woken.run)
        await handle.signal(Woken.wake)
        assert await handle.result() == ["thrown", "woken", "woken"]


async def test_a_request_from_outside_that_waits_behind_the_run_s_own_does_nothing():
    async with hosted(MemoryJournal(), Order) as runtime:
        handle = await runtime.spawn(Order.run)
        await handle.pause()
        asked = asyncio.create_task(handle.execute_update(Order.stop, "inside"))
        await settled(runtime)
        await handle.cancel("outside")
        await handle.resume()
        assert await asked == "stopping, asked=True"
        with pytest.raises(WorkflowCancelledError):
            await handle.result()


@pytest.mark.parametrize("change", ["complete", "cancel"])
async def test_code_that_no_longer_ends_itself_is_held(change):
    def version(acts):
        @workflow.defn(name="W")
        class W:
            @workflow.run
            async def run(self) -> int:
                await workflow.wait_condition(lambda: False)
                return 0

            @workflow.signal
            def end(self) -> None:
                if acts and change == "cancel":
                    workflow.cancel()
                    workflow.complete(1)
                elif acts:
                    workflow.complete(1)

            @workflow.query
            def look(self) -> str:
                return "fine"

        return W

    journal = MemoryJournal()
    before, after = version(True), version(False)
    async with hosted(journal, before) as runtime:
        handle = await runtime.spawn(before.run, id="w")
        await handle.signal(before.end)
        assert await handle.result() == 1
        assert await handle.query(before.look) == "fine"
    says = {"complete": "the end of run", "cancel": "the run's own cancel"}[change]
    async with hosted(journal, after) as runtime:
        with pytest.raises((QueryFailedError, WorkflowHeldError), match=says):
            await runtime.ref("w", after).query(after.look)


async def test_run_may_be_declared_with_parentheses():
    @workflow.defn
    class Called:
        @workflow.run()
        async def run(self) -> str:
            return "fine"

    async with hosted(MemoryJournal(), Called) as runtime:
        assert await runtime.execute(Called.run) == "fine"


async def test_a_run_that_is_completed_inside_a_saga_undoes_nothing():
    undone = []

    @activity.defn
    async def book() -> str:
        return "booked"

    @activity.defn
    async def unbook(what: str) -> None:
        undone.append(what)

    @workflow.defn
    class Trip:
        @workflow.run
        async def run(self) -> str:
            async with workflow.saga() as saga:
                await saga.run(book, compensate=unbook)
                await workflow.wait_condition(lambda: False)
            return "main"

        @workflow.signal
        def done(self) -> None:
            workflow.complete("as it is")

    async with hosted(MemoryJournal(), Trip, activities=[book, unbook]) as runtime:
        handle = await runtime.spawn(Trip.run, id="t")
        await until(lambda: runtime._shard.find("t").state.waiting)
        await handle.signal(Trip.done)
        assert await handle.result() == "as it is"
        await settled(runtime)
    assert undone == []

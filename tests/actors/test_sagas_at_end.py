"""When run ends while another task, or a handler, is inside a saga: what that has done is not lost."""

import asyncio
import contextlib

import pytest

from everact import ApplicationError, activity, workflow
from everact.exceptions import (
    UpdateFailedError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal
from everact.testing import (
    CompensationCompleted,
    TestEnvironment,
    WorkflowFailed,
    assert_compensated,
    assert_history,
    assert_not_compensated,
)

undone: list[str] = []
broken: dict[str, int] = {}


@activity.defn
async def do(what: str) -> str:
    return what


@activity.defn
async def undo(what: str) -> None:
    if broken.get(what, 0):
        broken[what] -= 1
        raise ApplicationError(f"{what} stays", non_retryable=True)
    if what not in undone:  # a crash may have cut the attempt before
        undone.append(what)


def environment(*workflows, **options):
    undone.clear()
    broken.clear()
    return TestEnvironment(workflows=workflows, activities=[do, undo], **options)


class Base:
    """Another task, or a handler, books; ``run`` ends meanwhile, as it is told."""

    def __init__(self) -> None:
        self.how = ""
        self.go_on = False

    async def book(self, policy: str = "retry", names: str = "ab") -> None:
        async with workflow.saga("trip", on_compensation_failure=policy) as saga:
            for what in names:
                await saga.run(do, what, name=what, compensate=undo)
            workflow.publish("booked", names)
            await workflow.wait_condition(lambda: self.go_on)

    async def end(self) -> str:
        await workflow.wait_condition(lambda: self.how)
        if self.how == "raise":
            raise ApplicationError("main has failed")
        if self.how == "bug":
            raise ZeroDivisionError("a bug of main")
        if self.how == "renew":
            workflow.continue_as_new("nothing")
        return "main is over"


@workflow.defn(name="Trips")
class Trips(Base):
    @workflow.signal
    def end_by(self, how: str) -> None:
        self.how = how

    @workflow.signal
    def proceed(self) -> None:
        self.go_on = True

    @workflow.update
    async def book_too(self) -> None:
        await self.book(names="u")

    @workflow.query
    def look(self) -> str:
        return self.how

    @workflow.run
    async def run(self, kind: str) -> str:
        if kind == "nothing":
            return "a new run"
        if kind != "handler":
            self.task = asyncio.create_task(self.book(kind), name="booking")
        return await self.end()


@workflow.defn(name="Trips", on_crash="fail")
class Fails(Trips):
    @workflow.run
    async def run(self, kind: str) -> str:
        return await Trips.run(self, kind)


@workflow.defn(name="Trips")
class Waits(Trips):
    """The same, mended: it waits for its task."""

    @workflow.run
    async def run(self, kind: str) -> str:
        if kind == "nothing":
            return "a new run"
        try:
            return await Trips.run(self, kind)
        finally:
            self.go_on = True
            await self.task


async def booked(env, cls, kind="retry"):
    handle = await env.spawn(cls.run, kind, id="s")
    await env.sleep(0)  # all that can be done is done
    assert "booked" in (await handle.describe()).published
    return handle


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (
            "return",
            "run must not return while saga 'trip' of another task has completed steps, or undoes them",
        ),
        ("renew", "run must not continue as new while saga 'trip' of another task has completed steps"),
    ],
)
async def test_run_must_not_end_well_and_mended_code_goes_on(how, text):
    journal = MemoryJournal()
    async with environment(Trips, journal=journal) as env:
        handle = await booked(env, Trips)
        await handle.signal(Trips.end_by, how)
        with pytest.raises(WorkflowQuarantinedError) as caught:
            await handle.result()
        assert text in str(caught.value)
        assert "workflow.wait_condition(workflow.all_handlers_finished)" in str(caught.value)
    assert undone == [], "a bug undoes nothing"
    async with environment(Waits, journal=journal) as env:
        handle = env.ref("s", Waits)
        await handle.release("mended")
        assert await handle.result() == ("main is over" if how == "return" else "a new run")
    assert undone == []


@pytest.mark.parametrize("how", ["return", "renew"])
async def test_where_bugs_fail_the_run_it_undoes_first(how):
    async with environment(Fails) as env:
        handle = await booked(env, Fails)
        await handle.signal(Trips.end_by, how)
        with pytest.raises(WorkflowFailedError, match="must not") as caught:
            await handle.result()
        assert caught.value.__cause__.type == "RuntimeError"
        assert undone == ["b", "a"]


@pytest.mark.crash_everywhere(limit=12)
async def test_a_run_that_fails_undoes_first():
    async with environment(Trips) as env:
        handle = await booked(env, Trips)
        await handle.signal(Trips.end_by, "raise")
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
        assert undone == ["b", "a"]
        history = await handle.fetch_history()
        assert_compensated(history, ["b", "a"], saga="trip")
        assert_history(history).has(CompensationCompleted(), times=2).then(WorkflowFailed())


async def test_a_bug_of_main_still_undoes_nothing():
    async with environment(Trips) as env:
        handle = await booked(env, Trips)
        await handle.signal(Trips.end_by, "bug")
        with pytest.raises(WorkflowQuarantinedError, match="a bug of main"):
            await handle.result()
        assert_not_compensated(await handle.fetch_history())


@pytest.mark.crash_everywhere(limit=12)
async def test_a_cancelled_run_undoes_first():
    async with environment(Trips) as env:
        handle = await booked(env, Trips)
        await handle.cancel("enough")
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await handle.result()
        assert undone == ["b", "a"]


async def test_the_saga_of_a_handler_is_undone_too_and_the_caller_hears_of_it():
    async with environment(Trips) as env:
        handle = await env.spawn(Trips.run, "retry", id="s")
        update = await handle.start_update(Trips.book_too)
        await env.sleep(0)
        assert (await handle.describe()).published["booked"] == "u"
        await handle.cancel("enough")
        with pytest.raises(UpdateFailedError):
            await update.result()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        assert_compensated(await handle.fetch_history(), ["a", "b", "u"], in_order=False)


async def test_while_it_undoes_the_run_is_open_in_each_life():
    async with environment(Trips) as env:
        broken["a"] = 1
        handle = await booked(env, Trips, "escalate")
        await handle.signal(Trips.end_by, "raise")
        with pytest.raises(WorkflowQuarantinedError, match="a stays"):
            await handle.result()
        await handle.cancel("too late: main is over")
        await env.restart()
        assert (await handle.describe()).status == "quarantined"
        await handle.release("again")
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
    assert undone == ["b", "a"]


@workflow.defn
class Late:
    """Its task goes on when it is cancelled, and enters another saga."""

    def __init__(self) -> None:
        self.go_on = False

    @workflow.signal
    def proceed(self) -> None:
        self.go_on = True

    async def two(self) -> None:
        async with workflow.saga("first") as saga:
            await saga.run(do, "first", compensate=undo)
            workflow.publish("booked", True)  # noqa: FBT003
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                await saga.run(do, "goodbye")
        async with workflow.saga("second") as saga:
            saga.add_compensation(undo, "second")
            await workflow.wait_condition(lambda: False)

    @workflow.run
    async def run(self, _kind: str) -> None:
        self.task = asyncio.create_task(self.two())
        await workflow.wait_condition(lambda: self.go_on)
        raise ApplicationError("main has failed")


async def test_each_saga_is_told_to_stop_while_run_waits_to_end():
    async with environment(Late) as env:
        handle = await booked(env, Late)
        await handle.signal(Late.proceed)
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
        assert undone == ["second"]


@workflow.defn
class Generates:
    @workflow.run
    async def run(self, _kind: str) -> None:
        async def places():
            async with workflow.saga("places") as saga:
                await saga.run(do, "x", compensate=undo)
                yield "x"
                yield "y"

        self.places = places()
        async for _place in self.places:
            raise ApplicationError("main has failed")


async def test_a_saga_in_a_generator_that_nobody_ends_is_not_lost_silently():
    async with environment(Generates) as env:
        handle = await env.spawn(Generates.run, "x")
        with pytest.raises(WorkflowQuarantinedError, match="saga 'places' cannot undo its completed steps"):
            await handle.result()
        assert undone == []


async def test_a_saga_without_completed_steps_does_not_hold_the_run():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self, _kind: str) -> str:
            async def waits():
                async with workflow.saga() as saga:
                    await saga.run(do, "x")
                    await workflow.wait_condition(lambda: False)

            self.task = asyncio.create_task(waits())
            await workflow.sleep(0.01)
            return "over"

    async with environment(W) as env:
        assert await env.execute(W.run, "x") == "over"


async def test_a_run_waits_until_what_was_completed_late_is_undone():
    @workflow.defn
    class W:
        async def undo_it(self, what: str) -> None:
            await workflow.execute_activity(undo, what)

        @workflow.step(compensate=undo_it)
        async def slow(self, what: str) -> str:
            await workflow.sleep(0.02)
            return what

        @workflow.run
        async def run(self, _kind: str) -> None:
            try:
                async with workflow.saga() as saga:
                    await saga.run(do, "x", compensate=undo)
                    self.task = asyncio.create_task(self.slow("late"))
                    await workflow.sleep(0.001)
                    raise ApplicationError("the block has failed")
            except ApplicationError:
                await self.task
            raise ApplicationError("main has failed")

    async with environment(W) as env:
        handle = await env.spawn(W.run, "x")
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
        assert undone == ["x", "late"]


async def test_queries_are_answered_and_mail_is_taken_while_it_undoes():
    async with environment(Trips) as env:
        undoing = env.mock_activity(undo, delay=60)
        handle = await booked(env, Trips)
        await handle.signal(Trips.end_by, "raise")
        await env.until(lambda: undoing.was_called)
        seen = await handle.describe()
        assert seen.status == "running"
        assert str(seen.sagas[0]) == "trip: 0 of 2 compensations done; undoing b"
        assert await handle.query(Trips.look) == "raise"
        await handle.signal(Trips.end_by, "other")
        assert await handle.query(Trips.look) == "other"
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
        assert [call.args for call in undoing.calls] == [("b",), ("a",)]


class Stubborn:
    """Its task swallows as many cancels as it is told, inside the block; main ends meanwhile."""

    def __init__(self) -> None:
        self.go_on = False

    @workflow.signal
    def proceed(self) -> None:
        self.go_on = True

    async def book(self, swallowed: int) -> None:
        async with workflow.saga("trip") as saga:
            await saga.run(do, "a", compensate=undo)
            workflow.publish("booked", True)  # noqa: FBT003
            for _ in range(swallowed):
                with contextlib.suppress(asyncio.CancelledError):
                    await workflow.wait_condition(lambda: False)
            await workflow.wait_condition(lambda: False)

    async def end(self) -> None:
        raise ApplicationError("main has failed")

    async def run(self, kind: str) -> None:
        self.task = asyncio.create_task(self.book(int(kind)))
        await workflow.wait_condition(lambda: self.go_on)
        await self.end()


@workflow.defn(name="Stubborn")
class StubbornFails(Stubborn):
    @workflow.run
    async def run(self, kind: str) -> None:
        await Stubborn.run(self, kind)


@workflow.defn(name="Stubborn", on_crash="fail")
class StubbornStray(Stubborn):
    async def end(self) -> None:
        raise asyncio.CancelledError

    @workflow.run
    async def run(self, kind: str) -> None:
        await Stubborn.run(self, kind)


async def held_by_its_saga(env, cls, caplog):
    handle = await booked(env, cls, "1")
    await handle.signal(cls.proceed)
    await env.sleep(0)
    assert "whose block goes on although its task was cancelled" in caplog.text
    assert "workflow 's' " in caplog.text and "saga 'trip'" in caplog.text
    assert "let CancelledError pass, or cancel the run once more" in caplog.text
    assert (await handle.describe()).status == "running"
    return handle


async def test_a_block_that_goes_on_when_it_is_stopped_is_named_and_the_cancel_of_the_run_stops_it(caplog):
    async with environment(StubbornFails) as env:
        handle = await held_by_its_saga(env, StubbornFails, caplog)
        await handle.cancel("enough")
        with pytest.raises(WorkflowFailedError, match="main has failed"):
            await handle.result()
        assert undone == ["a"]


async def test_who_has_cancelled_the_run_is_not_told_to_cancel_it_once_more(caplog):
    """That would do nothing."""
    async with environment(StubbornFails) as env:
        handle = await booked(env, StubbornFails, "1")
        await handle.cancel()
        await env.sleep(0)
        assert "let CancelledError pass" in caplog.text
        assert "once more" not in caplog.text
        await handle.terminate()


async def test_a_cancel_behind_the_end_of_main_does_not_rewrite_how_it_ended(caplog):
    async with environment(StubbornStray) as env:
        handle = await held_by_its_saga(env, StubbornStray, caplog)
        await handle.cancel("enough")
        with pytest.raises(WorkflowFailedError, match="nobody has asked the run to cancel"):
            await handle.result()
        assert undone == ["a"]

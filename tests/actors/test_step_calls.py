"""Calls of steps: how they nest, fail, are numbered and refused, and what outlives them."""

import asyncio
import contextlib
import warnings

import pytest
from support.hosting import gate, hosted, kinds, settled, until
from support.steps import ACTIVITIES, add, refuse, replayed_alike, run_alike, steps_of

from everact import ApplicationError, workflow
from everact.exceptions import (
    ActivityError,
    CommitUnknownError,
    QueryFailedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowQuarantinedError,
)
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal
from everact.journal.payload_limits import PayloadLimits

# --- failures


async def test_a_failed_step_gives_its_caller_the_same_error_live_and_recovered():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            for kind in ("own", "activity", "timeout"):
                try:
                    await self.fail(kind)
                except (ApplicationError, ActivityError, TimeoutError) as error:
                    cause = error.__cause__
                    self.words.append(f"{type(error).__name__}: {error} ({type(cause).__name__}: {cause})")
            await workflow.sleep(0.001)
            return self.words

        @workflow.step
        async def fail(self, kind: str) -> None:
            self.words.append(kind)
            await add(1)
            if kind == "own":
                raise ApplicationError("not today", 5, type="NotToday")
            if kind == "timeout":
                await asyncio.wait_for(asyncio.Event().wait(), 0.001)
            await workflow.execute_activity(refuse, "never")

    result, history = await run_alike(W)
    assert steps_of(history) == [("fail", "failed", True)] * 3
    assert result[::2] == ["own", "activity", "timeout"]
    assert result[1].startswith("ApplicationError: ")
    assert "not today" in result[1]
    assert result[3].startswith("ActivityError: activity 'refuse' failed after 1 attempt")
    assert "(ApplicationError: " in result[3]
    assert result[5].startswith("TimeoutError: ")


async def test_a_failure_of_a_class_of_its_own_reaches_the_caller_as_that_class():
    class Declined(ApplicationError):
        pass

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                await self.pay()
            except Declined as error:
                await workflow.sleep(0.001)
                return error.message
            return ""

        @workflow.step
        async def pay(self) -> None:
            await add(1)
            raise Declined("no money")

    result, history = await run_alike(W)
    assert result == "no money"
    assert steps_of(history) == [("pay", "failed", False)]


async def test_a_bug_in_a_step_is_a_crash_of_the_run():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await self.broken()

        @workflow.step(retry=3, optional=True)
        async def broken(self) -> None:
            await add(1)
            raise KeyError("a bug")

    async with hosted(MemoryJournal(), W, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowQuarantinedError, match="a bug"):
            await handle.result()
        assert steps_of(await handle.fetch_history()) == []
        await handle.terminate()


async def test_a_bug_that_the_caller_catches_is_no_checkpoint():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                await self.broken()
            except KeyError as error:
                await workflow.sleep(0.001)
                return repr(error)
            return ""

        @workflow.step
        async def broken(self) -> None:
            await add(1)
            raise KeyError("a bug")

    result, history = await run_alike(W)
    assert result == "KeyError('a bug')"
    assert steps_of(history) == [("broken", "failed", False)]


async def test_a_step_that_fails_uncaught_fails_the_run():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await self.one()

        @workflow.step
        async def one(self) -> None:
            await workflow.execute_activity(refuse, "never")

    async with hosted(MemoryJournal(), W, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowFailedError, match="never"):
            await handle.result()
        history = await handle.fetch_history()
    assert kinds(history)[-2:] == ["StepFailed", "WorkflowFailed"]
    replayed_alike(W, ACTIVITIES, history)


# --- what outlives a step


@workflow.defn
class Booking:
    """Steps that a saga undoes, some of them inside others."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @workflow.run
    async def run(self, end: str) -> list[str]:
        try:
            async with workflow.saga("trip"):
                await self.book("hotel", nights=2)
                await self.around()
                await self.own_saga()
                await self.reset()
                await self.lend(7)
                await workflow.sleep(0.001)
                if end == "fails":
                    raise ApplicationError("no room")
        except ApplicationError as error:
            self.log.append(error.message)
        await self.reset()
        return self.log

    async def cancel_it(self, booking: str) -> None:
        self.log.append(f"cancel {booking} {await add(1)}")

    def forget(self) -> None:
        self.log.append("forget")

    @workflow.step(compensate=cancel_it)
    async def book(self, what: str, nights: int = 1) -> str:
        self.log.append(f"book {what} {nights} {await add(nights)}")
        return f"{what} {nights}"

    @workflow.step(compensate=forget)
    async def reset(self) -> None:
        await add(1)

    @workflow.step(compensate=add)
    async def lend(self, n: int) -> int:
        return await add(n)

    @workflow.step
    async def around(self) -> None:
        await self.book("car")

    @workflow.step
    async def own_saga(self) -> None:
        try:
            async with workflow.saga("inner") as saga:
                await saga.run(add, 1)
                await self.book("boat")
                raise ApplicationError("sunk")
        except ApplicationError:
            self.log.append("sunk")


@pytest.mark.parametrize("is_kept", [True, False], ids=["live", "recovered"])
@pytest.mark.parametrize("end", ["fails", "fine"])
async def test_a_saga_undoes_completed_steps_also_when_their_bodies_are_skipped(end, is_kept, request):
    if is_kept:
        request.getfixturevalue("keeps_code")
    log, history = await run_alike(Booking, end)
    booked = ["book hotel 2 3", "book car 1 2", "book boat 1 2", "cancel boat 1 2", "sunk"]
    undone = ["forget", "cancel car 1 2", "cancel hotel 2 2", "no room"]
    assert log == booked + (undone if end == "fails" else [])
    assert steps_of(history) == [
        ("book", "completed", True),
        ("book", "completed", True),
        ("around", "completed", False),  # otherwise a replay would not tell the saga of the step inside
        ("book", "completed", True),
        ("own_saga", "completed", True),  # it has failed, and hands on nothing
        ("reset", "completed", True),
        ("lend", "completed", True),
        ("reset", "completed", True),
    ]
    undone = [e.event for e in history if e.kind == "CompensationStarted"][1:]
    names = ["lend", "reset", "book", "book"] if end == "fails" else []
    assert [event.name for event in undone] == names


# --- calls


async def test_a_step_is_numbered_at_the_call_and_can_be_awaited_in_every_way():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.order: list[int] = []

        @workflow.run
        async def run(self) -> list[object]:
            one, two, three, four = (self.one(n) for n in range(4))
            task = asyncio.create_task(three)
            got = [await two, await one, await task]
            got += await asyncio.gather(four, asyncio.wait_for(self.one(4), 100), asyncio.shield(self.one(5)))
            async for done in _completed([self.one(6), self.one(7)]):
                got.append(done)
            unwanted = asyncio.create_task(self.one(8))
            unwanted.cancel()
            return [got, self.order]

        @workflow.step
        async def one(self, n: int) -> int:
            self.order.append(n)
            return await add(n)

    (got, order), history = await run_alike(W)
    assert got == [2, 1, 3, 4, 5, 6, 7, 8]
    assert order == [1, 0, 2, 3, 4, 5, 6, 7] or sorted(order) == list(range(8))
    numbers = {e.event.command for e in history if e.kind == "StepStarted"}
    assert len(numbers) == 8


async def _completed(steps):
    for future in asyncio.as_completed(steps):
        yield await future


async def test_a_step_that_is_never_awaited_is_warned_of_with_file_and_line():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            self.one()  # the line  # everact: allow[EV203]
            await workflow.sleep(0.001)

        @workflow.step
        async def one(self) -> None:
            pass

    line = W.run.__code__.co_firstlineno + 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with hosted(MemoryJournal(), W) as runtime:
            await runtime.execute(W.run)
    (warning,) = [w for w in caught if "never awaited" in str(w.message)][:1]
    assert "step 'one' was called and never awaited; it did not run" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, line)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("too many", "takes 1 argument"),
        ("missing", "is missing argument 'n'"),
        (
            "another object",
            "step 'one' was called on an object of Other that is not this run's workflow object",
        ),
    ],
)
async def test_a_wrong_call_is_refused_at_the_call(kind, message):
    @workflow.defn(name="Other")
    class Other:
        @workflow.run
        async def run(self) -> str:
            try:
                if kind == "too many":
                    self.one(1, 2)  # everact: allow[EV203]
                elif kind == "missing":
                    self.one()  # everact: allow[EV203]
                else:
                    Other().one(1)
            except TypeError as error:
                return str(error)
            return ""

        @workflow.step
        async def one(self, n: int) -> None:
            pass

        @workflow.query
        def look(self) -> str:
            self.one(1)  # everact: allow[EV203]
            return ""

    async with hosted(MemoryJournal(), Other) as runtime:
        handle = await runtime.spawn(Other.run)
        assert message in await handle.result()
        with pytest.raises(QueryFailedError, match="step 'one'"):
            await handle.query(Other.look)


async def test_a_state_that_is_too_large_holds_the_run_and_names_the_field():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.blob = ""

        @workflow.run
        async def run(self) -> None:
            await self.grow()

        @workflow.step
        async def grow(self) -> None:
            await add(1)
            self.blob = "x" * 2000

    limits = PayloadLimits(payload=1000, record=5000, warning=900)
    async with hosted(MemoryJournal(), W, activities=ACTIVITIES, payload_limits=limits) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowHeldError, match="field 'blob' of step grow"):
            await handle.result()
        await handle.terminate()


async def test_a_failed_commit_takes_the_end_of_a_step_back(keeps_code):
    """R5: what the discarded turn had decided is decided again, from the journal."""
    held = gate()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            for n in range(3):
                await self.one(f"{n}")
            return self.words

        @workflow.step
        async def one(self, word: str) -> None:
            await workflow.execute_activity(held.fn, word)
            self.words.append(word)

    failures = iter([False, True, False, True, True])

    def fail():
        if next(failures, False):
            raise OSError("the disk")

    activities = [held.fn]
    async with hosted(MemoryJournal(), W, activities=activities) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        with armed("journal.commit.before", fail):
            held.open.set()
            result = None
            while result is None:
                with contextlib.suppress(CommitUnknownError):
                    await settled(runtime)
                    result = await handle.result()
        assert result == ["0", "1", "2"]
        assert next(failures, None) is None
        history = await handle.fetch_history()
    assert steps_of(history) == [("one", "completed", True)] * 3
    replayed_alike(W, activities, history)

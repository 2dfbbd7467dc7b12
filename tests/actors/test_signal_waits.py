"""``wait_for_signal`` and ``race``: kept until waited for, in order; losers leave nothing behind."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, kinds, settled, tick, until
from support.steps import Replayed, replayed_alike, steps_of

from everact import ApplicationError, activity, workflow
from everact.exceptions import (
    RegistrationError,
    UnknownHandlerError,
    WorkflowCancelledError,
)
from everact.journal.memory_store import MemoryJournal


@activity.defn
async def add(n: int) -> int:
    return n + 1


@workflow.defn
class Waits:
    """Takes signals of a name as often as it is told."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.got: list[object] = []

    @workflow.run
    async def run(self, names: list[str], hold: bool) -> list[object]:
        if hold:
            await workflow.wait_for_signal("go")
        for name in names:
            if name == "declared":
                self.got.append(await workflow.wait_for_signal(Waits.declared))
            else:
                self.got.append(await workflow.wait_for_signal(name))
        return [self.got, self.handled]

    @workflow.signal
    def declared(self, word: str, number: int = 5) -> None:
        if word == "bad":
            raise ApplicationError("bad word")
        self.handled.append(f"{word}{number}")

    @workflow.query
    def look(self) -> list[object]:
        return self.got


@pytest.mark.parametrize("hold", [True, False])
async def test_signals_are_taken_in_order_whether_they_came_before_or_after(hold):
    async with hosted(MemoryJournal(), Waits) as runtime:
        handle = await runtime.spawn(Waits.run, ["plain", "declared", "plain", "declared"], hold)
        await handle.signal("plain", 1, [2])
        await handle.signal(Waits.declared, "a", 1)
        await handle.signal(Waits.declared, "bad")
        await handle.signal(Waits.declared, "b")
        await handle.signal("plain")
        if hold:
            await handle.signal("go")
        got, handled = await handle.result()
        assert got == [(1, [2]), ("a", 1), (), ("b",)]
        assert handled == ["a1", "b5"]
        history = await handle.fetch_history()
        description = await handle.describe()
    assert [letter.name for letter in description.dead_letters] == ["declared"]
    taken = [e.event.message for e in history if e.kind == "SignalTaken"]
    assert len(taken) == 4 + hold
    replayed_alike(Waits, [], history)


async def test_what_is_never_waited_for_is_a_dead_letter_unless_a_handler_has_had_it():
    async with hosted(MemoryJournal(), Waits) as runtime:
        handle = await runtime.spawn(Waits.run, ["plain"], False)
        await handle.signal("other")
        await handle.signal(Waits.declared, "a")
        description = await handle.describe()
        assert (description.backlog, description.waiting_on) == (1, "signal 'plain'")
        await handle.signal("plain")
        await handle.result()
        description = await handle.describe()
    (letter,) = description.dead_letters
    assert (letter.name, letter.reason) == ("other", "no handler was set for it before the run ended")


async def test_two_that_wait_for_one_name_get_the_signals_in_the_order_of_their_waits():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            got: list[str] = []
            await asyncio.gather(*(self.wait(label, got) for label in "ab"))
            return got

        async def wait(self, label: str, got: list[str]) -> None:
            for _ in range(2):
                (n,) = await workflow.wait_for_signal("n")
                got.append(f"{label}{n}")

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        for n in range(4):
            await handle.signal("n", n)
        assert await handle.result() == ["a0", "b1", "a2", "b3"]
        replayed_alike(W, [], await handle.fetch_history())


@workflow.defn
class Limited:
    @workflow.run
    async def run(self, kind: str) -> list[object]:
        began = workflow.time()
        try:
            if kind == "default":
                got: object = await workflow.wait_for_signal("x", timeout=60, default="nobody")
            else:
                got = await workflow.wait_for_signal(
                    "x", timeout=timedelta(seconds=0 if kind == "at once" else 60)
                )
        except TimeoutError as error:
            got = str(error)
        return [got, workflow.time() - began]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("default", ["nobody", 60]),
        ("error", ["wait_for_signal: no signal 'x' came within 60 s", 60]),
        ("at once", ["wait_for_signal: no signal 'x' came within 0 s", 0]),
        ("comes", [(1,), 0]),
    ],
)
async def test_a_time_limit_and_a_default(kind, expected):
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Limited, clock=clock) as runtime:
        handle = await runtime.spawn(Limited.run, kind, id="w")
        await settled(runtime)
        if kind == "comes":
            await handle.signal("x", 1)
        clock.advance(20)
    async with hosted(journal, Limited, clock=clock) as runtime:  # G03: the limit does not begin anew
        handle = runtime.ref("w", Limited)
        await tick(runtime, clock, 40)
        assert await handle.result() == expected
        history = await handle.fetch_history()
    replayed_alike(Limited, [], history)
    if kind == "comes":
        assert "TimerCancelled" in kinds(history)


async def test_a_signal_that_comes_with_the_cancel_of_its_wait_is_kept_for_the_next():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[object]:
            self.task = asyncio.create_task(workflow.wait_for_signal(W.stop))
            await asyncio.wait([self.task])
            first = "cancelled" if self.task.cancelled() else self.task.result()
            return [first, await workflow.wait_for_signal(W.stop)]

        @workflow.signal
        async def stop(self, n: int) -> None:
            # The signal has been given to the wait, which has not gone on yet.
            self.task.cancel()

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.signal(W.stop, 1)
        assert await handle.result() == ["cancelled", (1,)]
        history = await handle.fetch_history()
    assert Replayed(W, [], history.records).outcome == history.events[-1].event


async def test_steps_that_wait_for_signals_are_checkpoints():
    """What was kept, taken or handled while a step ran is so when a replay has skipped it."""

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.got: list[object] = []

        @workflow.run
        async def run(self) -> list[object]:
            for _ in range(3):
                await self.approve()
            self.got.append(await workflow.wait_for_signal("late"))
            self.got.append(await workflow.wait_for_signal(W.declared))
            self.got.append(await workflow.wait_for_signal("early"))
            return self.got

        @workflow.step
        async def approve(self) -> None:
            self.got.append(list(await workflow.wait_for_signal("approve")))
            if len(self.got) == 2:
                self.got.append(list(await workflow.wait_for_signal(W.declared)))

        @workflow.signal
        def declared(self, word: str) -> None:
            if word == "bad":
                raise ApplicationError("bad")

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.signal("early", 1)
        await handle.signal("late", 2)
        await handle.signal("early", 3)
        for word in ("one", "bad", "two", "three"):
            await handle.signal(W.declared, word)
        for n in range(3):
            await handle.signal("approve", n)
        assert await handle.result() == [[0], [1], ["one"], [2], (2,), ("two",), (1,)]
        history = await handle.fetch_history()
    assert steps_of(history) == [("approve", "completed", True)] * 3
    whole, jumped = replayed_alike(W, [], history)
    assert jumped < whole
    for cut in range(1, len(history.records)):
        replayed_alike(W, [], type(history)("w", "r", history.records[:cut]))


async def test_a_wrong_use_of_wait_for_signal_is_refused():
    @workflow.defn
    class Other:
        @workflow.run
        async def run(self, kind: str) -> str:
            waits = vars(workflow)["wait_for_" + "signal"]
            given = {"name": "", "no signal": Other.run, "number": 5, "not named": "x"}[kind]
            try:
                await waits(given)
            except (TypeError, ValueError, RegistrationError) as error:
                return str(error)
            return ""

    async with hosted(MemoryJournal(), Other, Waits) as runtime:
        assert "the name" in await runtime.execute(Other.run, "name")
        for kind in ("no signal", "number"):
            assert "needs a method declared with @workflow.signal, or a name, not" in await runtime.execute(
                Other.run, kind
            )
        text = await runtime.execute(Other.run, "not named")
        assert "workflow.wait_for_signal() was called for a Other, but no method of" in text
        with pytest.raises(UnknownHandlerError):
            await (await runtime.spawn(Other.run, "name", id="other")).signal("unknown")


# --- races


@workflow.defn
class Races:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, kind: str) -> list[object]:
        try:
            name, value = await getattr(self, kind)()
        except ApplicationError as error:
            name, value = "error", error.message
        await workflow.sleep(0.001)
        rest = [await workflow.wait_for_signal(word, timeout=0, default=None) for word in ("a", "b")]
        return [name, value, rest, self.words]

    async def signal_or_timer(self) -> workflow.Won[object]:
        return await workflow.race(signal=workflow.wait_for_signal("a"), timer=workflow.sleep(1000))

    async def timer_or_signal(self) -> workflow.Won[object]:
        return await workflow.race(signal=workflow.wait_for_signal("never"), timer=workflow.sleep(0.001))

    async def activities(self) -> workflow.Won[object]:
        return await workflow.race(
            slow=workflow.execute_activity("gated", "slow", result_type=str), quick=add(1), task=self.clean()
        )

    async def both_kept(self) -> workflow.Won[object]:
        await workflow.wait_for_signal("go")
        return await workflow.race(workflow.wait_for_signal("a"), workflow.wait_for_signal("b"))

    async def started(self) -> workflow.Won[object]:
        late = workflow.start_activity(add, 5)
        return await workflow.race(self.at_once(), late, self.step_one())

    async def fails(self) -> workflow.Won[object]:
        return await workflow.race(self.fail(), workflow.sleep(1000))

    async def at_once(self) -> str:
        return "now"

    async def fail(self) -> None:
        await add(1)
        raise ApplicationError("lost everything")

    async def clean(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.words.append(f"cleaned {await asyncio.shield(add(6))}")

    @workflow.step
    async def step_one(self) -> int:
        return await add(1)


@pytest.mark.parametrize(
    ("kind", "signals", "expected"),
    [
        ("signal_or_timer", ["a"], ["signal", ("a",), [None, None], []]),
        ("timer_or_signal", [], ["timer", None, [None, None], []]),
        ("activities", [], ["quick", 2, [None, None], ["cleaned 7"]]),
        ("both_kept", ["a", "b", "go"], ["0", ("a",), [None, ("b",)], []]),
        ("started", [], ["0", "now", [None, None], []]),
        ("fails", [], ["error", "lost everything", [None, None], []]),
    ],
)
async def test_the_first_wins_and_the_others_leave_nothing_behind(kind, signals, expected):
    held = gate()
    async with hosted(MemoryJournal(), Races, activities=[add, held.fn]) as runtime:
        handle = await runtime.spawn(Races.run, kind)
        for name in signals:
            await handle.signal(name, name)
        assert await handle.result() == expected
        history = await handle.fetch_history()
        await until(lambda: not runtime._shard.dispatcher.pool._running)
    open_timers = kinds(history).count("TimerStarted") - kinds(history).count("TimerFired")
    assert kinds(history).count("TimerCancelled") == open_timers
    if kind == "started":
        assert held.calls == []
        assert kinds(history).count("ActivityCompleted") == 0
    replayed_alike(Races, [add, held.fn], history)


async def test_cancelling_a_race_cancels_all_of_it():
    held = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.race(a=workflow.execute_activity(held.fn, "a"), b=self.slow())

        async def slow(self) -> None:
            try:
                await workflow.sleep(1000)
            finally:
                await asyncio.shield(add(1))

    async with hosted(MemoryJournal(), W, activities=[add, held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        history = await handle.fetch_history()
    assert kinds(history).count("ActivityCancelRequested") == 1
    assert kinds(history).count("TimerCancelled") == 1
    assert kinds(history).count("ActivityCompleted") == 1
    replayed_alike(W, [add, held.fn], history)


async def test_a_race_of_nothing_or_of_what_cannot_be_awaited_is_refused():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self, empty: bool) -> str:
            try:
                if empty:
                    await workflow.race()
                else:
                    await workflow.race(fine=add(1), wrong=5)  # type: ignore[arg-type]
            except (TypeError, ValueError) as error:
                return str(error)
            return ""

        @workflow.query
        def look(self) -> str:
            asyncio.get_event_loop()
            return ""

    async with hosted(MemoryJournal(), W, activities=[add]) as runtime:
        assert await runtime.execute(W.run, True) == "race needs at least one coroutine, task or activity"
        text = await runtime.execute(W.run, False)
        assert text == (
            "race: 'wrong' must be a coroutine, task or activity, not 5: a time limit is workflow.sleep(5), of a "
            "number of seconds or a timedelta"
        )


async def test_a_race_of_a_list_says_how_to_pass_it():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                await workflow.race([])  # type: ignore[call-overload]
            except TypeError as error:
                return str(error)
            return ""

    async with hosted(MemoryJournal(), W) as runtime:
        assert await runtime.execute(W) == (
            "race: '0' must be a coroutine, task or activity, not []: pass them one by one, race(*...)"
        )


# --- deadlines


@workflow.defn
class Deadlines:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, kind: str) -> list[str]:
        limit = {
            "span": timedelta(seconds=60),
            "seconds": 60.0,
            "moment": datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC),
            "past": datetime(2020, 1, 1, tzinfo=UTC),
        }[kind]
        try:
            async with workflow.deadline(limit) as scope:
                for n in range(3):
                    await workflow.sleep(25)
                    self.words.append(str(n))
        except TimeoutError as error:
            self.words.append(f"over {scope.expired()} {error}")
        return self.words


LATE = {
    kind: f"deadline: the block did not end {limit}"
    for kind, limit in {
        "span": "within 60 s",
        "seconds": "within 60 s",
        "moment": "by 2023-11-14 22:14:20+00:00",
        "past": "by 2020-01-01 00:00:00+00:00",
    }.items()
}


@pytest.mark.parametrize("kind", ["span", "seconds", "moment", "past"])
async def test_a_deadline_limits_all_that_is_inside(kind):
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Deadlines, clock=clock) as runtime:
        handle = await runtime.spawn(Deadlines.run, kind, id="w")
        await settled(runtime)
        await tick(runtime, clock, 25)
    async with hosted(journal, Deadlines, clock=clock) as runtime:
        handle = runtime.ref("w", Deadlines)
        for seconds in (25, 10, 15):
            await tick(runtime, clock, seconds)
        assert await handle.result() == (
            [f"over True {LATE[kind]}"] if kind == "past" else ["0", "1", f"over True {LATE[kind]}"]
        )
        replayed_alike(Deadlines, [], await handle.fetch_history())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (datetime(2026, 1, 1), "deadline needs a datetime with a time zone"),
        (-1, "deadline must be between 0 and 100 years, not -1: pass a number of seconds or a timedelta"),
        (
            datetime(2300, 1, 1, tzinfo=UTC),
            "deadline must be within 100 years, and datetime.datetime(2300, 1, 1, 0, 0",
        ),
        ("soon", "deadline must be a timedelta or a number of seconds"),
    ],
)
async def test_a_deadline_that_is_none_is_refused(given, message):
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                workflow.deadline(given)
            except (TypeError, ValueError) as error:
                return str(error)
            return ""

    async with hosted(MemoryJournal(), W) as runtime:
        assert message in await runtime.execute(W.run)

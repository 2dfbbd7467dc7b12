"""Steps that fail, are tried again, take too long or are cancelled; what follows is the same live and in replay."""

import asyncio
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, kinds, settled, tick, until
from support.steps import replayed_alike, steps_of

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import WorkflowCancelledError, WorkflowFailedError
from everact.journal.memory_store import MemoryJournal

AT_ONCE = RetryPolicy(initial_interval=0.000001, maximum_interval=0.000001, maximum_attempts=3, jitter=0)


@activity.defn
async def add(n: int) -> int:
    return n + 1


async def run(cls, *args):
    async with hosted(MemoryJournal(), cls, activities=[add]) as runtime:
        handle = await runtime.spawn(cls.run, *args)
        result = await handle.result()
        history = await handle.fetch_history()
    replayed_alike(cls, [add], history)
    return result, history


def attempts(history):
    return [(e.event.attempt, e.event.is_restored) for e in history if e.kind == "StepAttemptFailed"]


@workflow.defn
class Tries:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.count = 0

    @workflow.run
    async def run(self, until: int) -> list[str]:
        got = await self.work(until, [0])
        await workflow.sleep(0.001)
        return [*self.words, got]

    @workflow.step(retry=AT_ONCE)
    async def work(self, until: int, box: list[int]) -> str:
        box.append(1)
        self.words.append(f"{len(box)}")
        self.count += 1
        n = await workflow.execute_activity(attempt, workflow.info().run_id)
        if n < until:
            raise ApplicationError(f"attempt {n}", type="NotYet")
        return f"done at {n}"


ATTEMPTS = {}


@activity.defn
async def attempt(key: str) -> int:
    ATTEMPTS[key] = ATTEMPTS.get(key, 0) + 1
    return ATTEMPTS[key]


async def test_a_failed_attempt_leaves_nothing_behind():
    async with hosted(MemoryJournal(), Tries, activities=[attempt]) as runtime:
        handle = await runtime.spawn(Tries.run, 3)
        assert await handle.result() == ["2", "done at 3"]
        history = await handle.fetch_history()
    assert attempts(history) == [(1, True), (2, True)]
    assert steps_of(history) == [("work", "completed", True)]
    replayed_alike(Tries, [attempt], history)
    for cut in range(1, len(history.records)):
        replayed_alike(Tries, [attempt], type(history)("w", "r", history.records[:cut]))


async def test_a_step_that_is_out_of_attempts_fails():
    async with hosted(MemoryJournal(), Tries, activities=[attempt]) as runtime:
        handle = await runtime.spawn(Tries.run, 9)
        with pytest.raises(WorkflowFailedError, match="attempt 3"):
            await handle.result()
        history = await handle.fetch_history()
    assert attempts(history) == [(1, True), (2, True)]
    replayed_alike(Tries, [attempt], history)


async def test_what_a_message_has_changed_is_not_taken_back_with_a_failed_attempt():
    held = gate(retry_policy=RetryPolicy(maximum_attempts=1))

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await self.work()
            return self.words

        @workflow.step(retry=AT_ONCE)
        async def work(self) -> None:
            self.words.append("attempt")
            if await workflow.execute_activity(held.fn, "") == "through":
                held.result = "again"
                raise ApplicationError("no")

        @workflow.signal
        def say(self, word: str) -> None:
            self.words.append(word)

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.signal(W.say, "hello")
        held.open.set()
        assert await handle.result() == ["attempt", "hello", "attempt"]
        history = await handle.fetch_history()
    assert attempts(history) == [(1, False)]
    assert steps_of(history) == [("work", "completed", True)]


async def test_retries_of_steps_in_parallel_leave_the_fields_to_each_other():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            await asyncio.gather(self.work("a"), self.work("b"))
            return self.words

        @workflow.step(retry=AT_ONCE)
        async def work(self, word: str) -> None:
            self.words.append(word)
            await add(1)
            if self.words.count(word) < 2:
                raise ApplicationError("again")

    result, history = await run(W)
    assert sorted(result) == ["a", "a", "b", "b"]
    assert attempts(history) == [(1, False), (1, False)]


@workflow.defn
class Patient:
    @workflow.run
    async def run(self) -> str:
        began = workflow.time()
        try:
            await self.work()
        except ApplicationError as error:
            return f"{error.type} after {workflow.time() - began:g} s"
        return ""

    @workflow.step(
        retry=RetryPolicy(
            initial_interval=10, jitter=0, maximum_attempts=0, non_retryable_error_types=["Enough"]
        )
    )
    async def work(self) -> None:
        n = await workflow.execute_activity(attempt, workflow.info().run_id)
        raise ApplicationError("no", type="Enough" if n == 3 else "NotYet")


async def test_waits_between_attempts_are_durable_and_follow_the_policy():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Patient, activities=[attempt], clock=clock) as runtime:
        handle = await runtime.spawn(Patient.run, id="w")
        await until(lambda: handle.run_id in ATTEMPTS)
        await settled(runtime)
        description = await handle.describe()
        (step,) = description.steps
        assert (step.name, step.status, step.attempt) == ("work", "running", 2)
        assert (step.next_attempt_at - step.started_at).total_seconds() == 10
        assert description.current_step == "work"
        clock.advance(5)
    async with hosted(journal, Patient, activities=[attempt], clock=clock) as runtime:
        again = runtime.ref("w", Patient)
        await tick(runtime, clock, 5)
        await until(lambda: ATTEMPTS[handle.run_id] == 2)
        handle = again
        await settled(runtime)
        assert (await handle.describe()).steps[0].attempt == 3
        await tick(runtime, clock, 20)
        assert await handle.result() == "Enough after 30 s"
        description = await handle.describe()
        (step,) = description.steps
        assert (step.name, step.status, step.attempt, step.next_attempt_at) == ("work", "failed", 3, None)
        assert description.step_counts == {"failed": 1}
        assert description.current_step is None


@workflow.defn
class Limited:
    """A step with a limit, and what becomes of it."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, kind: str) -> list[object]:
        try:
            got = await getattr(self, kind)("x")
        except TimeoutError as error:
            got = str(error)
        await workflow.sleep(0.001)
        return [got, *self.words]

    async def never(self, word: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.words.append(f"cleaned {word}")

    async def instead(self, word: str) -> str:
        self.words.append("instead")
        return f"{word}{await add(1)}"

    def at_once(self, word: str) -> str:
        return f"at once {word}"

    @workflow.step(timeout=0.001)
    async def plain(self, word: str) -> None:
        await self.never(word)

    @workflow.step(timeout=timedelta(milliseconds=1), on_timeout=instead)
    async def asks(self, word: str) -> str:
        await self.never(word)
        return ""

    @workflow.step(timeout=0.001, on_timeout=at_once)
    async def asks_at_once(self, word: str) -> str:
        await self.never(word)
        return ""

    @workflow.step(timeout=0.001, on_timeout="a value")
    async def gives(self, word: str) -> str:
        await self.never(word)
        return ""

    @workflow.step(timeout=0.001, on_timeout=None)
    async def gives_none(self, word: str) -> str | None:
        await self.never(word)
        return ""

    @workflow.step(timeout=0.001, optional=True)
    async def may_fail(self, word: str) -> str | None:
        await self.never(word)
        return ""

    @workflow.step(timeout=0.001, retry=RetryPolicy(initial_interval=5, jitter=0))
    async def between_attempts(self, word: str) -> None:
        self.words.append(word)
        raise ApplicationError("no")

    @workflow.step(timeout=1000)
    async def in_time(self, word: str) -> int:
        return await add(1)


@pytest.mark.parametrize(
    ("kind", "expected", "how"),
    [
        ("plain", ["step 'plain' did not end within 0.001 s", "cleaned x"], "failed"),
        ("asks", ["x2", "cleaned x", "instead"], "completed"),
        ("asks_at_once", ["at once x", "cleaned x"], "completed"),
        ("gives", ["a value", "cleaned x"], "completed"),
        ("gives_none", [None, "cleaned x"], "completed"),
        ("may_fail", [None, "cleaned x"], "completed"),
        ("between_attempts", ["step 'between_attempts' did not end within 0.001 s"], "failed"),
        ("in_time", [2], "completed"),
    ],
)
async def test_a_time_limit(kind, expected, how):
    result, history = await run(Limited, kind)
    assert result == expected
    assert steps_of(history) == [(kind, how, True)]
    handled = [e.event.handled for e in history if e.kind == "StepCompleted"]
    assert handled == {"asks": ["on_timeout"], "may_fail": ["optional"], "in_time": [""]}.get(
        kind, ["on_timeout"] if how == "completed" else []
    )


async def test_a_time_limit_of_a_step_is_not_one_inside_it():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                await self.work()
            except TimeoutError as error:
                return str(error)
            return ""

        @workflow.step(timeout=1000, on_timeout="not this")
        async def work(self) -> str:
            raise TimeoutError("from within")

    result, _history = await run(W)
    assert result == "from within"


@workflow.defn
class Handled:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, kind: str) -> list[object]:
        got = await getattr(self, kind)(7)
        await workflow.sleep(0.001)
        return [got, *self.words]

    async def mend(self, error: Exception, n: int) -> int:
        self.words.append(f"{type(error).__name__} {error.message}")
        return n + await add(n)

    def break_again(self, error: Exception, n: int) -> int:
        raise ApplicationError(f"worse {n}")

    async def fail(self) -> None:
        self.words.append(str(await add(1)))
        raise ApplicationError("no")

    @workflow.step(on_error=mend)
    async def mended(self, n: int) -> int:
        await self.fail()
        return 0

    @workflow.step(optional=True)
    async def skipped(self, n: int) -> int:
        await self.fail()
        return 0

    @workflow.step(optional=True, on_error=break_again)
    async def twice(self, n: int) -> int | None:
        await self.fail()
        return 0


@pytest.mark.parametrize(
    ("kind", "expected", "handled"),
    [
        ("mended", [15, "2", "ApplicationError no"], "on_error"),
        ("skipped", [None, "2"], "optional"),
        ("twice", [None, "2"], "optional"),
    ],
)
async def test_a_failure_that_is_dealt_with_is_recorded_and_the_run_goes_on(kind, expected, handled):
    result, history = await run(Handled, kind)
    assert result == expected
    (end,) = [e.event for e in history if e.kind == "StepCompleted"]
    assert (end.handled, end.failure.message, end.checkpoint is not None) == (handled, "no", True)


async def test_cancelling_the_run_cancels_the_step_and_what_it_waits_for():
    held = gate()

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.words: list[str] = []

        @workflow.run
        async def run(self) -> list[str]:
            try:
                await self.outer()
            except asyncio.CancelledError:
                await self.clean()
                raise
            return []

        @workflow.step(optional=True, retry=5)
        async def outer(self) -> None:
            await self.inner()

        @workflow.step
        async def inner(self) -> None:
            await workflow.execute_activity(held.fn, "")

        @workflow.step
        async def clean(self) -> None:
            self.words.append(str(await add(1)))

    async with hosted(MemoryJournal(), W, activities=[held.fn, add]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.cancel()
        with pytest.raises(WorkflowCancelledError):
            await handle.result()
        history = await handle.fetch_history()
    assert steps_of(history) == [
        ("inner", "cancelled", False),
        ("outer", "cancelled", False),
        ("clean", "completed", True),
    ]
    assert kinds(history).count("ActivityCancelRequested") == 1
    replayed_alike(W, [held.fn, add], history)


async def test_a_step_that_swallows_the_cancel_is_no_checkpoint():
    held = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[object]:
            await self.stubborn()
            await self.after()
            return [workflow.cancellation_requested()]

        @workflow.step
        async def stubborn(self) -> None:
            try:
                await workflow.execute_activity(held.fn, "")
            except asyncio.CancelledError:
                await add(1)

        @workflow.step
        async def after(self) -> None:
            await add(1)

    async with hosted(MemoryJournal(), W, activities=[held.fn, add]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.cancel()
        assert await handle.result() == [True]
        history = await handle.fetch_history()
    assert steps_of(history) == [("stubborn", "completed", False), ("after", "completed", True)]
    replayed_alike(W, [held.fn, add], history)


async def test_terminating_the_run_leaves_the_step_unfinished():
    held = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await self.work()

        @workflow.step
        async def work(self) -> None:
            await workflow.execute_activity(held.fn, "")

    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        await handle.terminate()
        (step,) = (await handle.describe()).steps
        assert (step.name, step.status) == ("work", "unfinished")

"""R7: what is a failure, what is a crash, and what the run's callers see of either."""

import asyncio
from datetime import timedelta

import pytest
from support.hosting import gate, hosted, kinds, settled

from everact import ActivityError, ApplicationError, FailureError, RetryPolicy, activity, workflow
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    QueryFailedError,
    RuntimeClosedError,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
)
from everact.journal.fold import LETTERS_KEPT
from everact.journal.memory_store import MemoryJournal

ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn(retry_policy=ONCE)
async def broken() -> None:
    raise KeyError("inside")


class Odd(BaseException):
    """What a test runner or a framework may raise: no Exception."""


def run_of(body, **options):
    """A workflow whose main is ``body``; handlers for everything."""

    @workflow.defn(name="W", **options)
    class W:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.over = False

        @workflow.run
        async def run(self) -> str:
            await body(self)
            return ",".join(self.seen)

        @workflow.signal
        def note(self, text: str) -> None:
            self.seen.append(text)

        @workflow.signal
        def end(self) -> None:
            self.over = True

        @workflow.signal
        def bad(self, kind: str) -> None:
            raise MAKE[kind]

        @workflow.signal
        async def late(self, kind: str) -> None:
            await asyncio.sleep(0)
            raise MAKE[kind]

        @workflow.update
        def change(self, kind: str) -> str:
            if kind:
                raise MAKE[kind]
            self.seen.append("changed")
            return "ok"

        @workflow.update
        async def change_later(self, kind: str) -> str:
            await asyncio.sleep(0)
            if kind:
                raise MAKE[kind]
            return "ok"

        @workflow.update
        def checked(self, kind: str) -> str:
            return "ok"

        @checked.validator
        def check(self, kind: str) -> None:
            raise MAKE[kind]

        @workflow.query
        def look(self, kind: str) -> str:
            if kind:
                raise MAKE[kind]
            return ",".join(self.seen)

    return W


async def until_over(self):
    await workflow.wait_condition(lambda: self.over)


class _Make:
    kinds = {
        "value": lambda: ValueError("wrong"),
        "application": lambda: ApplicationError("refused", 7),
        "cancelled": lambda: asyncio.CancelledError("odd"),
        "exit": lambda: SystemExit(3),
        "odd": lambda: Odd("strange"),
        "group": lambda: ExceptionGroup("g", [ValueError("a"), KeyError("b")]),
        "base group": lambda: BaseExceptionGroup("g", [ValueError("a"), Odd("b")]),
        "aborted": lambda: TurnAborted("stop"),
    }

    def __getitem__(self, kind):
        return self.kinds[kind]()


MAKE = _Make()
HANDLED = ["value", "application", "cancelled", "group", "exit", "odd", "base group"]


@pytest.mark.parametrize("handler", ["bad", "late"])
@pytest.mark.parametrize("kind", HANDLED)
async def test_an_error_that_leaves_a_signal_handler_is_a_dead_letter_and_the_run_goes_on(handler, kind):
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.signal("note", "1")
        await handle.signal(handler, kind)
        await handle.signal("note", "2")
        (letter,) = (await handle.describe()).dead_letters
        assert letter.number in (3, 4) and letter.name == handler
        assert str(letter).startswith(f"event {letter.number} ({handler}): ")
        await handle.signal("end")
        assert await handle.result() == "1,2"
        history = await handle.fetch_history()
    (failed,) = [e for e in history if e.kind == "HandlerFailed"]
    assert failed.event.failure.type == type(MAKE[kind]).__name__
    assert history.events[failed.event.message - 1].event.name == handler


async def test_a_description_has_the_newest_dead_letters_and_counts_all():
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        for _ in range(LETTERS_KEPT + 3):
            await handle.signal("bad", "value")
        described = await handle.describe()
        assert len(described.dead_letters) == LETTERS_KEPT
        assert described.dead_letter_count == LETTERS_KEPT + 3
        history = await handle.fetch_history()
        assert sum(event.kind == "HandlerFailed" for event in history) == LETTERS_KEPT + 3


@pytest.mark.parametrize("handler", ["change", "change_later"])
@pytest.mark.parametrize("kind", HANDLED)
async def test_the_sender_of_an_update_gets_what_its_handler_raised(handler, kind):
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(UpdateFailedError) as caught:
            await handle.execute_update(handler, kind)
        cause = caught.value.__cause__
        assert isinstance(cause, FailureError)
        assert cause.caused_by(type(MAKE[kind]))
        if kind == "application":
            assert (cause.message, cause.details) == ("refused", (7,))
        assert await handle.execute_update(handler, "") == "ok"
        assert (await handle.describe()).dead_letters == ()
        assert (await handle.describe()).status == "running"


@pytest.mark.parametrize("kind", HANDLED)
async def test_whatever_a_validator_raises_is_a_rejection_and_nothing_is_written(kind):
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        before = len(await handle.fetch_history())
        with pytest.raises(UpdateRejectedError):
            await handle.execute_update("checked", kind)
        assert len(await handle.fetch_history()) == before
        assert (await handle.describe()).status == "running"


@pytest.mark.parametrize("kind", HANDLED)
async def test_whatever_a_query_raises_its_caller_gets_an_error_and_the_run_goes_on(kind):
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.signal("note", "1")
        with pytest.raises(QueryFailedError, match=type(MAKE[kind]).__name__):
            await handle.query("look", kind)
        assert await handle.query("look", "") == "1"
        await handle.signal("end")
        assert await handle.result() == "1"
        with pytest.raises(QueryFailedError):
            await handle.query("look", kind)


@pytest.mark.parametrize("handler", ["bad", "late"])
async def test_a_turn_that_is_aborted_in_a_handler_crashes_its_run_and_no_other(handler):
    W = run_of(until_over)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        other = await runtime.spawn(W.run)
        await handle.signal(handler, "aborted")
        with pytest.raises(WorkflowQuarantinedError, match="TurnAborted"):
            await handle.result()
        await other.signal("end")
        assert await other.result() == ""


# --- main ----------------------------------------------------------------------------------------------------------


def raising(error):
    async def body(self):
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ApplicationError("no money"), "no money"),
        (TimeoutError("too long"), "too long"),
        (ExceptionGroup("two", [ApplicationError("a"), TimeoutError("b")]), "two"),
        (ExceptionGroup("deep", [ExceptionGroup("in", [ApplicationError("a")])]), "deep"),
    ],
)
async def test_a_failure_that_leaves_main_fails_the_run(error, text):
    W = run_of(raising(error))
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowFailedError, match=text) as caught:
            await handle.result()
        assert caught.value.__cause__.caused_by(type(error))
        description = await handle.describe()
        assert description.status == "failed"
        assert "test_failures_of_runs.py" in description.failure


async def test_an_activitys_failure_fails_the_run_with_its_causes():
    async def body(self):
        await broken()

    W = run_of(body)
    async with hosted(MemoryJournal(), W, activities=[broken]) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(W.run)
    error = caught.value.__cause__
    assert isinstance(error, ActivityError)
    assert (error.activity_type, error.attempt, error.command) == ("broken", 1, 1)
    assert error.caused_by(KeyError) and error.caused_by("LookupError") and not error.caused_by(ValueError)
    assert "inside" in str(error.__cause__)


async def test_failures_of_a_task_group_fail_the_run():
    async def body(self):
        async with asyncio.TaskGroup() as group:
            group.create_task(broken())
            group.create_task(workflow.sleep(3600))

    W = run_of(body)
    async with hosted(MemoryJournal(), W, activities=[broken]) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowFailedError, match="TaskGroup"):
            await handle.result()
        (failed,) = [e.event.failure for e in await handle.fetch_history() if e.kind == "WorkflowFailed"]
    assert [member.type for member in failed.group] == ["ActivityError"]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bug"),
        AssertionError("bug"),
        Odd("bug"),
        ExceptionGroup("mixed", [ApplicationError("a"), ValueError("bug")]),
        SystemExit("bug"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_other_exception_is_a_crash_that_every_waiter_sees_at_once(error):
    async def body(self):
        await workflow.wait_condition(lambda: self.over)
        raise error

    W = run_of(body)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        waiters = [asyncio.create_task(handle.result()) for _ in range(3)]
        patient = asyncio.create_task(handle.result(on_stall="wait"))
        await settled(runtime)
        await handle.signal("end")
        for waiter in waiters:
            with pytest.raises(WorkflowQuarantinedError, match="bug|mixed"):
                await waiter
        assert not patient.done()
        description = await handle.describe()
        assert description.status == "quarantined"
        assert "test_failures_of_runs.py" in description.failure and "raise error" in description.failure
        listed = await runtime.list_workflows(status="quarantined")
        assert [line.workflow_id for line in listed] == [handle.workflow_id]
        with pytest.raises(WorkflowQuarantinedError):
            await handle.query("look", "")
        patient.cancel()


async def test_on_crash_fail_ends_the_run_instead():
    W = run_of(raising(ValueError("bug")), on_crash="fail")
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowFailedError, match="ValueError: bug") as caught:
            await handle.result()
        assert not isinstance(caught.value, WorkflowQuarantinedError)
        assert (await handle.describe()).status == "failed"


async def test_a_quarantined_run_goes_on_to_its_result_once_it_is_released():
    """A paid result delivered in the crashing turn is not lost, nor is the activity run again."""
    journal = MemoryJournal()
    pay = gate("pay")

    @workflow.defn(name="W")
    class Buggy:
        @workflow.run
        async def run(self) -> str:
            paid = await workflow.execute_activity(pay.fn, "once")
            return paid.no_such_method()

        @workflow.signal
        def note(self, text: str) -> None:
            pass

    @workflow.defn(name="W")
    class Fixed:
        def __init__(self) -> None:
            self.notes: list[str] = []

        @workflow.run
        async def run(self) -> str:
            paid = await workflow.execute_activity(pay.fn, "once")
            await workflow.wait_condition(lambda: len(self.notes) == 2)
            return f"{paid} {self.notes}"

        @workflow.signal
        def note(self, text: str) -> None:
            self.notes.append(text)

    pay.open.set()
    async with hosted(journal, Buggy, activities=[pay.fn]) as runtime:
        handle = await runtime.spawn(Buggy.run, id="a")
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        await handle.signal("note", "1")
        await handle.signal("note", "2")
        assert (await handle.describe()).backlog == 3
    async with hosted(journal, Buggy, activities=[pay.fn]) as runtime:
        with pytest.raises(WorkflowQuarantinedError):
            await runtime.ref("a", Buggy).result()
    async with hosted(journal, Fixed, activities=[pay.fn]) as runtime:
        handle = runtime.ref("a", Fixed)
        with pytest.raises(WorkflowQuarantinedError):  # a start alone does not try it again (R13)
            await handle.result()
        await handle.release("mended")
        assert await handle.result() == "through ['1', '2']"
        (released,) = [e.event for e in await handle.fetch_history() if e.kind == "RunReleased"]
        assert released.reason == "mended"
    assert pay.calls == ["once"]


async def test_the_main_that_fails_with_a_handler_in_one_event_has_its_own_outcome():
    async def body(self):
        await workflow.wait_condition(lambda: "go" in self.seen)
        raise ApplicationError("main")

    W = run_of(body)

    @workflow.defn(name="W")
    class V(W):
        @workflow.run
        async def go(self) -> None:
            await body(self)

        run = None

        @workflow.signal
        def both(self) -> None:
            self.seen.append("go")
            raise ValueError("handler")

    async with hosted(MemoryJournal(), V) as runtime:
        handle = await runtime.spawn(V.go)
        await handle.signal(V.both)
        with pytest.raises(WorkflowFailedError, match="main"):
            await handle.result()
        assert {"HandlerFailed", "WorkflowFailed"} <= set(kinds(await handle.fetch_history())[-3:])
        described = await handle.describe()
        assert "handler" in described.dead_letters[0].reason
        assert "the handlers of these messages failed too: 3" in described.failure
        (failed,) = [e.event for e in await handle.fetch_history() if e.kind == "WorkflowFailed"]
        assert failed.suppressed == (3,)


# --- C02: waits with a time limit ---------------------------------------------------------------------------------


async def test_an_uncaught_time_limit_fails_the_run():
    async def body(self):
        await workflow.wait_condition(lambda: self.over, timeout=timedelta(milliseconds=10))

    W = run_of(body)
    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowFailedError, match="did not hold within"):
            await runtime.execute(W.run)


async def test_a_condition_that_comes_true_after_its_limit_is_harmless():
    async def body(self):
        with pytest.raises(TimeoutError):
            await workflow.wait_condition(lambda: self.over, timeout=0.01)
        self.seen.append("late")
        await workflow.wait_condition(lambda: self.over, timeout=60)

    W = run_of(body)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        while await handle.query("look", "") != "late":
            await asyncio.sleep(0.001)
        await handle.signal("end")
        assert await handle.result() == "late"


async def test_a_condition_that_raises_raises_where_it_is_awaited():
    async def body(self):
        with pytest.raises(ZeroDivisionError):
            await workflow.wait_condition(lambda: 1 / len(self.seen))
            await workflow.wait_condition(lambda: 1 / (len(self.seen) - 1))

    W = run_of(body)
    async with hosted(MemoryJournal(), W) as runtime:
        assert await runtime.execute(W.run) == ""


async def test_asyncios_own_time_limits_fail_the_run_too():
    async def body(self):
        async with asyncio.timeout(0.01):
            await workflow.wait_condition(lambda: False)

    W = run_of(body)
    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(WorkflowFailedError, match="TimeoutError"):
            await handle.result()
        assert (await handle.describe()).timers == ()


async def test_a_crash_of_one_run_stops_no_other():
    """C07: the third of ten raises, in its set-up."""

    @workflow.defn
    class Picky:
        @workflow.init
        def __init__(self, number: int) -> None:
            if number == 3:
                raise ValueError("third")

        @workflow.run
        async def run(self, number: int) -> int:
            return number

    async with hosted(MemoryJournal(), Picky) as runtime:
        handles = [await runtime.spawn(Picky.run, n) for n in range(1, 11)]
        results = await asyncio.gather(*(handle.result() for handle in handles), return_exceptions=True)
    assert [r for r in results if isinstance(r, int)] == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert isinstance(results[2], WorkflowQuarantinedError)


async def test_a_keyboard_interrupt_in_workflow_code_loses_no_event():
    """Ctrl-C while a turn runs: the turn never was, the runtime stops, and the next start goes on."""
    pressed = []

    async def body(self):
        await workflow.wait_condition(lambda: self.over)
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt

    W = run_of(body)
    loop_errors = []
    journal = MemoryJournal()
    runtime = hosted(journal, W)
    async with runtime:
        handle = await runtime.spawn(W.run, id="w")
        shard = runtime._shard
        pump = shard._pump

        def guarded():
            try:
                pump()
            except KeyboardInterrupt as error:
                loop_errors.append(error)

        shard._pump = guarded
        with pytest.raises(RuntimeClosedError, match="interrupted in a turn \\(KeyboardInterrupt\\)"):
            await handle.signal("end")
        with pytest.raises(RuntimeClosedError):
            await handle.result()
    assert len(loop_errors) == 1
    async with hosted(journal, W) as runtime:
        handle = runtime.ref("w", W)
        await handle.signal("end")
        assert await handle.result() == ""


@pytest.mark.parametrize("kept", [True, False])
async def test_what_a_background_task_raised_unseen_is_reported_when_the_run_ends(kept, caplog):
    """R7; once, and not again when the run is replayed."""

    @workflow.defn
    class W:
        async def bad(self) -> None:
            raise ValueError("in the background")

        @workflow.run
        async def run(self, seen: bool) -> str:
            task = asyncio.create_task(self.bad())
            if kept:
                self.task = task
            await asyncio.sleep(0)
            if seen:
                with pytest.raises(ValueError):
                    await task
            del task
            return "end"

        @workflow.query
        def look(self) -> None:
            pass

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run, True)
        assert await handle.result() == "end"
        assert "in the background" not in caplog.text
        handle = await runtime.spawn(W.run, False)
        assert await handle.result() == "end"
        runtime._shard.find(handle.workflow_id).drop_instance()
        await handle.query(W.look)
        assert caplog.text.count("ValueError: in the background") == 1
        recorded = [event for event in await handle.fetch_history() if event.kind == "TaskFailed"]
        assert [event.fields["failure"].message for event in recorded] == ["in the background"]

"""Sagas: what was done is undone, the last one first, whatever has gone wrong."""

import asyncio
import contextlib

import pytest
from support.hosting import kinds

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.actors.saga import step_completed
from everact.exceptions import (
    SagaCompensationError,
    WorkflowCancelledError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
    WorkflowTerminatedError,
)
from everact.interceptors import Interceptor, WorkflowInboundInterceptor, WorkflowOutboundInterceptor
from everact.testing import TestEnvironment, assert_compensated

ONCE = RetryPolicy(maximum_attempts=1)


class World:
    """What the activities have done, and what they are told to do."""

    def __init__(self):
        self.done = []
        self.keys = []
        self.broken = {}
        self.closed = set()  # what waits until the test opens it: "a", or "undo a" alone


world: World


@pytest.fixture(autouse=True)
def fresh_world():
    global world
    world = World()


async def acts(word, what):
    if world.closed & {what, f"{word} {what}"}:
        world.done.append(f"{word} {what} begins")
        await world.env.until(lambda: not world.closed & {what, f"{word} {what}"})
    left = world.broken.get(f"{word} {what}", 0)
    if left:
        world.broken[f"{word} {what}"] = left - 1
        world.done.append(f"{word} {what} fails")
        raise ApplicationError(f"cannot {word} {what}")
    world.done.append(f"{word} {what}")


@activity.defn(retry_policy=ONCE)
async def do(what: str) -> str:
    await acts("do", what)
    return what


@activity.defn(retry_policy=ONCE)
async def undo(what: str) -> None:
    world.keys.append(activity.info().idempotency_key.partition("/")[2])
    await acts("undo", what)


@activity.defn(retry_policy=ONCE)
async def undo_all() -> None:
    await acts("undo", "all")


ACTIVITIES = [do, undo, undo_all]
NEVER = 1_000_000


def environment(*workflows, activities=(), **options):
    world.env = TestEnvironment(workflows=workflows, activities=[*ACTIVITIES, *activities], **options)
    return world.env


async def begun(*words):
    """Wait until activities that are held have begun."""
    await world.env.until(lambda: all(f"{word} begins" in world.done for word in words))


async def failed(handle, kind=WorkflowFailedError):
    with pytest.raises(kind) as caught:
        await handle.result()
    return caught.value


def runs(body):
    """A workflow with this body; it takes the saga's options."""

    @workflow.defn(name="Saga")
    class Saga:
        def __init__(self) -> None:
            self.notes: list[str] = []
            self.go = False

        @workflow.signal
        def proceed(self) -> None:
            self.go = True

        @workflow.query
        def look(self) -> list[str]:
            return self.notes

        @workflow.run
        async def run(self) -> str | None:
            return await body(self)

    return Saga


async def outcome_of(body, **options):
    """Run a body to its end; returns ``(outcome, description, history)``, the outcome being a result or an error."""
    cls = runs(body)
    async with environment(cls, **options) as env:
        handle = await env.spawn(cls.run, id="s")
        try:
            outcome = await handle.result()
        except WorkflowFailedError as error:
            outcome = error
        return outcome, await handle.describe(), await handle.fetch_history()


# --- order


async def test_a_saga_that_goes_well_undoes_nothing():
    async def body(_run):
        async with workflow.saga() as saga:
            first = await saga.run(do, "a", compensate=undo)
            return first + await saga.run(do, "b", compensate=undo)

    outcome, seen, history = await outcome_of(body)
    assert outcome == "ab"
    assert world.done == ["do a", "do b"]
    assert seen.sagas == ()
    assert not any("Compensation" in kind for kind in kinds(history))


async def test_completed_steps_are_undone_in_reverse_and_the_error_goes_on():
    async def body(_run):
        async with workflow.saga("trip") as saga:
            await saga.run(do, "a", compensate=undo)
            await saga.run(do, "b")
            await saga.run(do, "c", compensate=undo)
            await saga.run(do, "d", compensate=undo)

    world.broken["do d"] = NEVER
    outcome, seen, history = await outcome_of(body)
    assert isinstance(outcome.__cause__, ActivityError)
    assert "cannot do d" in str(outcome)
    assert world.done == ["do a", "do b", "do c", "do d fails", "undo c", "undo a"]
    assert [kind for kind in kinds(history) if "Compensation" in kind] == [
        "CompensationStarted",
        "CompensationCompleted",
    ] * 2
    started = [e.event for e in history if e.kind == "CompensationStarted"]
    assert [(e.saga_name, e.step, e.name, e.compensation, e.total) for e in started] == [
        ("trip", 1, "do", "undo", 2),
        ("trip", 2, "do", "undo", 2),
    ]
    scheduled = {e.event.command for e in history if e.kind == "ActivityScheduled"}
    assert {e.command for e in started} <= scheduled
    assert str(seen.sagas[0]) == "trip: 2 of 2 compensations done"
    assert_compensated(history, ["undo", "undo"], saga="trip")


async def test_the_order_is_that_of_completion_not_of_the_calls():
    async def body(_run):
        async with workflow.saga() as saga:
            await asyncio.gather(*(saga.run(do, what, compensate=undo) for what in "abc"))
            raise ApplicationError("no")

    world.closed = set("abc")
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await begun("do a", "do b", "do c")
        for what in "bca":
            world.closed.remove(what)
            await env.until(lambda what=what: f"do {what}" in world.done)
        world.closed.clear()
        await failed(handle)
    assert [word for word in world.done if word.startswith("undo") and "begins" not in word] == [
        "undo a",
        "undo c",
        "undo b",
    ]


async def test_a_failed_parallel_step_undoes_its_siblings_that_were_done_or_end_well_later():
    """The sibling is waited for, and nobody breaks into it; one that ends well is undone."""

    @activity.defn(retry_policy=ONCE)
    async def stubborn(what: str) -> str:
        await activity.wait_for_cancelled()
        world.done.append(f"do {what} told to stop")
        await world.env.until(lambda: not world.closed)
        return what

    async def body(_run):
        async with workflow.saga() as saga:
            await asyncio.gather(
                saga.run(do, "a", compensate=undo),
                saga.run(stubborn, "b", compensate=undo),
                saga.run(do, "c", compensate=undo),
            )

    world.closed.add("b")
    world.broken["do c"] = NEVER
    cls = runs(body)
    async with environment(cls, activities=[stubborn]) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.until(lambda: "do b told to stop" in world.done)
        await env.sleep(0)
        assert "undo a" not in world.done
        world.closed.clear()
        error = await failed(handle)
    assert "cannot do c" in str(error)
    assert world.done[-2:] == ["undo b", "undo a"]


async def test_a_task_group_may_stand_inside():
    async def body(_run):
        async with workflow.saga() as saga:
            async with asyncio.TaskGroup() as group:
                group.create_task(saga.run(do, "a", compensate=undo))
                group.create_task(saga.run(do, "b", compensate=undo))

    world.broken["do b"] = NEVER
    outcome, _seen, _history = await outcome_of(body)
    assert "cannot do b" in str(outcome.__cause__.exceptions[0])
    assert world.done == ["do a", "do b fails", "undo a"]


async def test_a_step_that_nobody_has_awaited_is_waited_for_and_fails_the_saga():
    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            saga.run(do, "b", compensate=undo)

    world.broken["do b"] = NEVER
    outcome, _seen, _history = await outcome_of(body)
    assert "cannot do b" in str(outcome)
    assert world.done == ["do a", "do b fails", "undo a"]


async def test_parallel_compensations_run_side_by_side_and_by_priority():
    async def body(_run):
        async with workflow.saga(parallel=True) as saga:
            for number, what in enumerate("abcd"):
                await saga.run(do, what, compensate=undo, priority=int(number == 0))
            raise ApplicationError("no")

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await failed(handle)
        assert [w for w in world.done if w.startswith("undo")] == ["undo a", "undo d", "undo c", "undo b"]
        history = await handle.fetch_history()
    shape = [kind for kind in kinds(history) if "Compensation" in kind]
    assert (
        shape
        == ["CompensationStarted", "CompensationCompleted"]
        + ["CompensationStarted"] * 3
        + ["CompensationCompleted"] * 3
    )


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["b", "a"], "badc"),
        (["nobody", "c"], "cdba"),
        ({"d2": ["a"], "x": ["b"]}, "adcb"),
        ({"x": ["b"]}, "dcba"),
        ([], "dcba"),
    ],
)
async def test_the_order_may_come_from_data(order, expected):
    async def body(_run):
        async with workflow.saga(order=order) as saga:
            for what in "abcd":
                await saga.run(do, what, compensate=undo, name=what)
            await saga.run(do, "bad", name="d2")

    world.broken["do bad"] = NEVER
    await outcome_of(body)
    assert "".join(w[-1] for w in world.done if w.startswith("undo")) == expected


async def test_the_higher_priority_goes_first():
    async def body(_run):
        async with workflow.saga() as saga:
            for what, priority in (("a", 0), ("b", 5), ("c", -1), ("d", 5)):
                await saga.run(do, what, compensate=undo, priority=priority)
            raise ApplicationError("no")

    await outcome_of(body)
    assert "".join(w[-1] for w in world.done if w.startswith("undo")) == "dbac"


# --- kinds of steps


async def test_an_optional_step_may_fail_and_is_undone_when_it_was_done():
    async def body(run):
        async with workflow.saga() as saga:
            run.notes.append(str(await saga.run(do, "a", compensate=undo, optional=True)))
            run.notes.append(str(await saga.run(do, "b", compensate=undo, optional=True)))
            raise ApplicationError(" ".join(run.notes))

    world.broken["do b"] = NEVER
    outcome, _seen, _history = await outcome_of(body)
    assert "a None" in str(outcome)
    assert world.done == ["do a", "do b fails", "undo a"]


async def test_functions_get_the_result_and_may_be_plain_or_async():
    async def body(run):
        async def back(what: str) -> None:
            await workflow.sleep(0.001)
            run.notes.append(f"back {what}")

        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=back)
            await saga.run(do, "b", compensate=lambda what: run.notes.append(f"plain {what}"))
            await saga.run(do, "c", compensate=lambda: undo("of c"), compensate_args=())
            saga.add_compensation(back, "by hand")
            saga.add_compensation(undo, "added", name="extra")
            try:
                await saga.run(do, "d", compensate=back)
            except ActivityError:
                raise ApplicationError("no") from None

    world.broken["do d"] = NEVER
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await failed(handle)
        assert await handle.query(cls.look) == ["back by hand", "plain b", "back a"]
        history = await handle.fetch_history()
    assert world.done[-2:] == ["undo added", "undo of c"]
    names = [e.event.name for e in history if e.kind == "CompensationStarted"]
    assert names == ["extra", "back", "do", "do", "do"]


async def test_arguments_are_converted_at_the_call_and_the_result_when_it_comes():
    @activity.defn
    async def make() -> list[str]:
        return ["first"]

    @activity.defn
    async def forget(items: list[str]) -> None:
        world.done.append(f"forget {items}")

    async def body(_run):
        async with workflow.saga() as saga:
            items = await saga.run(make, compensate=forget)
            given = ["given"]
            await saga.run(make, compensate=forget, compensate_args=(given,))
            given.append("later")
            items.append("later")
            raise ApplicationError("no")

    cls = runs(body)
    async with environment(cls, activities=[make, forget]) as env:
        await failed(await env.spawn(cls.run, id="s"))
    assert world.done == ["forget ['given']", "forget ['first']"]


async def test_activities_by_name_and_options_of_the_compensation():
    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(
                "do",
                "a",
                result_type=str,
                compensate="undo",
                compensate_options={"start_to_close_timeout": 7, "retry_policy": ONCE},
                start_to_close_timeout=9,
            )
            raise ApplicationError("no")

    _outcome, _seen, history = await outcome_of(body)
    scheduled = [e.event for e in history if e.kind == "ActivityScheduled"]
    assert [(e.activity_type, e.start_to_close) for e in scheduled] == [
        ("do", 9_000_000),
        ("undo", 7_000_000),
    ]
    assert scheduled[1].retry.maximum_attempts == 1


async def test_an_inner_saga_that_ends_well_is_undone_with_the_outer_one():
    async def body(_run):
        async with workflow.saga("outer") as outer:
            await outer.run(do, "a", compensate=undo)
            async with workflow.saga("inner") as inner:
                await inner.run(do, "b", compensate=undo)
            await outer.run(do, "c", compensate=undo)
            with contextlib.suppress(ApplicationError):
                async with workflow.saga("failing") as failing:
                    await failing.run(do, "d", compensate=undo)
                    raise ApplicationError("d")
            raise ApplicationError("no")

    _outcome, seen, _history = await outcome_of(body)
    assert world.done[3:] == ["do d", "undo d", "undo c", "undo b", "undo a"]
    assert [str(saga) for saga in seen.sagas] == [
        "failing: 1 of 1 compensations done",
        "outer: 3 of 3 compensations done",
    ]


async def test_interceptors_see_steps_and_compensations_and_may_wrap_what_they_give():
    seen = []

    class Outbound(WorkflowOutboundInterceptor):
        def start_activity(self, input):
            seen.append((input.activity, len(input.args)))
            return asyncio.get_running_loop().create_task(self.wrapped(self.next.start_activity(input)))

        async def wrapped(self, handle):
            return await handle

    class Inbound(WorkflowInboundInterceptor):
        def init(self, outbound):
            self.next.init(Outbound(outbound))

    class Wrapping(Interceptor):
        def intercept_workflow(self, next):
            return Inbound(next)

    async def body(_run):
        async with workflow.saga(compensation_retry=ONCE) as saga:
            await asyncio.gather(saga.run(do, "a", compensate=undo), saga.run(do, "b", compensate=undo))
            await saga.run(do, "c")

    world.broken["do c"] = NEVER
    outcome, _seen, _history = await outcome_of(body, interceptors=[Wrapping()])
    assert "cannot do c" in str(outcome)
    assert world.done == ["do a", "do b", "do c fails", "undo b", "undo a"]
    assert seen[-5:] == [("do", 1)] * 3 + [("undo", 1)] * 2


async def test_steps_of_other_kinds_tell_the_saga_around_them():
    """As ``@workflow.step(compensate=...)`` does."""

    async def body(run):
        async with workflow.saga():
            step_completed("first", undo, ("result 1",))
            async with workflow.saga("inner"):
                step_completed("second", run.notes.append, ("result 2",))
            step_completed("third", "undo", ("result 3",), priority=-1)
            raise ApplicationError("no")

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await failed(handle)
        assert await handle.query(cls.look) == ["result 2"]
        history = await handle.fetch_history()
    assert world.done == ["undo result 1", "undo result 3"]
    started = [e.event for e in history if e.kind == "CompensationStarted"]
    assert [e.name for e in started] == ["second", "first", "third"]


async def test_outside_of_sagas_nobody_is_told():
    async def body(_run):
        step_completed("first", undo, ("result",))
        async with workflow.saga():
            pass
        return "well"

    assert (await outcome_of(body))[0] == "well"


async def test_a_step_of_another_kind_that_outlives_the_block_is_undone_when_it_ends():
    """Of a task that nobody stops: while the others are undone, and behind that."""

    async def body(run):
        async def outlives(number: int) -> None:
            await workflow.wait_condition(lambda: len(run.notes) > number)
            step_completed(f"late {number}", undo, (f"late {number}",))

        async def slowly(what: str) -> None:
            run.notes.append(what)
            await workflow.sleep(0.001)
            await undo(what)

        with contextlib.suppress(ApplicationError):
            async with workflow.saga("trip") as saga:
                tasks = [asyncio.create_task(outlives(number)) for number in range(2)]
                await saga.run(do, "a", compensate=slowly)
                raise ApplicationError("no")
        assert tasks[0].done()
        run.notes.append("more")
        await tasks[1]
        await workflow.wait_condition(lambda: run.go)

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.until(lambda: len(world.done) == 4)
        await handle.signal(cls.proceed)
        await handle.result()
        seen = await handle.describe()
    assert sorted(world.done[1:3]) == ["undo a", "undo late 0"]
    assert world.done[3] == "undo late 1"
    assert [saga.completed for saga in seen.sagas] == [1, 1, 1]


# --- steps of which it is not known whether they were done


@pytest.mark.parametrize("asked", [False, True])
async def test_a_step_that_timed_out_is_undone_when_asked_for(asked, caplog):
    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(
                do,
                "slow",
                compensate=undo,
                compensate_args=("slow booking",),
                compensate_unknown=asked,
                start_to_close_timeout=5,
            )

    world.closed.add("slow")
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.until(lambda: world.done)
        await env.sleep(6)
        error = await failed(handle)
    assert "start_to_close_timeout" in str(error)
    assert ("undo slow booking" in world.done) == asked
    text = "saga 'saga': whether step 'do' was done is not known, and it is not undone; give it compensate_unknown=True"
    assert (text in caplog.text) == (not asked)


async def test_a_step_that_failed_at_once_was_not_done_and_after_a_repeat_it_may_have_been():
    async def body(_run):
        retry = RetryPolicy(initial_interval=0.001, maximum_attempts=2)
        for what, policy in (("once", ONCE), ("twice", retry)):
            with contextlib.suppress(ActivityError):
                async with workflow.saga() as saga:
                    await saga.run(
                        do,
                        what,
                        compensate=undo,
                        compensate_args=(what,),
                        compensate_unknown=True,
                        retry_policy=policy,
                    )

    world.broken = {"do once": NEVER, "do twice": NEVER}
    await outcome_of(body)
    assert [w for w in world.done if w.startswith("undo")] == ["undo twice"]


# --- cancel, time limits, terminate


async def test_a_cancel_undoes_and_a_second_one_does_not_disturb():
    async def body(run):
        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            await saga.run(do, "b", compensate=undo)
            await workflow.wait_condition(lambda: run.go)

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.sleep(0)
        world.closed.add("b")
        await handle.cancel("enough")
        await begun("undo b")
        await handle.cancel("at once")
        await env.sleep(0)
        seen = await handle.describe()
        assert str(seen.sagas[0]) == "saga: 0 of 2 compensations done; undoing do"
        world.closed.clear()
        error = await failed(handle, WorkflowCancelledError)
        assert "enough" in str(error)
    assert world.done[-2:] == ["undo b", "undo a"]


async def test_a_cancel_while_it_compensates_comes_through_afterwards():
    async def body(run):
        try:
            async with workflow.saga() as saga:
                await saga.run(do, "a", compensate=undo)
                raise ApplicationError("no")
        except asyncio.CancelledError as error:
            run.notes.append(repr(error.__cause__))
            raise

    cls = runs(body)
    async with environment(cls) as env:
        world.closed.add("undo a")
        handle = await env.spawn(cls.run, id="s")
        await begun("undo a")
        await handle.cancel()
        await env.sleep(0)
        world.closed.clear()
        await failed(handle, WorkflowCancelledError)
        assert await handle.query(cls.look) == ["ApplicationError('no')"]
    assert world.done[-1] == "undo a"


@pytest.mark.parametrize("kind", ["asks", "never asks", "told to stop"])
async def test_a_cancel_finds_a_step_on_its_way_which_is_undone_if_it_was_done(kind):
    """By default nobody breaks into a step that has a compensation: what it is about to do would never be undone."""
    options = {"cancellation_type": "wait_cancellation_completed"} if kind == "told to stop" else {}

    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(late, "a", compensate=undo, **options)

    world.closed.add("a")

    @activity.defn(retry_policy=ONCE)
    async def late(what: str) -> str:
        world.done.append("begins")
        try:
            if kind == "asks":
                await activity.wait_for_cancelled()
            await world.env.until(lambda: not world.closed)
        except asyncio.CancelledError:
            assert kind == "told to stop"
            await world.env.until(lambda: not world.closed)
        world.done.append(f"do {what}")
        return what

    cls = runs(body)
    async with environment(cls, activities=[late]) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.advance(0, past_running=True)
        assert world.done == ["begins"]
        await handle.cancel()
        await env.advance(0, past_running=True)
        assert (await handle.describe()).status == "running"
        world.closed.clear()
        await failed(handle, WorkflowCancelledError)
    assert world.done == ["begins", "do a", "undo a"]


@pytest.mark.parametrize("attempts", [1, 2])
async def test_of_a_step_that_nobody_broke_into_and_that_did_not_end_it_is_known_that_it_was_not_done(
    attempts, caplog
):
    """It stopped where it asked; but an earlier attempt may have done it."""
    tried = []

    @activity.defn(retry_policy=RetryPolicy(initial_interval=0.001))
    async def asks(what: str) -> None:
        tried.append(what)
        if len(tried) < attempts:
            raise ApplicationError("once more")
        await activity.wait_for_cancelled()
        raise asyncio.CancelledError

    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(asks, "a", compensate=undo)

    cls = runs(body)
    async with environment(cls, activities=[asks]) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.advance(1, past_running=True)
        assert len(tried) == attempts
        await handle.cancel()
        await failed(handle, WorkflowCancelledError)
    assert world.done == []
    assert ("whether step 'asks' was done is not known" in caplog.text) == (attempts > 1)


@pytest.mark.parametrize("told", ["", "call", "declaration"])
async def test_what_a_step_of_the_class_is_doing_when_it_is_cancelled_is_undone(told):
    """Its activity goes on to its end, the step is completed, and the saga undoes it."""
    asked = {"cancellation_type": "try_cancel"}
    options = asked if told == "call" else {}

    @activity.defn(retry_policy=ONCE, **(asked if told == "declaration" else {}))
    async def slow(what: str) -> str:
        world.done.append("begins")
        await world.env.until(lambda: not world.closed)
        await acts("do", what)
        return what

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga():
                await self.book("a")
                await workflow.wait_condition(lambda: False)

        @workflow.step(compensate=undo)
        async def book(self, what: str) -> str:
            return await self.inside(what)

        @workflow.step
        async def inside(self, what: str) -> str:
            return await workflow.execute_activity(slow, what, **options)

    world.closed.add("a")
    async with environment(W, activities=[slow]) as env:
        handle = await env.spawn(W.run, id="s")
        await env.until(lambda: world.done)
        await handle.cancel()
        await env.sleep(0)
        assert (await handle.describe()).status == ("cancelled" if told else "running")
        world.closed.clear()
        await failed(handle, WorkflowCancelledError)
    assert world.done == (["begins"] if told else ["begins", "do a", "undo a"])


@pytest.mark.parametrize("inside", [False, True])
async def test_a_time_limit_undoes_and_becomes_a_timeout_error(inside):
    async def body(run):
        if inside:
            async with workflow.saga() as saga:
                await saga.run(do, "a", compensate=undo)
                async with asyncio.timeout(60):
                    await workflow.wait_condition(lambda: run.go)
        async with asyncio.timeout(60):
            async with workflow.saga() as saga:
                await saga.run(do, "a", compensate=undo)
                await workflow.wait_condition(lambda: run.go)

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.sleep(0)
        world.closed.add("a")
        await env.sleep(61)
        await begun("undo a")
        await env.sleep(240)  # no limit counts any more but that of the attempt
        world.closed.clear()
        error = await failed(handle)
    assert error.__cause__.type == "TimeoutError"
    assert world.done == ["do a", "undo a begins", "undo a"]


async def test_a_time_limit_that_passes_while_it_compensates_comes_through_afterwards():
    async def body(_run):
        async with asyncio.timeout(60), workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            await workflow.sleep(1)
            raise ApplicationError("no")

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.sleep(0)
        world.closed.add("a")
        await env.sleep(2)
        await begun("undo a")
        await env.sleep(61)
        world.closed.clear()
        error = await failed(handle)
    assert error.__cause__.type == "TimeoutError"
    assert error.__cause__.caused_by(ApplicationError)
    assert world.done[-1] == "undo a"


async def test_terminate_stops_the_compensating():
    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            await saga.run(do, "b", compensate=lambda what: undo(what + "2"))
            raise ApplicationError("no")

    world.closed.add("b2")
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await begun("undo b2")
        await handle.terminate("stop")
        await failed(handle, WorkflowTerminatedError)
        world.closed.clear()
        await env.sleep(0)
        seen = await handle.describe()
    assert "undo a" not in world.done
    assert str(seen.sagas[0]) == "saga: 0 of 2 compensations done; undoing do"


# --- policies


async def test_retry_repeats_under_one_key_until_it_succeeds():
    async def body(_run):
        async with workflow.saga(compensation_retry=RetryPolicy(initial_interval=0.001, jitter=0)) as saga:
            await saga.run(do, "a", compensate=undo)
            raise ApplicationError("no")

    world.broken["undo a"] = 3
    outcome, seen, _history = await outcome_of(body)
    assert outcome.__cause__.type == "ApplicationError"
    assert world.done == ["do a", *["undo a fails"] * 3, "undo a"]
    assert set(world.keys) == {"2"}
    assert seen.sagas[0].completed == 1


async def test_retry_is_without_end_unless_told_otherwise():
    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            raise ApplicationError("no")

    world.broken["undo a"] = 40
    outcome, seen, _history = await outcome_of(body)
    assert outcome.__cause__.type == "ApplicationError"
    assert world.done == ["do a", *["undo a fails"] * 40, "undo a"]
    assert seen.sagas[0].completed == 1


async def test_a_function_is_repeated_too_with_the_delay_that_its_error_asks_for():
    async def body(run):
        def back(what: str) -> None:
            run.notes.append(what)
            if len(run.notes) < 3:
                raise ApplicationError("not yet", next_retry_delay=0.001)

        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=back)
            raise ApplicationError("no")

    outcome, seen, history = await outcome_of(body)
    assert outcome.__cause__.type == "ApplicationError"
    assert seen.sagas[0].completed == 1
    assert kinds(history).count("TimerFired") == 2
    assert kinds(history).count("CompensationStarted") == 1


async def test_continue_collects_what_failed_and_undoes_the_others():
    caught = []

    async def body(_run):
        try:
            async with workflow.saga("trip", on_compensation_failure="continue") as saga:
                for what in "abcd":
                    await saga.run(do, what, compensate=undo, name=f"book {what}")
                await saga.run(do, "e")
        except SagaCompensationError as error:
            caught.append(error)
            raise

    world.broken = {"do e": NEVER, "undo b": NEVER, "undo c": NEVER}
    outcome, seen, history = await outcome_of(body)
    assert [w for w in world.done if w.startswith("undo")] == [
        "undo d",
        "undo c fails",
        "undo b fails",
        "undo a",
    ]
    live = caught[-1]
    assert [step for step, _why in live.failures] == ["book c", "book b"]
    assert [type(error) for error in live.errors] == [ActivityError, ActivityError]
    assert isinstance(live.__cause__, ActivityError)
    error = outcome.__cause__
    assert type(error) is SagaCompensationError
    assert error.saga == "trip"
    assert [step for step, _why in error.failures] == ["book c", "book b"]
    assert str(error) == str(live)
    assert "saga 'trip' could not undo all of its steps" in str(outcome)
    assert "step 'book b'" in str(outcome)
    assert "cannot do e" in str(error.__cause__)
    assert error.caused_by(ActivityError)
    assert str(seen.sagas[0]) == "trip: 2 of 4 compensations done; failed book c, book b"
    assert kinds(history).count("CompensationFailed") == 2


async def test_retry_that_gives_up_collects_too():
    async def body(_run):
        retry = RetryPolicy(initial_interval=0.001, maximum_attempts=2)
        async with workflow.saga(compensation_retry=retry) as saga:
            await saga.run(do, "a", compensate=undo)
            await saga.run(do, "b", compensate=undo)
            raise ApplicationError("no")

    world.broken["undo b"] = NEVER
    outcome, _seen, _history = await outcome_of(body)
    assert type(outcome.__cause__) is SagaCompensationError
    assert [w for w in world.done if w.startswith("undo")] == ["undo b fails", "undo b fails", "undo a"]


async def test_a_failed_compensation_counts_for_more_than_a_cancel():
    async def body(run):
        async with workflow.saga(on_compensation_failure="continue") as saga:
            await saga.run(do, "a", compensate=undo)
            await workflow.wait_condition(lambda: run.go)

    world.broken["undo a"] = NEVER
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await env.sleep(0)
        await handle.cancel()
        error = await failed(handle)
        assert type(error) is WorkflowFailedError
        assert error.__cause__.__cause__.type == "CancelledError"


async def test_escalate_quarantines_and_a_release_goes_on_with_that_compensation():
    async def body(_run):
        async with workflow.saga("trip", on_compensation_failure="escalate") as saga:
            for what in "abc":
                await saga.run(do, what, compensate=undo)
            raise ApplicationError("no")

    world.broken["undo b"] = 2
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        error = await failed(handle, WorkflowQuarantinedError)
        assert "cannot undo b" in str(error)
        seen = await handle.describe()
        assert (seen.status, seen.backlog) == ("quarantined", 0)
        assert "cannot undo b" in seen.failure
        assert str(seen.sagas[0]) == "trip: 1 of 3 compensations done; failed do"
        with pytest.raises(WorkflowQuarantinedError):
            await handle.query(cls.look)
        await handle.cancel()  # is recorded
        await env.restart()  # a start lets it stand
        await env.sleep(0)
        assert (await handle.describe()).status == "quarantined"
        await handle.release("try again")
        await failed(handle, WorkflowQuarantinedError)
        await handle.release("and again")
        await failed(handle, WorkflowCancelledError)
        seen = await handle.describe()
    assert [w for w in world.done if w.startswith("undo")] == [
        "undo c",
        "undo b fails",
        "undo b fails",
        "undo b",
        "undo a",
    ]
    assert len(set(world.keys[1:4])) == 1, "each try of one compensation has the same key"
    assert str(seen.sagas[0]) == "trip: 3 of 3 compensations done"


async def test_what_is_escalated_can_be_terminated():
    async def body(_run):
        async with workflow.saga(on_compensation_failure="escalate") as saga:
            await saga.run(do, "a", compensate=undo)
            raise ApplicationError("no")

    world.broken["undo a"] = NEVER
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await failed(handle, WorkflowQuarantinedError)
        await handle.terminate("by hand")
        await failed(handle, WorkflowTerminatedError)


@pytest.mark.parametrize("others", ["B", "BC", "BCD"])
async def test_one_release_begins_all_again_that_have_failed_until_then(others):
    async def body(_run):
        async with workflow.saga(on_compensation_failure="escalate", parallel=True) as saga:
            for what in "abcd":
                await saga.run(do, what, compensate=undo, compensate_args=(what.upper(),))
            raise ApplicationError("no")

    world.broken = {f"undo {what}": 2 for what in ("A", *others)}
    world.closed = set("ABCD")
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await begun("undo A", "undo B", "undo C", "undo D")
        world.closed.remove("A")
        await failed(handle, WorkflowQuarantinedError)
        world.closed.clear()  # they fail, or end well, while the run stands still
        await env.sleep(0)
        assert (await handle.describe()).backlog == 3
        await handle.release("again")
        await failed(handle, WorkflowQuarantinedError)  # all of them for the second time
        await env.sleep(0)
        await env.restart()  # a start lets it stand
        assert (await handle.describe()).status == "quarantined"
        await handle.release("and again")
        await failed(handle)
        seen = await handle.describe()
        history = await handle.fetch_history()
    undone = [w for w in world.done if w.startswith("undo") and w[-1] in "ABCD"]
    assert sorted(undone) == ["undo A", "undo B", "undo C", "undo D"]
    fails = [w for w in world.done if w.endswith("fails")]
    assert sorted(fails) == sorted(2 * [f"undo {what} fails" for what in ("A", *others)])
    assert kinds(history).count("RunReleased") == 2
    assert len(set(world.keys)) == 4, "each try of one compensation has the same key"
    assert str(seen.sagas[0]) == "saga: 4 of 4 compensations done"


async def test_sagas_side_by_side_that_escalate_wait_for_one_release():
    async def one(what):
        async with workflow.saga(what, on_compensation_failure="escalate") as saga:
            await saga.run(do, what, compensate=undo, compensate_args=(what.upper(),))
            raise ApplicationError("no")

    async def body(_run):
        await asyncio.gather(one("a"), one("b"), return_exceptions=True)

    world.broken = {"undo A": 1, "undo B": 1}
    world.closed = set("AB")
    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await begun("undo A", "undo B")
        world.closed.remove("A")
        await failed(handle, WorkflowQuarantinedError)
        world.closed.clear()
        await env.sleep(0)
        await handle.release("again")
        await handle.result()
        seen = await handle.describe()
    assert [str(saga) for saga in seen.sagas] == [
        "a: 1 of 1 compensations done",
        "b: 1 of 1 compensations done",
    ]


async def test_callers_of_an_update_hear_of_the_quarantine():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.is_over = False

        @workflow.update
        async def book(self) -> str:
            async with workflow.saga(on_compensation_failure="escalate") as saga:
                await saga.run(do, "a", compensate=undo)
                raise ApplicationError("no")

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.is_over)

    world.broken["undo a"] = NEVER
    async with environment(W) as env:
        handle = await env.spawn(W.run, id="s")
        with pytest.raises(WorkflowQuarantinedError):
            await asyncio.wait_for(handle.execute_update(W.book), 10)


# --- bugs


async def test_a_bug_in_the_block_quarantines_and_undoes_nothing_so_that_fixed_code_goes_on():
    is_fixed = False

    async def body(_run):
        try:
            async with workflow.saga() as saga:
                first = await saga.run(do, "a", compensate=undo)
                if not is_fixed:
                    raise KeyError("bug")
                return first + await saga.run(do, "b", compensate=undo)
        except KeyError:
            return "not for this code to handle"

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        error = await failed(handle, WorkflowQuarantinedError)
        assert "KeyError" in str(error)
        assert world.done == ["do a"]
        is_fixed = True
        await handle.release()
        assert await handle.result() == "ab"
    assert world.done == ["do a", "do b"]


async def test_with_on_crash_fail_a_bug_undoes():
    @workflow.defn(on_crash="fail")
    class W:
        @workflow.run
        async def run(self) -> None:
            async with workflow.saga() as saga:
                await saga.run(do, "a", compensate=undo)
                raise KeyError("bug")

    async with environment(W) as env:
        await failed(await env.spawn(W.run, id="s"))
    assert world.done == ["do a", "undo a"]


async def test_in_a_handler_any_exception_undoes():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.is_over = False

        @workflow.signal
        async def book(self) -> None:
            try:
                async with workflow.saga() as saga:
                    await saga.run(do, "a", compensate=undo)
                    raise ValueError("a handler may raise anything")
            finally:
                self.is_over = True

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: self.is_over)

    async with environment(W) as env:
        handle = await env.spawn(W.run, id="s")
        await handle.signal(W.book)
        await handle.result()
    assert world.done == ["do a", "undo a"]


async def test_a_bug_in_a_compensation_quarantines_until_it_is_fixed():
    is_fixed = False

    async def body(run):
        def back(what: str) -> None:
            if not is_fixed:
                raise KeyError("bug")
            run.notes.append(what)

        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo)
            await saga.run(do, "b", compensate=back)
            raise ApplicationError("no")

    cls = runs(body)
    async with environment(cls) as env:
        handle = await env.spawn(cls.run, id="s")
        await failed(handle, WorkflowQuarantinedError)
        assert world.done == ["do a", "do b"]
        is_fixed = True
        await handle.release()
        await failed(handle)
        assert await handle.query(cls.look) == ["b"]
    assert world.done == ["do a", "do b", "undo a"]


# --- bad input


def bad(call, error, text):
    return pytest.param(call, error, text, id=text[:40])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        bad(lambda: workflow.saga(1), TypeError, "the name of a saga must be a str, not 1"),
        bad(lambda: workflow.saga(""), ValueError, "the name of a saga must not be empty"),
        bad(
            lambda: workflow.saga(on_compensation_failure="ignore"),
            ValueError,
            "on_compensation_failure must be one of 'retry', 'continue', 'escalate', not 'ignore'",
        ),
        bad(
            lambda: workflow.saga(compensation_retry=3),
            TypeError,
            "compensation_retry must be a RetryPolicy, not 3",
        ),
        bad(lambda: workflow.saga(parallel=1), TypeError, "parallel must be True or False, not 1"),
        bad(lambda: workflow.saga(order="a"), TypeError, "order must be a list of names of steps"),
        bad(lambda: workflow.saga(order=[1]), TypeError, "a step in order must be a str, not 1"),
        bad(lambda: workflow.saga(order={"a": "b"}), TypeError, "order must be a list of names of steps"),
        bad(
            lambda: workflow.saga(order=["a"], parallel=True),
            ValueError,
            "order= says what comes first, and parallel=True that nothing does",
        ),
        bad(
            lambda: workflow.saga().run(do, "a"),
            RuntimeError,
            "saga.run() works inside the saga's block: async with workflow.saga() as saga",
        ),
        bad(
            lambda: workflow.saga().add_compensation(undo, "a"),
            RuntimeError,
            "saga.add_compensation() works inside the saga's block",
        ),
    ],
)
async def test_a_saga_with_bad_options_is_refused_at_the_call(call, error, text):
    said = []

    async def body(_run):
        with pytest.raises(error) as caught:
            call()
        said.append(str(caught.value))

    await outcome_of(body)
    assert text in said[-1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        bad(lambda s: s.run(undo_all, "a"), TypeError, "activity undo_all: "),
        bad(
            lambda s: s.run(do, "a", compensate=3),
            TypeError,
            "step 'do': a compensation is an activity, the name of one, or a function, not 3",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo_all),
            TypeError,
            "step 'do': its compensation undo_all gets the step's result as its only argument",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=lambda: None),
            TypeError,
            "say others by compensate_args=(...), and () for none",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_args="a"),
            TypeError,
            "step 'do': compensate_args must be a tuple, not 'a': of one argument it is (x,)",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_args=("a", "b")),
            TypeError,
            "step 'do': its compensation undo: activity undo: ",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_args=(3,)),
            Exception,
            "argument 'what' of activity undo",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_options={"timeout": 3}),
            TypeError,
            "unknown activity option 'timeout'",
        ),
        bad(
            lambda s: s.run(do, "a", compensation=undo),
            TypeError,
            "unknown saga step option 'compensation'; known: cancellation_type, compensate, compensate_args, ",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_options=3),
            TypeError,
            "step 'do': compensate_options must be a dict, not 3",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=print, compensate_options={"retry_policy": ONCE}),
            TypeError,
            "step 'do': options are for activities, and print is a function",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, priority="high"),
            TypeError,
            "step 'do': priority must be an int, not 'high'",
        ),
        bad(
            lambda s: s.run(do, "a", priority=1),
            TypeError,
            "step 'do': compensate_args, compensate_options and priority are for a compensation, and it has none",
        ),
        bad(
            lambda s: s.run(do, "a", optional="yes"),
            TypeError,
            "step 'do': optional must be True or False, not 'yes'",
        ),
        bad(
            lambda s: s.run(do, "a", compensate=undo, compensate_unknown=True),
            ValueError,
            "step 'do': compensate_unknown=True needs compensate= and compensate_args=",
        ),
        bad(lambda s: s.run(do, "a", name=""), ValueError, "the name of a step must not be empty"),
        bad(
            lambda s: s.run(do, "a", compensate="undoo"),
            Exception,
            "activity 'undoo' is not registered",
        ),
        bad(
            lambda s: s.add_compensation(None),
            TypeError,
            "add_compensation() needs an activity, the name of one, or a function, not None",
        ),
        bad(lambda s: s.add_compensation(undo), TypeError, "step 'undo': its compensation undo"),
    ],
)
async def test_a_bad_step_is_refused_at_the_call_and_leaves_nothing(call, error, text):
    said = []

    async def body(_run):
        async with workflow.saga() as saga:
            with pytest.raises(error) as caught:
                call(saga)
            said.append(str(caught.value))

    outcome, _seen, history = await outcome_of(body, strict=False)
    assert outcome is None
    assert text in said[-1]
    assert "ActivityScheduled" not in kinds(history)


async def test_what_goes_on_as_another_run_must_not_lose_what_is_to_be_undone():
    class GoesOn(BaseException):
        """As what ``continue_as_new`` raises."""

    said = []

    async def body(_run):
        for count in (0, 1):
            try:
                async with workflow.saga("trip") as saga:
                    if count:
                        await saga.run(do, "a", compensate=undo)
                    raise GoesOn
            except (GoesOn, RuntimeError) as error:
                said.append(f"{type(error).__name__} {error}")

    await outcome_of(body)
    assert said[-2].startswith("GoesOn")
    assert "GoesOn must not leave the block of saga 'trip'" in said[-1]
    assert "completed steps (1) would be lost" in said[-1]
    assert world.done == ["do a"]


async def test_continue_as_new_belongs_behind_the_block():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self, way: str) -> str:
            if way == "end":
                return "went on"
            async with workflow.saga("trip") as saga:
                await saga.run(do, "a", compensate=undo)
                if way == "inside":
                    workflow.continue_as_new("end")
            workflow.continue_as_new("end")

    async with environment(W) as env:
        assert await env.execute(W.run, "behind", id="behind") == "went on"
        handle = await env.spawn(W.run, "inside", id="inside")
        error = await failed(handle, WorkflowQuarantinedError)
    assert "ContinueAsNewError must not leave the block of saga 'trip'" in str(error)


async def test_a_saga_is_entered_once_and_takes_no_steps_once_it_was_left():
    said = []

    async def body(_run):
        saga = workflow.saga("trip")
        async with saga:
            pass
        with pytest.raises(RuntimeError) as caught:
            await saga.__aenter__()
        said.append(str(caught.value))
        with pytest.raises(RuntimeError) as caught:
            saga.run(do, "a")
        said.append(str(caught.value))

    await outcome_of(body)
    assert "saga 'trip' has been entered before" in said[-2]
    assert "the block of saga 'trip' has been left" in said[-1]


async def test_a_result_that_the_compensation_does_not_take_is_found_out_at_once():
    @activity.defn
    async def undo_number(number: int) -> None:
        pass

    async def body(_run):
        async with workflow.saga() as saga:
            await saga.run(do, "a", compensate=undo_number)

    cls = runs(body)
    async with environment(cls, activities=[undo_number]) as env:
        handle = await env.spawn(cls.run, id="s")
        error = await failed(handle, WorkflowQuarantinedError)
    assert "argument 'number' of activity undo_number" in str(error)

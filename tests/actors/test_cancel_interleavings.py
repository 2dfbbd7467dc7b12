"""R10 and chapter A: a cancel request meets results, timers, messages, pauses and restarts in every forced order.

Nothing sleeps: what happens together is put into one turn of the loop by hand.
"""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from itertools import permutations

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, kinds, loaded, settled, until
from support.rounds import rounds
from support.stores import TroubledStore
from support.workflow_programs import Interpreted, Outside, act, gated, outsides

from everact import RetryPolicy, activity, workflow
from everact.exceptions import WorkflowCancelledError, WorkflowClosedError
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore

HOUR = timedelta(hours=1)
ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn(retry_policy=ONCE)
async def short(n: int) -> str:
    await asyncio.Event().wait()  # a test says when it ends
    return str(n)


@workflow.defn
class Loop:
    """A01: one short activity after the other; notes what it was told."""

    @workflow.run
    async def run(self, kind: str) -> None:
        n = 0
        try:
            while True:
                await workflow.execute_activity(short, n, cancellation_type=kind)
                n += 1
        finally:
            workflow.logger.info("stopped %d", n)


class Stage:
    """One run, and what happens to it when the test says so."""

    def __init__(self, runtime, clock, workflow_id="w"):
        self.runtime, self.clock, self.id = runtime, clock, workflow_id
        self.handle = runtime.ref(workflow_id)

    @property
    def actor(self):
        return self.runtime._shard.find(self.id)

    async def attempt(self):
        """The only attempt in hand, once it runs."""
        await until(lambda: self.actor.attempts and next(iter(self.actor.attempts.values())).task is not None)
        (attempt,) = self.actor.attempts.values()
        return attempt

    def end(self, attempt):
        """An attempt has its result, in this turn of the host's loop."""
        self.runtime._shard.dispatcher.pool._report(attempt, self.runtime._converter.encode("x", str))
        attempt.task.cancel()  # its code waits for ever

    def cancel(self):
        self.actor.put(ev.CancelRequested("stop"))

    def pause(self):
        self.actor.put_first(ev.RunPaused("a look"), None)

    def resume(self):
        self.actor.put_first(ev.RunResumed("seen"), None)

    def is_over(self):
        return self.actor.state.status == "cancelled"

    def evict(self):
        if self.actor.instance is not None:
            self.actor.drop_instance()


async def ends_cancelled(runtime, handle, *, reason="stop"):
    """The run ends cancelled, and nothing of it is left (A06, A10); returns its history."""
    with pytest.raises(WorkflowCancelledError, match=reason):
        await handle.result(timeout=20)
    shard = runtime._shard
    await settled(runtime)
    history = await handle.fetch_history()
    seen = kinds(history)
    assert seen.count("CancelRequested") == 1
    assert seen[-1] == "WorkflowCancelled"
    cancels = [e.event.command for e in history if e.kind in ("ActivityCancelRequested", "TimerCancelled")]
    assert len(cancels) == len(set(cancels)), "one command was cancelled twice"
    found = await handle.describe()
    assert (found.pending_activities, found.timers, found.backlog) == ((), (), 0)
    assert handle.workflow_id not in shard.newest
    running = [attempt for attempt in shard.dispatcher.pool._running if not attempt.ended]
    assert handle.workflow_id not in [attempt.actor.workflow_id for attempt in running]
    shard.timers.sweep()
    assert not [entry for entry in shard.timers._heap if entry[4] is not shard.horizon]
    actor = shard.find(handle.workflow_id)
    actor.drop_instance()
    assert loaded(actor).outcome == actor.state.outcome, "a replay ends in another way"
    return history


ORDERS = [list(order) for order in permutations(["result", "cancel"])]
APART = ["together", "apart", "paused", "evicted", "restarted"]


@pytest.mark.parametrize("kind", ["try_cancel", "wait_cancellation_completed", "abandon"])
@pytest.mark.parametrize("how", APART)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("position", range(8))
async def test_a01_a_cancel_at_each_position_of_a_loop_over_short_activities_ends_it(
    kind, how, order, position
):
    """A01: the request and the result of the ``position``-th activity, in both orders, in five ways."""
    clock = ManualClock()
    journal = MemoryJournal()
    options = {"activities": [short], "clock": clock, "max_concurrent_activities": 100}
    async with hosted(journal, Loop, **options) as runtime:
        await runtime.spawn(Loop.run, kind, id="w")
        stage = Stage(runtime, clock)
        for _ in range(position):
            stage.end(await stage.attempt())
            await settled(runtime)
        attempt = await stage.attempt()
        if how == "paused":
            stage.pause()
        for step in order:
            if step == "cancel":
                stage.cancel()
            elif not attempt.ended:
                stage.end(attempt)
            if how == "apart":
                await settled(runtime)
            if how == "evicted":
                await settled(runtime)
                stage.evict()
        if how == "paused":
            await settled(runtime)
            assert (await stage.handle.describe()).status == "paused"
            stage.resume()
        if how != "restarted":
            history = await ends_cancelled(runtime, stage.handle)
    if how == "restarted":
        async with hosted(journal, Loop, **options) as runtime:
            stage = Stage(runtime, clock)
            history = await ends_cancelled(runtime, stage.handle)
    done = kinds(history).count("ActivityCompleted")
    assert done in (position, position + 1), "the loop has gone on behind the request"


@workflow.defn
class Chain:
    """A03: two activities, the second one must not begin behind the request."""

    @workflow.run
    async def run(self, between: str) -> None:
        await workflow.execute_activity("gated", "first", result_type=str)
        match between:
            case "yield":
                await asyncio.sleep(0)
            case "task":
                await asyncio.create_task(asyncio.sleep(0))
            case "work":
                for _ in range(100):
                    workflow.uuid4()
        await workflow.execute_activity("gated", "second", result_type=str)


@pytest.mark.parametrize("between", ["nothing", "yield", "task", "work"])
@pytest.mark.parametrize("how", ["mailbox", "host stopped", "received while paused"])
async def test_a03_what_comes_with_the_result_stops_the_run_before_its_next_command_takes_effect(
    between, how
):
    """A03: the host is stopped after the first has begun; its end and the request arrive together."""
    one = gate()
    journal = MemoryJournal()
    async with hosted(journal, Chain, activities=[one.fn]) as runtime:
        await runtime.spawn(Chain.run, between, id="w")
        stage = Stage(runtime, None)
        attempt = await stage.attempt()
        await until(lambda: one.calls)
        if how == "received while paused":
            await stage.handle.pause()
        if how != "host stopped":
            stage.end(attempt)
            stage.cancel()
        if how == "received while paused":
            await stage.handle.resume()
        if how != "host stopped":
            history = await ends_cancelled(runtime, stage.handle)
    if how == "host stopped":
        async with hosted(journal, Chain, activities=[one.fn]) as runtime:
            stage = Stage(runtime, None)
            await until(lambda: len(one.calls) == 2)
            (attempt,) = stage.actor.attempts.values()
            stage.end(attempt)
            stage.cancel()
            history = await ends_cancelled(runtime, stage.handle)
    assert "second" not in one.calls
    seen = kinds(history)
    assert seen.index("ActivityCompleted") < seen.index("CancelRequested")
    # The second one is not scheduled, or scheduled and cancelled before anybody saw it: by rule, and so in each replay.
    assert seen.count("ActivityScheduled") - seen.count("ActivityCompleted") == seen.count(
        "ActivityCancelRequested"
    )


# --- what is cancelled, in which order


SHAPES = {
    "gather": lambda calls: asyncio.gather(*calls()),
    "wait": lambda calls: waits(calls),
    "group": lambda calls: in_group(calls),
    "nested": lambda calls: asyncio.gather(asyncio.gather(*calls()), in_group(calls), waits(calls)),
    "timeout": lambda calls: in_time(calls),
}


async def waits(calls):
    tasks = [asyncio.ensure_future(call) for call in calls()]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()


async def in_group(calls):
    async with asyncio.TaskGroup() as group:
        for call in calls():
            group.create_task(call)


async def in_time(calls):
    async with asyncio.timeout(3600):
        await asyncio.gather(*calls())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("done", [(), (0,), (1, 3), (2,)])
async def test_what_a_request_cancels_is_cancelled_in_the_order_of_creation(shape, done):
    """R10: activities and timers mixed; those that are done are left out."""
    n = 5

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            def calls():
                for i in range(n):
                    yield (workflow.execute_activity(short, i) if i % 2 == 0 else asyncio.sleep(100 + i))

            await SHAPES[shape](calls)

    clock = ManualClock()
    async with hosted(MemoryJournal(), W, activities=[short], clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="w")
        stage = Stage(runtime, clock)
        await until(
            lambda: len(stage.actor.attempts) >= 3 and all(a.task for a in stage.actor.attempts.values())
        )
        first = min([*stage.actor.attempts, *stage.actor.state.timers])
        for offset in done:
            if offset % 2 == 0:
                attempt = stage.actor.attempts.get(first + offset)
                if attempt is not None:
                    stage.end(attempt)
            await settled(runtime)
        await handle.cancel("stop")
        history = await ends_cancelled(runtime, handle)
    cancels = [e.event.command for e in history if e.kind in ("ActivityCancelRequested", "TimerCancelled")]
    if shape != "timeout":  # its own timer is older than what it guards, and is let go last
        assert cancels == sorted(cancels)
    else:
        assert cancels[:-1] == sorted(cancels[:-1])
    made = {e.event.command for e in history if e.kind in ("ActivityScheduled", "TimerStarted")}
    over = {e.event.command for e in history if e.kind in ("ActivityCompleted", "TimerFired")}
    assert set(cancels) == made - over


# --- clean-up


@pytest.mark.parametrize("guard", ["finally", "shield", "shielded task", "timeout in finally"])
@pytest.mark.parametrize("again", ["never", "while it cleans up", "at once"])
async def test_clean_up_is_done_once_and_in_full_whatever_comes_meanwhile(guard, again):
    """Activities in ``finally``, under a shield; a second request is the same one."""
    undone = []

    @activity.defn
    async def undo(what: str) -> str:
        undone.append(what)
        return what

    slow = gate("slow")

    @workflow.defn
    class W:
        async def clean(self) -> str:
            found = [await undo("a"), await workflow.execute_activity(slow.fn, "b"), await undo("c")]
            return ",".join(found)

        @workflow.run
        async def run(self) -> None:
            try:
                await workflow.sleep(3600)
            finally:
                match guard:
                    case "finally":
                        await self.clean()
                    case "shield":
                        await asyncio.shield(self.clean())
                    case "shielded task":
                        task = asyncio.create_task(self.clean())
                        await asyncio.shield(task)
                    case "timeout in finally":
                        async with asyncio.timeout(600):
                            await self.clean()

    async with hosted(MemoryJournal(), W, activities=[undo, slow.fn]) as runtime:
        handle = await runtime.spawn(W.run, id="w")
        await handle.cancel("stop")
        if again == "at once":
            await handle.cancel("stop")
        await until(lambda: slow.calls)
        if again == "while it cleans up":
            await handle.cancel("another reason")
        assert (await handle.describe()).cancel_requested
        slow.open.set()
        await ends_cancelled(runtime, handle)
    assert undone == ["a", "c"]
    assert slow.calls == ["b"]


@pytest.mark.parametrize("scope", ["timeout", "task", "shield", "wait_for"])
async def test_a_scope_of_its_own_ends_without_the_run(scope):
    """A timeout, a cancelled task, a shield: the run is not asked to cancel, and sees no request."""

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            found = []
            try:
                match scope:
                    case "timeout":
                        async with asyncio.timeout(10):
                            await workflow.execute_activity(short, 1)
                    case "wait_for":
                        await asyncio.wait_for(workflow.execute_activity(short, 1), 10)
                    case "task" | "shield":
                        inner = asyncio.create_task(workflow.execute_activity(short, 1))
                        task = asyncio.shield(inner) if scope == "shield" else inner
                        asyncio.get_running_loop().call_later(10, task.cancel)
                        await task
            except TimeoutError:
                found.append("too late")
            except asyncio.CancelledError:
                found.append("cancelled")
            found.append(str(workflow.cancellation_requested()))
            if scope == "shield":
                inner.cancel()
            await workflow.sleep(1)
            return found

    clock = ManualClock()
    async with hosted(MemoryJournal(), W, activities=[short], clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="w")
        await Stage(runtime, clock).attempt()
        for _ in range(2):
            clock.advance(10)
            runtime._shard.timers.check()
            await settled(runtime)
        late = "too late" if scope in ("timeout", "wait_for") else "cancelled"
        assert await handle.result() == [late, "False"]
        seen = kinds(await handle.fetch_history())
        assert "CancelRequested" not in seen
        assert seen.count("ActivityCancelRequested") == 1
        assert not runtime._shard.dispatcher.pool._running


# --- random programs


def random_program(rng, depth=0):
    """Steps of ``workflow_programs``: scopes in scopes."""
    steps = []
    for _ in range(rng.randint(1, 3)):
        kinds = ["act", "gate", "sleep", "wait", "draw"]
        if depth < 3:
            kinds += ["all", "group", "race", "limit", "guard"] * 2
        match kind := rng.choice(kinds):
            case "act":
                steps.append(["act", rng.randint(0, 3)])
            case "gate":
                steps.append(["gate", rng.randint(0, 2)])
            case "sleep":
                steps.append(["sleep", rng.uniform(1, 1000)])
            case "wait":
                steps.append(["wait", rng.randint(1, 4)])
            case "draw":
                steps.append(["draw"])
            case "all" | "group" | "race":
                steps.append([kind, [random_program(rng, depth + 1) for _ in range(rng.randint(1, 3))]])
            case "limit":
                steps.append(["limit", rng.uniform(1, 1000), random_program(rng, depth + 1)])
            case "guard":
                steps.append(["guard", random_program(rng, depth + 1), [["act", 1], ["draw"], ["act", 2]]])
    return steps


@pytest.mark.parametrize("seed", rounds(range(120), 60))
async def test_random_scopes_that_are_cancelled_at_random_end_cancelled_and_leave_nothing(seed):
    """Gates, signals, time, evictions, pauses, failed commits and restarts around one request, or several."""
    rng = random.Random(seed)
    clock = ManualClock()
    journal = MemoryJournal()
    loop = asyncio.get_running_loop()
    outside = outsides[loop] = Outside()
    program = [*random_program(rng), ["wait", 10**6]]
    asked = False
    done = False
    try:
        for life in range(4):
            store = TroubledStore(MemoryStore(journal))
            async with hosted(store, Interpreted, activities=[act, gated], clock=clock) as runtime:
                if not life:
                    await runtime.spawn(Interpreted.run, program, id="w")
                stage = Stage(runtime, clock)
                for _ in range(rng.randint(2, 8)):
                    if stage.is_over():
                        break
                    match rng.randrange(9):
                        case 0:
                            outside.open(rng.randrange(3))
                        case 1:
                            stage.actor.put(ev.SignalReceived("tell", (runtime._converter.encode(1, int),)))
                        case 2:
                            clock.advance(rng.uniform(1, 500))
                            runtime._shard.timers.check()
                        case 3:
                            stage.evict()
                        case 4:
                            stage.pause()
                        case 5:
                            stage.resume()
                        case 6:
                            stage.cancel()
                            asked = True
                        case 7 if asked:
                            stage.cancel()
                        case _:
                            if rng.random() < 0.3:
                                store.failures = [rng.choice(["before", "after"])]
                    if rng.random() < 0.6:
                        await settled(runtime)
                await settled(runtime)
                if life == 3:
                    store.failures = []
                    await settled(runtime)
                    stage.resume()
                    with suppress(WorkflowClosedError):  # an earlier request has ended it by now
                        await stage.handle.cancel("stop")
                    for _ in range(100):
                        await settled(runtime)
                        if stage.is_over():
                            break
                        clock.advance(1)
                        runtime._shard.timers.check()
                    await ends_cancelled(runtime, stage.handle)
                    done = True
    finally:
        del outsides[loop]
    assert done


# --- A10, A07


@pytest.mark.parametrize("end", ["cancel", "terminate", "purge"])
@pytest.mark.parametrize("when", ["backoff", "waits for a slot", "runs", "second backoff"])
async def test_a10_nothing_is_left_of_a_run_that_ends_while_its_activity_is_between_two_attempts(end, when):
    clock = ManualClock()
    calls = []
    blocker = gate("blocker")

    @activity.defn(
        retry_policy=RetryPolicy(initial_interval=HOUR, maximum_interval=HOUR, jitter=0, maximum_attempts=9)
    )
    async def fails() -> None:
        calls.append(1)
        if when == "runs":
            await asyncio.Event().wait()
        raise ValueError("no")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, block: bool) -> None:
            await (workflow.execute_activity(blocker.fn, "x") if block else fails())

    options = {"activities": [fails, blocker.fn], "clock": clock}
    if when == "waits for a slot":
        options["max_concurrent_activities"] = 1
    journal = MemoryJournal()
    async with hosted(journal, W, **options) as runtime:
        if when == "waits for a slot":
            await runtime.spawn(W.run, True, id="blocker")
            await until(lambda: blocker.calls)
        handle = await runtime.spawn(W.run, False, id="w")
        if when == "waits for a slot":
            await until(lambda: runtime.activity_slots().waiting == 1)
        else:
            await until(lambda: calls)
            await settled(runtime)
        if when == "second backoff":
            clock.advance(3601)
            runtime._shard.timers.check()
            await until(lambda: len(calls) == 2)
            await settled(runtime)
        before = len(calls)
        if end == "cancel":
            await handle.cancel("stop")
            await ends_cancelled(runtime, handle)
        else:
            await handle.terminate("away")
            await settled(runtime)
        if end == "purge":
            await runtime.purge(workflow_id="w", older_than=0)
            assert [run.workflow_id for run in await runtime.list_workflows() if run.workflow_id == "w"] == []
        shard = runtime._shard
        assert "w" not in shard.newest
        await until(lambda: runtime.activity_slots()[0] == (when == "waits for a slot"))
        assert runtime.activity_slots().waiting == 0
        shard.timers.sweep()
        assert shard.timers._heap == []
        clock.advance(10 * 3600)
        shard.timers.check()
        await settled(runtime)
        assert len(calls) == before
    async with hosted(journal, W, **options) as runtime:
        clock.advance(10 * 3600)
        await settled(runtime)
        assert len(calls) == before

"""Attempts: retries, time limits, the fence (R3), failures as data, and the pools they run in."""

import asyncio
import contextlib
import random
import sys
import threading
from datetime import timedelta

import pytest
from support.clock import ManualClock
from support.hosting import commands, gate, hosted, kinds, settled, tick, until

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.actors import activity_pool
from everact.actors.retries import decide
from everact.actors.thread_pool import ThreadPool
from everact.exceptions import ActivityTimeoutError, WorkflowFailedError, WorkflowHeldError
from everact.journal import events as ev
from everact.journal.failures import Failure, class_names
from everact.journal.memory_store import MemoryJournal

SECOND = 1_000_000
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=1), jitter=0)
ONCE = RetryPolicy(maximum_attempts=1)


class Shop(Exception):
    pass


class SoldOut(Shop):
    pass


def caller(fn, *args, **options):
    @workflow.defn(name="Caller")
    class Caller:
        @workflow.run
        async def run(self) -> object:
            return await workflow.execute_activity(fn, *args, **options)

    return Caller


async def fails_with(W, *activities, **options):
    async with hosted(MemoryJournal(), W, activities=activities, **options) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(W.run)
    return caught.value.__cause__


# --- when the next attempt comes ----------------------------------------------------------------------------------

WHY = Failure(type="SoldOut", bases=class_names(SoldOut), message="none left")


def delays(policy, count, failure=WHY, seed=1):
    rng = random.Random(seed)
    return [decide(policy.to_record(), attempt, failure, rng)[0] for attempt in range(1, count + 1)]


def test_waits_grow_by_the_coefficient_up_to_the_longest():
    policy = RetryPolicy(
        initial_interval=timedelta(seconds=1),
        backoff_coefficient=3,
        maximum_interval=timedelta(seconds=10),
        maximum_attempts=0,
        jitter=0,
    )
    assert delays(policy, 5) == [SECOND, 3 * SECOND, 9 * SECOND, 10 * SECOND, 10 * SECOND]
    assert decide(policy.to_record(), 10**6, WHY, random.Random()) == (10 * SECOND, "")


def test_waits_may_grow_by_an_amount_or_stay_as_they_are():
    same = {"jitter": 0, "maximum_attempts": 0, "backoff_coefficient": 1}
    linear = RetryPolicy(initial_interval=2, increment=timedelta(seconds=3), maximum_interval=10, **same)
    assert delays(linear, 5) == [2 * SECOND, 5 * SECOND, 8 * SECOND, 10 * SECOND, 10 * SECOND]
    assert delays(RetryPolicy(initial_interval=2, **same), 3) == [2 * SECOND] * 3
    with pytest.raises(ValueError, match="RetryPolicy.increment"):
        RetryPolicy(increment=-1)


def test_the_default_policy_gives_up_after_ten_attempts_and_about_four_minutes():
    waits = delays(RetryPolicy(jitter=0), 10)
    assert waits[-1] == -1
    assert sum(waits[:-1]) / SECOND == 1 + 2 + 4 + 8 + 16 + 32 + 60 * 3


@pytest.mark.parametrize("seed", range(20))
def test_jitter_stays_within_its_share_and_below_the_longest_wait(seed):
    policy = RetryPolicy(jitter=0.25, maximum_attempts=0)
    for attempt, wait in enumerate(delays(policy, 12, seed=seed)):
        plain = min(2**attempt, 60) * SECOND
        assert 0.75 * plain <= wait <= min(1.25 * plain, 60 * SECOND)
    assert len(set(delays(policy, 12, seed=seed))) > 5


@pytest.mark.parametrize(
    "name", [SoldOut, Shop, Exception, "SoldOut", "Shop", f"{__name__}.Shop", "builtins.Exception"]
)
def test_lists_of_types_match_classes_subclasses_dotted_and_bare_names(name):
    """C12"""
    never = RetryPolicy(non_retryable_error_types=[name])
    assert decide(never.to_record(), 1, WHY, random.Random()) == (-1, "error type is non-retryable")
    only = RetryPolicy(retry_on=[name])
    assert decide(only.to_record(), 1, WHY, random.Random())[0] > 0


@pytest.mark.parametrize("name", [KeyError, "Sold", "soldout", "shop.SoldOut", "other.Shop"])
def test_other_names_do_not_match(name):
    assert decide(RetryPolicy(non_retryable_error_types=[name]).to_record(), 1, WHY, random.Random())[0] > 0
    only = RetryPolicy(retry_on=[name])
    assert decide(only.to_record(), 1, WHY, random.Random()) == (-1, "error type is not in retry_on")


def test_an_empty_retry_on_repeats_nothing():
    assert decide(RetryPolicy(retry_on=[]).to_record(), 1, WHY, random.Random())[0] == -1


@pytest.mark.parametrize("attempts", [1, 3])
async def test_an_activity_is_tried_as_often_as_its_policy_says(attempts):
    calls = []

    @activity.defn
    async def fails() -> None:
        calls.append((activity.info().attempt, activity.info().idempotency_key))
        raise SoldOut("none left")

    policy = RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=attempts)
    error = await fails_with(caller(fails, retry_policy=policy), fails)
    assert isinstance(error, ActivityError)
    assert [attempt for attempt, _ in calls] == list(range(1, attempts + 1))
    assert len({key for _, key in calls}) == 1
    assert (error.attempt, error.retry_state) == (attempts, f"maximum_attempts={attempts} reached")
    assert error.caused_by(SoldOut) and error.caused_by("Shop") and error.caused_by(f"{__name__}.Shop")
    assert not error.caused_by(KeyError)


async def test_an_attempt_that_fails_is_followed_by_one_that_succeeds():
    clock = ManualClock()
    calls = []

    @activity.defn(retry_policy=RetryPolicy(jitter=0))
    async def flaky() -> str:
        calls.append(activity.info().attempt)
        if len(calls) < 3:
            raise OSError("down")
        return "up"

    journal = MemoryJournal()
    W = caller(flaky)
    async with hosted(journal, W, activities=[flaky], clock=clock) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: runtime._shard.timers._heap)
        (pending,) = (await handle.describe()).pending_activities
        assert (pending.attempt, pending.last_failure) == (2, "OSError: down")
        assert "attempt 2" in (await handle.describe()).waiting_on
        await tick(runtime, clock, 0.9)
        assert calls == [1]
    # The backoff survives a restart: it neither begins anew nor is it cut short.
    async with hosted(journal, W, activities=[flaky], clock=clock) as runtime:
        await settled(runtime)
        assert calls == [1]
        await tick(runtime, clock, 0.2)
        await until(lambda: calls == [1, 2] and runtime._shard.timers._heap)
        await tick(runtime, clock, 2)
        handle = runtime.ref("a", W)
        assert await handle.result() == "up"
        assert kinds(await handle.fetch_history()).count("AttemptFailed") == 2
    assert calls == [1, 2, 3]


async def test_an_error_may_say_that_it_is_not_to_be_repeated():
    calls = []

    @activity.defn
    async def fails() -> None:
        calls.append(1)
        raise ApplicationError("never", {"code": 7}, type="Declined", non_retryable=True)

    error = await fails_with(caller(fails), fails)
    assert calls == [1]
    assert error.retry_state == "non-retryable error"
    cause = error.__cause__
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message, cause.details, cause.non_retryable) == (
        "Declined",
        "never",
        ({"code": 7},),
        True,
    )
    assert error.caused_by("Declined")


async def test_an_error_may_set_the_next_delay():
    clock = ManualClock()
    calls = []

    @activity.defn
    async def fails() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ApplicationError("busy", next_retry_delay=timedelta(hours=5))
        return "ok"

    W = caller(fails)
    async with hosted(MemoryJournal(), W, activities=[fails], clock=clock) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: runtime._shard.timers._heap)
        await tick(runtime, clock, 5 * 3600 - 1)
        assert calls == [1]
        await tick(runtime, clock, 1)
        assert await handle.result() == "ok"


# --- failures as data ---------------------------------------------------------------------------------------------


class TwoWords(Exception):
    def __init__(self, *, first, second):
        super().__init__(f"{first} {second}")
        self.first = first


async def test_exceptions_with_their_own_constructor_come_back_live_and_replayed():
    """C09"""

    @activity.defn(retry_policy=ONCE)
    async def fails() -> None:
        try:
            raise SoldOut("deep")
        except SoldOut as inner:
            raise TwoWords(first="a", second="b") from inner

    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.seen: list[str] = []
            self.over = False

        @workflow.run
        async def run(self) -> None:
            try:
                await fails()
            except ActivityError as error:
                cause = error.__cause__
                self.seen += [type(cause).__name__, str(cause), str(cause.__cause__), cause.failure.trace[:9]]
                self.seen += [str(error.caused_by(TwoWords)), str(error.caused_by(Shop))]
            await workflow.wait_condition(lambda: self.over)

        @workflow.query
        def show(self) -> list[str]:
            return self.seen

        @workflow.signal
        def end(self) -> None:
            self.over = True

    journal = MemoryJournal()
    async with hosted(journal, W, activities=[fails]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await until(lambda: not runtime._shard.find("a").state.activities)
        live = await handle.query(W.show)
    async with hosted(journal, W, activities=[fails]) as runtime:
        replayed = await runtime.ref("a", W).query(W.show)
    assert live == replayed
    assert live == ["ApplicationError", "TwoWords: a b", "SoldOut: deep", "Traceback", "True", "True"]


async def test_details_that_have_no_stored_form_come_as_text():
    @activity.defn(retry_policy=ONCE)
    async def fails() -> None:
        raise ApplicationError("x", object(), 1)

    error = await fails_with(caller(fails), fails)
    text, one = error.__cause__.details
    assert "object" in text and one == 1


async def test_a_result_without_a_stored_form_fails_at_once_and_is_not_repeated():
    calls = []

    @activity.defn
    async def odd() -> int:
        calls.append(1)
        return "no number"  # type: ignore[return-value]

    error = await fails_with(caller(odd), odd)
    assert calls == [1]
    assert error.caused_by("PayloadEncodeError")


# --- time limits and the fence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_error_of_a_time_limit_names_the_option(colour):
    release = threading.Event()

    @activity.defn(name="slow", start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    async def slow() -> None:
        await asyncio.Event().wait()

    @activity.defn(name="slow", start_to_close_timeout=timedelta(milliseconds=20), retry_policy=ONCE)
    def slow_thread() -> None:
        release.wait(10)

    fn = slow if colour == "async" else slow_thread
    error = await fails_with(caller(fn), fn)
    release.set()
    assert isinstance(error.__cause__, ActivityTimeoutError)
    assert isinstance(error.__cause__, TimeoutError)
    assert "start_to_close_timeout=0.02 s" in str(error) and "'slow'" in str(error)
    assert error.caused_by(TimeoutError)


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_late_result_of_an_attempt_that_was_given_up_is_refused(colour):
    """R3, C14, F06: attempt 1 outlives its limit and returns during the fan-out that follows."""
    late = threading.Event()
    returned = threading.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=20), retry_policy=QUICK)
    async def first() -> str:
        if activity.info().attempt > 1:
            return "second attempt"
        while not late.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue  # swallows the cancel
        returned.set()
        return "LATE"

    @activity.defn(name="first", start_to_close_timeout=timedelta(milliseconds=20), retry_policy=QUICK)
    def first_in_thread() -> str:
        if activity.info().attempt > 1:
            return "second attempt"
        with activity.shield_thread_cancel_exception():  # or it would be told at its next bytecode
            late.wait(10)
            returned.set()
        return "LATE"

    @activity.defn
    async def fan(n: int) -> int:
        late.set()
        while not returned.is_set():
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0)
        return n

    fn = first if colour == "async" else first_in_thread

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            one = await workflow.execute_activity(fn)
            rest = await asyncio.gather(*(fan(n) for n in range(5)))
            return f"{one} {rest}"

    async with hosted(MemoryJournal(), W, activities=[fn, fan]) as runtime:
        handle = await runtime.spawn(W.run)
        assert await handle.result() == "second attempt [0, 1, 2, 3, 4]"
        history = await handle.fetch_history()
    assert [number for number, _ in commands(history)] == [1, 2, 3, 4, 5, 6]
    outcomes = [(e.event.command, e.event.attempt) for e in history if e.kind == "ActivityCompleted"]
    assert sorted(outcomes) == [(1, 2), *((n, 1) for n in range(2, 7))]


@pytest.mark.parametrize("failing", range(4))
async def test_a_fan_out_after_retries_always_wakes(failing):
    """C14: whichever attempt fails."""
    calls = []

    @activity.defn(retry_policy=QUICK)
    async def flaky() -> int:
        calls.append(1)
        if len(calls) <= failing:
            raise OSError("again")
        return len(calls)

    @activity.defn(retry_policy=QUICK)
    async def fan(n: int) -> int:
        if n == failing and activity.info().attempt == 1:
            raise OSError("once")
        return n

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[int]:
            return [await flaky(), *await asyncio.gather(*(fan(n) for n in range(5)))]

    async with hosted(MemoryJournal(), W, activities=[flaky, fan]) as runtime:
        assert await runtime.execute(W.run) == [failing + 1, 0, 1, 2, 3, 4]


async def test_forged_and_stale_outcomes_are_refused():
    held = gate("held")
    W = caller(held.fn, "x")
    async with hosted(MemoryJournal(), W, activities=[held.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        await until(lambda: held.calls)
        actor = runtime._shard.find(handle.workflow_id)
        before = len(await handle.fetch_history())
        wrong = runtime._converter.encode("wrong", str)
        for event in (
            ev.ActivityCompleted(1, 2, wrong),
            ev.ActivityCompleted(2, 1, wrong),
            ev.ActivityFailed(1, 0, WHY),
            ev.AttemptFailed(1, 7, WHY, 0),
            ev.TimerFired(1),
        ):
            actor.put(event)
        await settled(runtime)
        assert len(await handle.fetch_history()) == before
        held.open.set()
        assert await handle.result() == "through"
        actor.put(ev.ActivityCompleted(1, 1, wrong))
        await settled(runtime)
        assert await handle.result() == "through"


# --- pools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_pool_runs_as_many_at_once_as_it_may_and_all_in_the_end(colour):
    running, most, lock = [0], [0], threading.Lock()

    def enter():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])

    def leave():
        with lock:
            running[0] -= 1

    barrier = threading.Barrier(3)

    @activity.defn(name="work")
    async def work(n: int) -> int:
        enter()
        await asyncio.sleep(0)
        leave()
        return n

    @activity.defn(name="work")
    def work_in_thread(n: int) -> int:
        enter()
        if n < 3:
            barrier.wait(10)  # three really are at work together
        leave()
        return n

    fn = work if colour == "async" else work_in_thread

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> int:
            return sum(await asyncio.gather(*(workflow.execute_activity(fn, n) for n in range(200))))

    limits = {"max_concurrent_activities": 3} if colour == "async" else {"max_activity_threads": 3}
    async with hosted(MemoryJournal(), W, activities=[fn], **limits) as runtime:
        assert await runtime.execute(W.run) == sum(range(200))
    assert (most[0], running[0]) == (3, 0)


async def test_a_stuck_thread_is_replaced_and_the_time_limit_counts_from_the_real_start():
    """F08: with one thread, the second waits for longer than its own limit before it starts."""
    release = threading.Event()
    started = []

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=60), retry_policy=ONCE)
    def stuck(n: int) -> int:
        started.append(n)
        if n == 0:
            release.wait(20)
        return n

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> list[str]:
            results = await asyncio.gather(
                *(workflow.execute_activity(stuck, n) for n in range(3)), return_exceptions=True
            )
            return [str(r)[:30] for r in results]

    async with hosted(MemoryJournal(), W, activities=[stuck], max_activity_threads=1) as runtime:
        first, *rest = await runtime.execute(W.run)
        pool = runtime._shard.dispatcher.pool
        assert rest == ["1", "2"] and "failed" in first
        assert len(pool.threads.lost) == 1
        assert any(thread.name == pool.threads.lost[0] for thread in threading.enumerate())
        release.set()
        await until(lambda: not pool.threads.lost)
    assert started == [0, 1, 2]


async def test_a_stuck_thread_that_nobody_wants_any_more_is_replaced_too():
    release = threading.Event()
    started = threading.Event()

    @activity.defn(start_to_close_timeout=timedelta(milliseconds=30))
    def stuck(wait: bool) -> str:
        if wait:
            started.set()
            release.wait(20)
        return "free"

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, wait: bool) -> str:
            return await workflow.execute_activity(stuck, wait)

    async with hosted(MemoryJournal(), W, activities=[stuck], max_activity_threads=1) as runtime:
        handle = await runtime.spawn(W.run, True)
        await asyncio.to_thread(started.wait)
        await handle.cancel()
        other = await runtime.spawn(W.run, False)
        assert await other.result(timeout=5) == "free"
        release.set()


@pytest.mark.parametrize("colour", ["async", "thread"])
@pytest.mark.parametrize("kind", ["exit", "odd"])
async def test_what_is_no_exception_is_a_failed_attempt_not_the_end_of_the_process(colour, kind):
    class Odd(BaseException):
        pass

    def leave():
        if kind == "exit":
            sys.exit("enough")
        raise Odd("enough")

    @activity.defn(name="leaves", retry_policy=ONCE)
    async def leaves() -> None:
        await asyncio.sleep(0)
        leave()

    @activity.defn(name="leaves", retry_policy=ONCE)
    def leaves_thread() -> None:
        leave()

    fn = leaves if colour == "async" else leaves_thread
    error = await fails_with(caller(fn), fn)
    assert error.caused_by("SystemExit" if kind == "exit" else "Odd")
    assert "enough" in str(error)


async def test_a_cancelled_error_of_its_own_is_a_failed_attempt():
    @activity.defn(retry_policy=ONCE)
    async def odd() -> None:
        raise asyncio.CancelledError("mine")

    error = await fails_with(caller(odd), odd)
    assert error.caused_by("CancelledError")


async def test_an_activity_that_is_not_registered_stays_pending_and_runs_when_it_is():
    """C08, for activities."""
    journal = MemoryJournal()
    held = gate("renamed")
    W = caller(held.fn, "x")
    async with hosted(journal, W, activities=[held.fn]) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: held.calls)
    async with hosted(journal, W) as runtime:
        handle = runtime.ref("a", W)
        await settled(runtime)
        description = await handle.describe()
        assert description.status == "running"
        assert [p.activity_type for p in description.pending_activities] == ["renamed"]
        assert "renamed" in description.waiting_on
    held.open.set()
    async with hosted(journal, W, activities=[held.fn]) as runtime:
        assert await runtime.ref("a", W).result() == "through"
    assert held.calls == ["x", "x"]


async def test_attempts_know_who_they_are():
    seen = []

    @activity.defn(name="who")
    async def who() -> None:
        seen.append(activity.info())
        assert activity.in_activity() and not workflow.in_workflow()

    W = caller(who)
    async with hosted(MemoryJournal(), W, activities=[who]) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await handle.result()
    (info,) = seen
    assert (info.activity_type, info.workflow_id, info.run_id) == ("who", "a", handle.run_id)
    assert (info.workflow_type, info.command, info.attempt) == ("Caller", 1, 1)
    assert info.idempotency_key == f"{handle.run_id}/1"


# --- types that are not registered --------------------------------------------------------------------------------


async def test_a_run_whose_type_is_not_registered_is_held_visibly_and_keeps_its_signals():
    """C08, C07: one such run stops none of the other nine."""

    @workflow.defn(name="Lost")
    class Lost:
        def __init__(self) -> None:
            self.log: list[str] = []

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: len(self.log) == 2)
            return " ".join(self.log)

        @workflow.signal
        def note(self, text: str) -> None:
            self.log.append(text)

    @workflow.defn
    class Fine:
        @workflow.run
        async def run(self) -> str:
            await workflow.sleep(0.01)
            return "fine"

    journal = MemoryJournal()
    async with hosted(journal, Lost, Fine) as runtime:
        for number in range(10):
            kind = Lost if number == 3 else Fine
            await runtime.spawn(kind.run, id=f"w{number}")
    async with hosted(journal, Fine) as runtime:
        for number in range(10):
            if number != 3:
                assert await runtime.ref(f"w{number}", Fine).result() == "fine"
        handle = runtime.ref("w3")
        with pytest.raises(WorkflowHeldError, match=r"'Lost' is not registered.*known: Fine"):
            await handle.result()
        await handle.signal("note", "one")
        await handle.signal("note", "two")
        description = await handle.describe()
        assert (description.status, description.backlog) == ("held", 2)
        assert "Fine" in description.failure
        assert [line.workflow_id for line in await runtime.list_workflows(status="held")] == ["w3"]
        with pytest.raises(Exception, match="not registered"):
            await handle.query("anything")
        with pytest.raises(Exception, match="held|not registered"):
            await handle.execute_update("anything")
    async with hosted(journal, Fine) as runtime:
        await settled(runtime)
        assert kinds(await runtime.ref("w3").fetch_history()).count("RunStalled") == 1
    async with hosted(journal, Fine, Lost) as runtime:
        assert await runtime.ref("w3", Lost).result() == "one two"


class TestGivingUpAThread:
    def test_one_that_has_just_ended_is_kept_and_takes_work_again(self):
        """The limit passes while the end of the attempt is still on its way to the loop."""
        pool = ThreadPool()
        workers, done = [], threading.Event()

        def work(name):
            def run(worker):
                worker.doing = name
                workers.append(worker)
                done.set()

            return run

        pool.submit(work("one"))
        assert done.wait(10)
        (worker,) = workers
        while worker.doing == "one":  # it goes idle by itself
            pass
        assert pool.give_up(worker, "one") == ""
        done.clear()
        pool.submit(work("two"))
        assert done.wait(10)
        assert workers == [worker, worker] and not worker.lost
        pool.close()
        worker.thread.join(10)

    def test_one_that_works_on_something_else_by_now_is_left_alone(self):
        pool = ThreadPool()
        go, began, workers = threading.Event(), threading.Event(), []

        def work(worker):
            worker.doing = "two"
            workers.append(worker)
            began.set()
            go.wait(10)

        pool.submit(work)
        assert began.wait(10)
        assert pool.give_up(workers[0], "one") == ""
        assert pool.give_up(workers[0], "two") == workers[0].thread.name
        go.set()
        workers[0].thread.join(10)
        assert not workers[0].thread.is_alive()


@pytest.mark.parametrize("when", ["before", "during"])
async def test_leaving_does_not_wait_for_attempts_that_nobody_wants(when):
    """A thread cannot be stopped; when its run is terminated, the grace time is not for it."""
    release, started = threading.Event(), threading.Event()

    @activity.defn
    def stuck() -> None:
        started.set()
        release.wait(20)

    W = caller(stuck)
    loop = asyncio.get_running_loop()
    runtime = hosted(MemoryJournal(), W, activities=[stuck], grace=15)
    async with runtime:
        handle = await runtime.spawn(W.run)
        await asyncio.to_thread(started.wait)
        await until(lambda: runtime._shard.dispatcher.pool._running)
        if when == "before":
            await handle.terminate()
        else:
            attempt = next(iter(runtime._shard.dispatcher.pool._running))
            loop.call_later(0.02, runtime._shard.dispatcher.pool.withdraw, attempt)
        begun = loop.time()
    assert loop.time() - begun < 10
    release.set()


@pytest.mark.parametrize("how", ["swallows", "awaits_at_the_end"])
async def test_code_that_goes_on_when_it_is_cut_is_closed_and_named(how, monkeypatch, caplog):
    """Its task would keep ``asyncio.run`` from returning, for ever."""
    monkeypatch.setattr(activity_pool, "CUT_PATIENCE", 0.01)
    tasks, ended = [], []

    @activity.defn
    async def stays() -> None:
        tasks.append(asyncio.current_task())
        try:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)
        finally:
            ended.append(1)
            if how == "awaits_at_the_end":
                await asyncio.sleep(3600)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await stays()

    async with hosted(MemoryJournal(), W, activities=[stays], grace=0) as runtime:
        await runtime.spawn(W.run, id="a")
        await until(lambda: tasks)
    await asyncio.wait(tasks, timeout=5)
    assert tasks[0].done()
    assert ended == [1]
    assert (
        "activity 'stays' of workflow 'a' goes on although it was cancelled, and is closed where"
        in caplog.text
    )

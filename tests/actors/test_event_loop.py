"""The event loop of a run: turns, timers, tasks, what it refuses, and how a run is dropped."""

import asyncio
import contextlib
import contextvars
import gc
import importlib.util
import inspect
import math
import pickle
import subprocess
import sys
import time
import tracemalloc
import warnings
import weakref
from pathlib import Path

import pytest

from everact.actors import asyncio_discard, event_loop
from everact.actors.asyncio_discard import CLOSE_TRIES, REFUSALS
from everact.actors.event_loop import (
    ForbiddenInWorkflowError,
    Handle,
    ReadOnlyError,
    RunDiscarded,
    TurnAborted,
    WorkflowLoop,
    detached_count,
)
from everact.journal.errors import EveractError

_spec = importlib.util.spec_from_file_location(
    "loop_scenarios", Path(__file__).with_name("loop_scenarios.py")
)
scenarios = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scenarios)


@pytest.fixture
def host():
    host = scenarios.Host()
    yield host
    host.loop.discard()


@pytest.fixture
def loop(host):
    return host.loop


# --- turns


def test_callbacks_run_first_in_first_out_until_none_is_left(host, loop):
    seen = []

    def more(value):
        seen.append(value)
        if value < 3:
            loop.call_soon(more, value + 1)
            loop.call_soon(seen.append, f"after {value}")

    assert host.turn(lambda: loop.call_soon(more, 1) and "result") == "result"
    assert seen == [1, 2, "after 1", 3, "after 2"]
    assert not loop.has_ready()


def test_a_turn_sets_the_running_loop_and_gives_it_back(host, loop):
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    hooks = sys.get_asyncgen_hooks()
    assert host.turn(asyncio.get_running_loop) is loop
    with loop as entered:
        assert entered is loop is asyncio._get_running_loop()
        assert asyncio._get_running_loop().host is host
        assert loop.is_running()
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    assert sys.get_asyncgen_hooks() == hooks


async def test_a_turn_inside_another_loop_gives_that_one_back():
    outer = asyncio.get_running_loop()
    hooks = sys.get_asyncgen_hooks()
    host, inner = scenarios.Host(), scenarios.Host()

    def nested():
        assert inner.turn(asyncio.get_running_loop) is inner.loop
        return asyncio.get_running_loop()

    done = outer.create_future()
    outer.call_soon(lambda: done.set_result(host.turn(nested)))
    assert await done is host.loop
    with pytest.raises(ZeroDivisionError):
        host.turn(lambda: 1 / 0)
    assert asyncio.get_running_loop() is outer
    assert sys.get_asyncgen_hooks() == hooks


def test_a_turn_does_not_nest_in_itself(host, loop):
    with pytest.raises(RuntimeError, match="already running"):
        host.turn(host.turn)
    with pytest.raises(RuntimeError, match="already running"), loop, loop:
        pass
    with pytest.raises(RuntimeError, match="inside a turn"):
        loop.run_until_idle()
    assert not loop.is_running()


def test_cancelled_handles_are_not_called(host, loop):
    handle = loop.call_soon(scenarios.record)
    assert isinstance(handle, Handle)
    assert repr(handle) == "<Handle record>"
    assert not handle.cancelled()
    handle.cancel()
    handle.cancel()
    assert handle.cancelled()
    host.turn()


def test_callbacks_keep_their_context(host, loop):
    variable = contextvars.ContextVar("variable", default="outside")
    seen = []

    def schedule():
        variable.set("inside")
        loop.call_soon(lambda: seen.append(variable.get()))
        loop.call_later(1, lambda: seen.append(variable.get()))

    handle = loop.call_soon(schedule, context=contextvars.Context())
    assert variable not in handle.get_context()
    host.turn()
    host.fire_next()
    assert seen == ["inside", "inside"]
    assert variable.get() == "outside"


def test_an_exception_of_a_callback_goes_to_the_host_and_the_next_one_runs(host, loop):
    seen = []
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(seen.append, 1)
    host.turn()
    assert seen == [1]
    assert [type(error["exception"]) for error in host.errors] == [ZeroDivisionError]
    assert "Exception in callback" in host.errors[0]["message"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, TurnAborted])
@pytest.mark.parametrize("inside", ["callback", "task"])
def test_what_must_stop_the_turn_leaves_it_and_the_rest_stays_queued(host, loop, kind, inside):
    def callback():
        raise kind("stop")

    async def task():
        callback()

    seen = []
    loop.call_soon(callback) if inside == "callback" else loop.create_task(task())
    loop.call_soon(seen.append, 1)
    with pytest.raises(kind, match="stop"):
        host.turn()
    assert asyncio._get_running_loop() is None
    assert seen == []
    host.turn()
    assert seen == [1]
    assert loop.live_tasks() == []
    gc.collect()
    assert [error for error in host.errors if kind is TurnAborted] == []


# --- time


@pytest.mark.parametrize("delay", [math.nan, math.inf, -math.inf, "1", None])
def test_delays_are_finite_numbers(loop, delay):
    with pytest.raises(ValueError, match="finite number of seconds"):
        loop.call_later(delay, print)
    with pytest.raises(ValueError, match="finite number of seconds"):
        loop.call_at(delay, print)


@pytest.mark.parametrize("delay", [0, -1, -0.5])
def test_no_delay_needs_no_timer(host, loop, delay):
    seen = []
    loop.call_later(delay, seen.append, 1)
    loop.call_at(loop.time() + delay, seen.append, 2)
    assert host.timers == []
    host.turn()
    assert seen == [1, 2]


def test_timers_are_the_hosts_and_ask_for_round_delays(host, loop):
    assert loop.time() == host.now
    loop.call_at(loop.time() + 10, print)
    loop.call_later(0.25, print)
    assert host.log == ["timer 1 10", "timer 2 0.25"]
    assert sorted(round(when - host.now, 9) for when, _, _ in host.timers) == [0.25, 10.0]


def test_a_cancelled_sleep_cancels_its_timer(host):
    async def main():
        for sleep in (asyncio.sleep(3600), asyncio.wait_for(asyncio.Event().wait(), 3600)):
            task = asyncio.create_task(sleep)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        task = asyncio.create_task(asyncio.sleep(3600))
        task.cancel()  # never entered: no timer at all
        await asyncio.wait([task])

    host.run(main)
    assert host.log == ["timer 1 3600", "cancel timer 1", "timer 2 3600", "cancel timer 2"]
    assert not host.fire_next()
    assert host.errors == []


# --- tasks and futures


def test_task_names_and_numbers_are_the_runs_own():
    async def main():
        asyncio.create_task(asyncio.sleep(0), name="mine")
        third = asyncio.create_task(asyncio.sleep(0), name=3)
        return (
            third.get_name(),
            asyncio.create_task(asyncio.sleep(0)).get_name(),
            asyncio.current_task().get_name(),
        )

    for _ in range(2):
        assert scenarios.Host().run(main) == ("3", "Task-4", "Task-1")


def test_tasks_start_in_order_whatever_newer_pythons_ask(host, loop):
    async def note(value):
        host.log.append(value)

    def start():
        loop.create_task(note(1), eager_start=True)
        host.log.append("created")
        loop.create_task(note(2), name=None, context=contextvars.copy_context())

    host.turn(start)
    assert host.log == ["created", 1, 2]


def test_tasks_that_nobody_holds_are_not_collected(host, loop):
    seen = []

    async def wait_for_ever():
        future = asyncio.get_running_loop().create_future()
        seen.append(weakref.ref(future))
        try:
            await future
        finally:
            seen.append("ended")

    host.turn(lambda: loop.create_task(wait_for_ever()) and None)
    gc.collect()
    assert seen[0]() is not None
    assert len(loop.live_tasks()) == 1
    assert "ended" not in seen
    seen[0]().set_result(None)
    host.turn()
    assert seen[1:] == ["ended"]
    assert loop.live_tasks() == []


def test_finished_tasks_are_let_go_at_once(host, loop):
    async def nothing():
        return None

    task = weakref.ref(host.turn(lambda: loop.create_task(nothing())))
    gc.collect()
    assert task() is None


async def fail(text):
    raise ValueError(text)


def unseen(loop):
    return [str(task.exception()) for task in loop.unseen_failures()]


def test_failures_that_nobody_has_looked_at_are_kept_until_the_end(host, loop):
    async def main():
        local = asyncio.create_task(fail("in a local"))
        asyncio.create_task(fail("not held"))
        asyncio.get_running_loop().call_soon(asyncio.create_task, fail("made by a callback"))
        seen = asyncio.create_task(fail("looked at"))
        awaited = asyncio.create_task(fail("awaited"))
        cancelled = asyncio.create_task(fail("never entered"))
        cancelled.cancel()
        waited = asyncio.create_task(fail("waited for only"))
        await asyncio.gather(fail("gathered"), fail("gathered too"), return_exceptions=True)
        with pytest.raises(ValueError):
            await asyncio.gather(fail("first of a gather"), fail("second of a gather"))
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fail("in a group"))
        with pytest.raises(ValueError):
            await asyncio.wait_for(awaited, 5)
        await asyncio.wait([waited])
        assert local.done()
        return str(seen.exception())

    assert host.run(main) == "looked at"
    gc.collect()
    failed = loop.unseen_failures()
    assert [str(task._exception) for task in failed] == [
        "in a local",
        "not held",
        "waited for only",
        "made by a callback",
    ]
    assert [task.get_name() for task in failed][:2] == ["Task-2", "Task-3"]
    for task in failed:
        task._log_traceback = False
    assert loop.unseen_failures() == []
    del failed, task
    loop.discard()
    gc.collect()
    assert host.errors == []


def test_a_failure_is_unseen_until_it_is_looked_at(host, loop):
    tasks = host.turn(lambda: [loop.create_task(fail(f"{number}")) for number in range(100)])
    order = [str(task._exception) for task in loop.unseen_failures()]
    assert order == [f"{number}" for number in range(100)]
    assert str(tasks[7].exception()) == "7"
    assert unseen(loop) == order[:7] + order[8:]
    assert unseen(loop) == []  # that was a look at each


def test_failures_that_were_looked_at_are_let_go(host, loop):
    async def main():
        tasks = []
        for number in range(1000):
            task = asyncio.create_task(fail(f"{number}"))
            await asyncio.gather(task, return_exceptions=True)
            tasks.append(weakref.ref(task))
        return tasks

    tasks = host.run(main)
    gc.collect()
    assert sum(task() is not None for task in tasks) <= 2


def test_dropping_a_run_drops_its_failures_silently(host, loop):
    host.turn(lambda: loop.create_task(fail("lost")) and None)
    (failed,) = map(weakref.ref, loop.unseen_failures())
    loop.discard()
    gc.collect()
    assert failed() is None
    assert loop.unseen_failures() == []
    assert host.errors == []


def test_current_task_is_kept_per_run(host, loop):
    other = scenarios.Host()

    async def inner():
        return asyncio.current_task().get_name()

    async def main():
        before = asyncio.current_task()
        assert other.start(inner).result() == "Task-1"
        assert asyncio.current_task() is before
        return before

    assert host.run(main).get_loop() is loop


def test_cancel_ends_a_task_once_and_shield_protects(host):
    async def main():
        inner = asyncio.create_task(scenarios.act(host, "inner"))
        outer = asyncio.create_task(asyncio.wait_for(asyncio.shield(inner), None))
        await asyncio.sleep(0)
        assert outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert not outer.cancel()
        assert await inner == "inner"

    host.run(main)
    assert host.log == ["command inner", "done inner"]


@pytest.mark.parametrize("count", [10_000])
def test_a_wide_gather_is_not_quadratic(count):
    def seconds(width):
        host = scenarios.Host()

        async def main():
            futures = [asyncio.get_running_loop().create_future() for _ in range(width)]

            async def one(future):
                return await future

            gathering = asyncio.gather(*map(one, futures))
            for i, future in enumerate(futures):
                asyncio.get_running_loop().call_soon(future.set_result, i)
            return await gathering

        gc.collect()  # what other tests have left is not to be looked through in between
        gc.disable()
        try:
            begin = time.thread_time()
            assert host.run(main) == list(range(width))
            return time.thread_time() - begin
        finally:
            gc.enable()

    seconds(100)
    small, large = (min(seconds(width) for _ in range(3)) for width in (count // 10, count))
    assert large < 50 * small


def test_async_generators_are_kept_by_the_loop_and_closed_by_nobody_else(host, loop):
    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            host.log.append("closed")

    async def main():
        for _ in range(5):
            async for _number in numbers():
                pass
        host.log.clear()
        async for _number in numbers():
            break
        gc.collect()
        assert host.log == []
        async with contextlib.aclosing(numbers()) as closing:
            async for _number in closing:
                break
        assert host.log == ["closed"]

    host.run(main)
    assert loop.discard() == 0
    gc.collect()
    assert host.log == ["closed"]


# --- what is refused


def test_what_leaves_determinism_is_refused_with_the_replacement(loop):
    calls = {
        "run_in_executor": (None, print),
        "call_soon_threadsafe": (print,),
        "create_connection": (print,),
        "sock_recv": (None, 1),
        "add_reader": (0, print),
        "subprocess_exec": (print, "ls"),
        "getaddrinfo": ("localhost", 1),
        "add_signal_handler": (2, print),
        "run_forever": (),
        "run_until_complete": (None,),
        "close": (),
        "stop": (),
        "shutdown_asyncgens": (),
        "set_task_factory": (print,),
        "set_exception_handler": (print,),
    }
    for name, args in calls.items():
        with pytest.raises(ForbiddenInWorkflowError) as caught:
            getattr(loop, name)(*args)
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value, EveractError)
        assert str(caught.value).startswith(f"loop.{name} ")
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ForbiddenInWorkflowError) as caught:
        loop.run_in_executor(None, print)
    assert str(caught.value) == (
        "loop.run_in_executor (asyncio.to_thread) is not available in workflow code: "
        "put the blocking call in an activity and call workflow.execute_activity()"
    )


def test_no_method_of_the_interface_is_left_unanswered(loop):
    for name, method in inspect.getmembers(asyncio.AbstractEventLoop, inspect.isfunction):
        if not name.startswith("_"):
            assert getattr(WorkflowLoop, name) is not method, name


async def to_thread():
    await asyncio.to_thread(print)


async def open_connection():
    await asyncio.open_connection("localhost", 1)


async def start_server():
    await asyncio.start_server(print, "localhost", 1)


async def run_a_program():
    await asyncio.create_subprocess_exec("ls")


async def run_a_shell():
    await asyncio.create_subprocess_shell("ls")


@pytest.mark.parametrize("call", [to_thread, open_connection, start_server, run_a_program, run_a_shell])
def test_asyncios_own_helpers_end_at_the_same_refusal(call):
    with pytest.raises(ForbiddenInWorkflowError, match="activity"):
        scenarios.Host().run(call)


def test_the_rest_of_the_interface_has_quiet_answers(host, loop):
    assert loop.get_debug() is False
    loop.set_debug(True)
    assert loop.get_debug() is False
    loop.set_task_factory(None)
    loop.set_exception_handler(None)
    assert loop.get_task_factory() is None
    assert loop.get_exception_handler() is None
    loop.call_exception_handler({"message": "one"})
    loop.default_exception_handler({"message": "two"})
    assert [error["message"] for error in host.errors] == ["one", "two"]
    assert not loop.is_closed()
    assert "WorkflowLoop" in repr(loop)


def test_queries_and_validators_start_nothing(host, loop):
    event = asyncio.Event()
    host.start(event.wait)
    host.read_only = True

    async def step():
        pass

    for call in (
        loop.create_future,
        lambda: loop.create_task(step()),
        lambda: asyncio.create_task(step()),
        lambda: asyncio.gather(step(), step()),
        lambda: loop.call_later(1, print),
        lambda: loop.call_at(loop.time() + 1, print),
    ):
        with pytest.raises(ReadOnlyError, match="queries and validators may not call") as caught:
            with loop:
                call()
        assert isinstance(caught.value, ForbiddenInWorkflowError)
    assert host.timers == []
    assert not loop.has_ready()
    event.set()  # it changes the run: the host sees it
    assert loop.has_ready()


# --- dropping a run


def test_discarding_closes_everything_here_and_now_and_lets_nothing_happen(host, loop):
    seen = []
    main_thread = []

    async def child(name):
        try:
            await asyncio.sleep(60)
        finally:
            seen.append(f"{name} in {asyncio.get_running_loop() is loop}")
            await scenarios.act(host, "never")

    async def main():
        lock = asyncio.Lock()
        children = [asyncio.create_task(child(name)) for name in "ab"]
        try:
            async with asyncio.TaskGroup() as group, asyncio.timeout(60), lock:
                group.create_task(child("c"))
                await asyncio.gather(*children)
        except BaseException as error:
            main_thread.append(type(error))
            for act in (
                lambda: asyncio.create_task(child("d")),
                lambda: asyncio.get_running_loop().create_future(),
                lambda: asyncio.get_running_loop().call_soon(print),
                lambda: asyncio.get_running_loop().call_later(1, print),
                lambda: asyncio.get_running_loop().call_at(1, print),
                lambda: children[0].cancel(),
                lambda: asyncio.get_running_loop().refuse(),
            ):
                try:
                    act()
                except RunDiscarded as refused:
                    main_thread.append(type(refused))
                else:
                    main_thread.append(None)
            raise

    task = host.start(main)
    ready = loop.create_task(child("unstarted"))
    commands = list(host.log)
    assert loop.discard() == 0
    assert host.log == commands
    assert seen == ["c in True", "b in True", "a in True"]
    # Which exception comes first depends on who was closed first; after that all is refused. Cancelling a
    # task that is over is nothing.
    assert main_thread[0] in (GeneratorExit, RunDiscarded)
    assert main_thread[1:6] == [RunDiscarded] * 5
    assert task.cancelled()
    assert ready.cancelled()
    assert loop.discarded
    assert loop.is_closed()
    assert loop.discard() == 0
    assert host.errors == []
    with pytest.raises(RuntimeError, match="discarded"):
        host.turn()


@pytest.mark.parametrize("how", ["endless", "sync endless", "patient", "other error", "exit"])
def test_code_that_swallows_its_end_is_bounded(host, loop, how):
    tries = []

    async def endless():
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:
                tries.append(1)

    async def sync_endless():
        with contextlib.suppress(GeneratorExit):
            await loop.create_future()
        while True:
            with contextlib.suppress(BaseException):
                tries.append(1)
                await loop.refuse()

    async def patient():
        waiter = loop.create_future()
        for _ in range(CLOSE_TRIES - 2):
            try:
                await waiter
            except GeneratorExit:
                tries.append(1)

    async def other_error():
        try:
            await asyncio.sleep(60)
        finally:
            tries.append(1)
            raise RuntimeError("mine")

    async def exiting():
        try:
            await asyncio.sleep(60)
        except GeneratorExit:
            tries.append(1)
            sys.exit(3)

    bodies = {
        "endless": endless,
        "sync endless": sync_endless,
        "patient": patient,
        "other error": other_error,
        "exit": exiting,
    }
    before = detached_count()
    host.start(bodies[how])
    stuck = 1 if "endless" in how else 0
    assert loop.discard() == stuck
    assert detached_count() == before + stuck
    assert 1 <= len(tries) <= REFUSALS + CLOSE_TRIES + 2
    gc.collect()
    assert host.errors == []


def test_an_inner_coroutine_that_swallows_its_end_is_freed_and_counted(host, loop):
    tries = []

    async def inner():
        while True:
            with contextlib.suppress(BaseException):
                tries.append(1)
                await asyncio.sleep(60)

    async def outer():
        await inner()

    host.start(outer)
    host.turn(lambda: loop.create_task(outer()) and None)
    before = detached_count()
    assert loop.discard() == 2
    assert detached_count() == before
    assert len(tries) <= 2 * (REFUSALS + CLOSE_TRIES)


def test_what_refuses_to_end_does_not_run_when_the_interpreter_exits():
    # Its modules are gone then: a loop that catches all would spin for ever on the NameErrors.
    code = """if True:
        import importlib.util, sys, types
        spec = importlib.util.spec_from_file_location("discard", sys.argv[1])
        discard = importlib.util.module_from_spec(spec)
        sys.modules["discard"] = discard
        spec.loader.exec_module(discard)
        async def swallow():
            while True:
                try:
                    await helpers.suspend()
                except BaseException:
                    pass
        @types.coroutine
        def suspend():
            yield
        helpers = types.SimpleNamespace(suspend=suspend)
        coroutine = swallow()
        coroutine.send(None)
        print(discard.close_coroutines([coroutine]))
        helpers = None
    """
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code, asyncio_discard.__file__],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (ran.stdout, ran.stderr) == ("1\n", "")


def test_no_warning_follows_a_dropped_run(host, loop):
    async def inner():
        pass

    async def main():
        later = inner()  # started after the sleep only
        await asyncio.sleep(60)
        await later

    host.start(main)
    loop.create_task(asyncio.wait_for(inner(), 5))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.discard()
        gc.collect()
        assert [str(one.message) for one in caught] == []
        inner()
        gc.collect()
    assert ["never awaited" in str(warning.message) for warning in caught] == [True]


def test_an_interrupt_during_a_drop_is_raised_after_it(host, loop):
    async def main(name):
        try:
            await asyncio.sleep(60)
        finally:
            host.log.append(name)
            if name == "second":
                raise KeyboardInterrupt

    first, _second = host.start(main, "first"), host.start(main, "second")
    with pytest.raises(KeyboardInterrupt):
        loop.discard()
    assert host.log[-2:] == ["second", "first"]
    assert first.cancelled()
    assert asyncio._get_running_loop() is None


def test_a_run_is_not_dropped_inside_its_own_turn(host, loop):
    with pytest.raises(RuntimeError, match="own turn"):
        host.turn(loop.discard)
    with pytest.raises(RuntimeError, match="not discarded"):
        loop.refuse()


def test_a_dropped_run_leaves_nothing_to_the_garbage_collector():
    async def main():
        await asyncio.gather(*[asyncio.sleep(60) for _ in range(10)], asyncio.Event().wait())

    gc.collect()
    gc.disable()
    try:
        host = scenarios.Host()
        tasks = [weakref.ref(task) for task in [host.start(main), *host.loop.live_tasks()]]
        host.loop.discard()
        host.timers.clear()
        del host
        assert [task() for task in tasks if task() is not None] == []
    finally:
        gc.enable()


# --- what it costs


def test_a_loop_is_small_and_quickly_made(host):
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        loops = [WorkflowLoop(host) for _ in range(1_000)]
        size = (tracemalloc.get_traced_memory()[0] - before) / len(loops)
    finally:
        tracemalloc.stop()
    assert size < 700


def test_the_module_offers_its_names():
    for name in event_loop.__all__:
        assert hasattr(event_loop, name)

"""asyncio's waits on a workflow loop: one order under every hash seed and every supported Python."""

import asyncio
import importlib.util
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import everact.actors
import everact.journal
from everact.actors.asyncio_order import OrderedSet, install
from everact.actors.event_loop import ForbiddenInWorkflowError

SCRIPT = Path(__file__).with_name("loop_scenarios.py")
_spec = importlib.util.spec_from_file_location("loop_scenarios", SCRIPT)
scenarios = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scenarios)


@pytest.fixture(scope="module")
def here():
    return {scenario.__name__: scenarios.record(scenario) for scenario in scenarios.SCENARIOS}


def run_script(python, seed):
    folders = [everact.actors.__path__[0], everact.journal.__path__[0]]
    ran = subprocess.run(
        [python, "-S", "-W", "error", str(SCRIPT), *folders],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ran.stderr == ""
    assert ran.returncode == 0
    return json.loads(ran.stdout)


def other_pythons():
    """From the search path, and from EVERACT_TEST_PYTHONS (paths of interpreters, as in PATH)."""
    named = [path for path in os.environ.get("EVERACT_TEST_PYTHONS", "").split(os.pathsep) if path]
    found = {}
    for python in [*named, *filter(None, map(shutil.which, ["python3.11", "python3.12", "python3.13"]))]:
        ask = [python, "-c", "import sys; print(sys.version_info[:2])"]
        ran = subprocess.run(ask, capture_output=True, text=True, timeout=50)
        if ran.returncode == 0 and ran.stdout.strip() != str(sys.version_info[:2]):
            found.setdefault(ran.stdout.strip(), python)
    return list(found.values())


def test_the_order_is_the_same_under_every_hash_seed(here):
    with ThreadPoolExecutor(2) as pool:
        for there in pool.map(lambda seed: run_script(sys.executable, seed), "012"):
            assert there == here


def test_the_order_is_the_same_on_every_supported_python(here):
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python here; name some in EVERACT_TEST_PYTHONS")
    for python in pythons:
        assert run_script(python, "1") == here, python


@pytest.mark.parametrize("scenario", ["gather_with_wait_for", "early_import_of_wait_for"])
def test_wait_for_starts_its_coroutine_in_its_own_task(here, scenario):
    assert here[scenario]["log"][1:3] == ["command a", "command b"]


def test_wait_keeps_the_order_of_its_input(here):
    assert here["wait_all"] == {
        "result": [["a", "b", "c"], 0],
        "log": ["command a", "command b", "command c", "done c", "done b", "done a"],
    }
    assert here["wait_first_then_rest"]["log"][-8:] == [f"cancelled {name}" for name in "bcdefghi"]
    assert here["wait_first_exception"]["result"] == [[1, 2], ["ValueError('x')", "None"], 1]


def test_a_plain_set_is_taken_in_order_of_creation(here):
    assert here["wait_on_a_plain_set"]["result"][0] == ["a", "c", "e", "g"]
    assert here["wait_on_a_set_of_commands"]["result"] == [list("abcdef"), 0]


def test_as_completed_yields_in_order_of_completion_and_starts_in_order_of_input(here):
    assert here["completion_order"]["result"] == [list("dcba"), list("efg")]
    assert here["completion_order"]["log"][:4] == [f"command {name}" for name in "abcd"]
    assert here["completion_timeout"]["result"] == ["a", "timeout"]


def test_a_group_aborts_the_oldest_first_and_raises_a_group(here):
    assert here["group_abort"]["result"] == ["(ValueError('boom'),)", 0]
    assert here["group_abort"]["log"][-12:] == [f"cancelled {name}" for name in "abcdefghijkl"]


def test_a_cancel_from_outside_outlives_the_groups_errors(here):
    assert here["group_cancelled_and_failed"]["log"][-1] == "ExceptionGroup 1"
    assert here["group_cancelled_and_failed"]["result"] == ["CancelledError('')"]


def test_gather_of_finished_futures_goes_on_at_once(here):
    assert here["gather_of_finished"]["log"] == ["command one", "command two"]


def test_a_condition_that_loses_a_waiter_wakes_another(here):
    assert here["condition_timeouts"]["log"][4:6] == ["a TimeoutError , False", "b notified, True"]
    log = here["condition_notified_and_cancelled"]["log"]
    assert [line for line in log if "notified, True" in line] == [f"{name} notified, True" for name in "def"]
    assert "b CancelledError again, False" in log  # the latest cancel, once the lock was held again
    assert here["condition_misused"]["result"] == [["cannot wait on un-acquired lock"], False]


def test_a_semaphore_lets_in_all_that_fit_at_once(here):
    log = here["semaphore_free_with_waiters"]["log"]
    between = log[log.index("round 1") : log.index("round 2")]
    assert [line for line in between if line.endswith("in")] == ["a False in", "b False in"]
    assert here["semaphore_free_with_waiters"]["result"][::2] == [3, 3]
    assert [result[-2:] for result in here["semaphore_cancels"]["result"]] == [
        [False, n] for n in range(1, 5)
    ]


def test_no_cancel_outlives_the_timeout_or_group_that_made_it(here):
    log = here["cancel_left_by_a_group"]["log"]
    for block in ("in_timeout", "in_group", "in_both", "in_wait_for"):
        assert f"done {block}" in log
    outcome = here["cancel_left_by_a_group"]["result"]
    assert outcome[1:8:2] == [0, 0, 0, 0]
    assert outcome[8:] == ["[CancelledError('')]"] * 6  # one from somebody else does


def test_timeouts_nest_and_leave_no_timer(here):
    assert here["timeouts"]["result"] == [0, "outer", "past", "CancelledError"]
    assert here["timeout_in_context"]["result"] == "TimeoutError()"
    assert here["wait_for_nothing"]["log"] == ["command no limit", "done no limit"]
    assert here["shielded"]["log"] == ["timer 1 1", "command inner", "gave up", "done inner"]


def test_commands_count_as_futures_everywhere(here):
    assert here["tasks_of_commands"]["result"] == [["direct", "task", "shield"], ["soon", "late"]]


def drive(function):
    host = scenarios.Host()
    try:
        return host.run(function, host)
    finally:
        host.loop.discard()


def test_a_set_of_coroutines_is_refused():
    async def main(host):
        coroutines = {scenarios.act(host, name) for name in "ab"}
        with pytest.raises(
            ForbiddenInWorkflowError, match=r"asyncio\.as_completed with a set .*: pass a list"
        ):
            asyncio.as_completed(coroutines)
        for one in coroutines:
            one.close()
        loop = asyncio.get_running_loop()
        with pytest.raises(ForbiddenInWorkflowError, match="pass a list"):
            await asyncio.wait({loop.create_future(), loop.create_future()})

    drive(main)


@pytest.mark.parametrize("limit", [5, None])
def test_wait_for_never_swallows_a_cancel(limit):
    async def main(host):
        inner = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(asyncio.wait_for(inner, limit))
        await asyncio.sleep(0)
        inner.set_result("at the same instant")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return waiting.cancelled()

    assert drive(main)


def test_a_result_after_the_time_limit_is_harmless():
    async def main(host):
        inner = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(asyncio.wait_for(inner, 5))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(5, inner.set_result, "too late")
        with pytest.raises(TimeoutError):
            await waiting
        assert inner.cancelled()

    host = scenarios.Host()
    host.run(main, host)
    assert host.fire_next()
    assert [type(error["exception"]) for error in host.errors] == [asyncio.InvalidStateError]


def test_a_coroutine_that_outlives_its_time_limit_returns_its_value():
    async def main(host):
        async def stubborn():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "kept"

        assert await asyncio.wait_for(stubborn(), 1) == "kept"

    drive(main)


def test_wrong_calls_raise_as_in_asyncio():
    async def main(host):
        task = asyncio.create_task(scenarios.act(host, "a"))
        for call, kind in [
            (lambda: asyncio.wait(task), TypeError),
            (lambda: asyncio.wait([]), ValueError),
            (lambda: asyncio.wait([task], return_when="soon"), ValueError),
        ]:
            with pytest.raises(kind):
                await call()
        coroutine = scenarios.act(host, "b")
        with pytest.raises(TypeError, match="use tasks explicitly"):
            await asyncio.wait([coroutine])
        with pytest.raises(TypeError):
            asyncio.as_completed(coroutine)
        with pytest.raises(
            ForbiddenInWorkflowError, match=r"asyncio\.run is not available in workflow code: await"
        ):
            asyncio.run(coroutine)
        coroutine = scenarios.act(host, "c")
        with pytest.raises(
            ForbiddenInWorkflowError, match=r"asyncio\.Runner\.run is not available in workflow code: await"
        ):
            asyncio.Runner().run(coroutine)
        for call in (asyncio.new_event_loop, asyncio.Runner().__enter__, asyncio.Runner().get_loop):
            with pytest.raises(
                ForbiddenInWorkflowError, match=r"asyncio\.new_event_loop \(asyncio\.Runner\)"
            ):
                call()
        with pytest.raises(ForbiddenInWorkflowError, match="call_soon_threadsafe"):
            asyncio.run_coroutine_threadsafe(coroutine, asyncio.get_running_loop())
        with pytest.raises(ForbiddenInWorkflowError, match="to_thread"):
            await asyncio.to_thread(print)
        coroutine.close()
        assert asyncio.all_tasks() == {asyncio.current_task(), task}
        assert [one.get_name() for one in asyncio.all_tasks()] == ["Task-1", "Task-2"]
        await task

    drive(main)


@pytest.mark.skipif(not hasattr(asyncio.Queue, "shutdown"), reason="since Python 3.13")
def test_a_queue_that_is_shut_down_wakes_all_in_order():
    async def main(host):
        queue = asyncio.Queue(1)

        async def get(name):
            try:
                await queue.get()
            except asyncio.QueueShutDown:
                host.log.append(name)

        readers = {asyncio.create_task(get(name)) for name in "edcba"}
        await asyncio.sleep(0)
        queue.shutdown()
        await asyncio.wait(readers)
        return host.log

    assert drive(main) == list("edcba")


def test_several_readers_of_as_completed_each_get_one():
    async def main(host):
        results = asyncio.as_completed([scenarios.act(host, name, i) for i, name in enumerate("abc", 1)])
        readers = [asyncio.create_task(one) for one in results]
        await asyncio.sleep(0)
        readers[0].cancel()
        return await asyncio.gather(*readers[1:], return_exceptions=True)

    assert drive(main) == ["a", "b"]


def test_ordered_sets_are_sets_in_order():
    one = OrderedSet("qwerty")
    assert isinstance(one, set)
    assert list(one) == list("qwerty")
    assert list(reversed(one)) == list("ytrewq")
    assert "q" in one and len(one) == 6 and one == set("qwerty")
    assert list(one | {"z"}) == list("qwertyz")
    assert list({"z"} | one) == list("zqwerty")
    assert list(one & {"y", "q"}) == ["q", "y"] == list({"y", "q"} & one)
    assert list(one - {"w"}) == list("qerty")
    assert list({"w"} - one) == []
    assert list(one ^ {"w"}) == list("qerty") == list({"w"} ^ one)
    assert list(one.union("az", "b")) == list("qwertyazb")
    assert one.pop() == "q"
    one.add("e")
    one.add("q")
    one.discard("nothing")
    one.remove("t")
    with pytest.raises(KeyError):
        one.remove("t")
    assert list(one) == list("weryq")
    one |= {"m"}
    one -= {"w"}
    one &= set("myqe")
    one ^= {"e"}
    assert list(one) == list("yqm")
    assert list(pickle.loads(pickle.dumps(one))) == list(one.copy()) == list("yqm")
    assert repr(one) == "OrderedSet(['y', 'q', 'm'])"
    one.clear()
    assert not one
    with pytest.raises(KeyError):
        one.pop()
    assert one.__or__([1]) is NotImplemented


async def test_other_loops_see_the_stock_functions():
    install()
    assert inspect.iscoroutinefunction(asyncio.wait_for)
    assert inspect.iscoroutinefunction(asyncio.wait)
    assert asyncio.wait_for is asyncio.tasks.wait_for is scenarios.early_wait_for
    assert list(inspect.signature(asyncio.wait).parameters) == ["fs", "timeout", "return_when"]
    assert "asyncio.wait(fs)" in asyncio.wait.__doc__

    async def number(value):
        await asyncio.sleep(0)
        return value

    tasks = [asyncio.create_task(number(value)) for value in range(5)]
    done, pending = await asyncio.wait(tasks)
    assert type(done) is type(pending) is set
    assert done == set(tasks)
    assert await asyncio.gather(*map(number, range(3))) == [0, 1, 2]
    assert await asyncio.wait_for(number(1), 5) == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0)
    assert sorted([await one for one in asyncio.as_completed([number(1), number(2)])]) == [1, 2]
    async with asyncio.TaskGroup() as group:
        assert type(group._tasks) is set
        task = group.create_task(number(7))
    assert task.result() == 7
    with pytest.raises(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            raise KeyError
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    assert type(asyncio.all_tasks()) is set
    with pytest.raises(RuntimeError, match=r"cannot be called from a running event loop"):
        coroutine = number(1)
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()


async def test_other_loops_have_the_stock_primitives():
    install()
    assert asyncio.Condition is scenarios.EarlyCondition
    assert asyncio.Semaphore is scenarios.EarlySemaphore
    assert inspect.iscoroutinefunction(asyncio.Condition.wait)
    assert list(inspect.signature(asyncio.Semaphore.acquire).parameters) == ["self"]
    assert "Wait until notified" in asyncio.Condition.wait.__doc__
    stock = asyncio.Condition._everact_stock_wait
    assert stock.__code__.co_filename == asyncio.locks.__file__

    condition, semaphore = asyncio.Condition(), asyncio.BoundedSemaphore(1)

    async def wait(limit):
        async with semaphore, asyncio.timeout(limit), condition:
            return await condition.wait()

    waiting = [asyncio.create_task(wait(limit)) for limit in (0.01, 60)]
    with pytest.raises(TimeoutError):
        await waiting[0]
    while not condition._waiters:
        await asyncio.sleep(0)
    async with condition:
        condition.notify()
    assert await waiting[1] is True
    assert not semaphore.locked()


def test_asyncio_run_works_elsewhere():
    async def number(value):
        return value

    assert asyncio.run(number(3)) == 3
    with asyncio.Runner() as runner:
        assert [runner.run(number(value)) for value in (4, 5)] == [4, 5]
    asyncio.new_event_loop().close()

"""asyncio code on a workflow loop with virtual time; the tests load it, and run it as a script.

As a script it needs no dependency of Everact, so that any Python can run it:
``python loop_scenarios.py FOLDER_OF_EVERACT_ACTORS FOLDER_OF_EVERACT_JOURNAL`` prints all records as JSON.
"""

import asyncio
import heapq
import json
import sys
import types

if __name__ == "__main__":
    for name, folder in (("everact", ""), ("everact.actors", sys.argv[1]), ("everact.journal", sys.argv[2])):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package

from asyncio import wait_for as early_wait_for  # before Everact has touched asyncio

from everact.actors.asyncio_order import install
from everact.actors.event_loop import Handle, WorkflowLoop

install()


class Timer(Handle):
    __slots__ = ("host", "number")

    def cancel(self):
        if not self.cancelled() and not self.host.loop.discarded:
            self.host.log.append(f"cancel timer {self.number}")
        super().cancel()


class Host:
    """A workflow instance with nothing but timers."""

    read_only = False

    def __init__(self):
        self.now = 1_700_000_000.0
        self.log = []
        self.errors = []
        self.timers = []
        self.started = 0
        self.loop = WorkflowLoop(self)

    def loop_time(self):
        return self.now

    def start_timer(self, delay, callback, args, context):
        self.started += 1
        timer = Timer(callback, args, context)
        timer.host, timer.number = self, self.started
        self.log.append(f"timer {timer.number} {delay:g}")
        heapq.heappush(self.timers, (round(self.now + delay, 6), timer.number, timer))
        return timer

    def loop_exception(self, context):
        self.errors.append(context)

    def fire_next(self):
        """Deliver the next timer in a turn of its own; False when there is none."""
        while self.timers:
            when, _, timer = heapq.heappop(self.timers)
            if timer.cancelled():
                continue
            self.now = when
            callback, args = timer.callback, timer.args
            Handle.cancel(timer)
            self.loop.run_turn(lambda: self.loop.call_soon(callback, *args, context=timer.context))
            return True
        return False

    def start(self, function, *args):
        return self.loop.run_turn(lambda: self.loop.create_task(function(*args)))

    def run(self, function, *args):
        """Start a main, fire timers until it ends, return its result."""
        task = self.start(function, *args)
        while not task.done():
            assert self.fire_next(), f"{task} waits for ever; {self.log}"
        return task.result()


class Command(asyncio.Future):
    """As the runtime's commands: numbered at the call, a future that also has a coroutine's methods."""

    def __init__(self, host, name, seconds=1.0):
        super().__init__(loop=host.loop)
        host.log.append(f"command {name}")
        self.host = host
        self._steps = None
        self._everact_number = len(host.log)
        heapq.heappush(host.timers, (host.now + seconds, 1_000 + len(host.log), self._timer(name)))

    def _timer(self, name):
        timer = Timer(self._complete, (name,), None)
        timer.host, timer.number = self.host, 0
        return timer

    def _complete(self, name):
        if not self.done():
            self.set_result(name)

    def send(self, value):
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error):
        return self.__await__().throw(*error) if self._steps is None else self._steps.throw(*error)

    def close(self):
        pass


def command(host, name, seconds=1.0):
    return host.loop.refuse() if host.loop.discarded else Command(host, name, seconds)


async def act(host, name, seconds=1.0):
    try:
        result = await command(host, name, seconds)
    except asyncio.CancelledError:
        host.log.append(f"cancelled {name}")
        raise
    host.log.append(f"done {name}")
    return result


async def gather_with_wait_for(host):
    return await asyncio.gather(asyncio.wait_for(act(host, "a"), 5), act(host, "b"))


async def early_import_of_wait_for(host):
    return await asyncio.gather(early_wait_for(act(host, "a"), 5), act(host, "b"))


async def wait_all(host):
    done, pending = await asyncio.wait(
        [asyncio.create_task(act(host, n, 9 - i)) for i, n in enumerate("abc")]
    )
    return [task.result() for task in done], len(pending)


async def wait_first_then_rest(host):
    tasks = [asyncio.create_task(act(host, name, 1 + i % 3)) for i, name in enumerate("abcdefghi")]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    first = [task.result() for task in done]
    for task in pending:
        task.cancel()
    done, pending = await asyncio.wait(pending)
    return first, [task.get_name() for task in done]


async def wait_on_a_plain_set(host):
    tasks = {asyncio.create_task(act(host, name, 1 + i % 2)) for i, name in enumerate("abcdefgh")}
    done, pending = await asyncio.wait(tasks, timeout=1.5)
    for task in pending:
        task.cancel()
    return [task.result() for task in done], [task.get_name() for task in pending]


async def wait_on_a_set_of_commands(host):
    done, pending = await asyncio.wait({Command(host, name) for name in "abcdef"})
    return [future.result() for future in done], len(pending)


async def wait_first_exception(host):
    async def fail():
        await asyncio.sleep(2)
        raise ValueError("x")

    tasks = [
        asyncio.create_task(act(host, "a", 9)),
        asyncio.create_task(fail()),
        asyncio.create_task(act(host, "b")),
    ]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    return [tasks.index(task) for task in done], [repr(task.exception()) for task in done], len(pending)


async def completion_order(host):
    one = [
        await result for result in asyncio.as_completed([act(host, n, 5 - i) for i, n in enumerate("abcd")])
    ]
    two = [
        task.result()
        async for task in asyncio.as_completed(
            [asyncio.create_task(act(host, n, 1)) for n in "efg"], timeout=60
        )
    ]
    return one, two


async def completion_timeout(host):
    got = []
    try:
        for result in asyncio.as_completed([act(host, "a", 1), act(host, "b", 9)], timeout=3):
            got.append(await result)
    except TimeoutError:
        got.append("timeout")
    return got


async def group(host):
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(act(host, name, 3 - i)) for i, name in enumerate("abc")]
    return [task.result() for task in made]


async def group_abort(host):
    async def fail():
        await asyncio.sleep(1)
        raise ValueError("boom")

    try:
        async with asyncio.TaskGroup() as tasks:
            for name in "abcdef":
                tasks.create_task(act(host, name, 9))
            tasks.create_task(fail())
            for name in "ghijkl":
                tasks.create_task(act(host, name, 9))
    except BaseExceptionGroup as error:
        return repr(error.exceptions), asyncio.current_task().cancelling()


async def group_cancelled_and_failed(host):
    async def fail_late():
        try:
            await asyncio.sleep(9)
        finally:
            raise ValueError("on cancel")

    async def body():
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail_late())
        except BaseException as error:
            host.log.append(f"{type(error).__name__} {asyncio.current_task().cancelling()}")
            await asyncio.sleep(0)
            return "went on"

    task = asyncio.create_task(body())
    await asyncio.sleep(1)
    task.cancel()
    return [repr(outcome) for outcome in await asyncio.gather(task, return_exceptions=True)]


async def gather_of_finished(host):
    finished = asyncio.get_running_loop().create_future()
    finished.set_result(1)

    async def one():
        await asyncio.gather(finished, finished)
        Command(host, "one")

    async def two():
        await asyncio.sleep(0)
        Command(host, "two")

    await asyncio.gather(one(), two())


async def gather_errors(host):
    async def fail(name, seconds):
        await asyncio.sleep(seconds)
        raise ValueError(name)

    kept = await asyncio.gather(fail("a", 2), act(host, "b"), fail("c", 1), return_exceptions=True)
    try:
        await asyncio.gather(fail("d", 2), act(host, "e", 3), fail("f", 1))
    except ValueError as error:
        kept.append(error)
    task = asyncio.gather(act(host, "g"), act(host, "h"))
    await asyncio.sleep(0)
    task.cancel()
    kept.append(await asyncio.gather(task, return_exceptions=True))
    return repr(kept), await asyncio.gather()


async def timeouts(host):
    outcome = []
    try:
        async with asyncio.timeout(10):
            async with asyncio.timeout(3):
                await act(host, "a", 60)
    except TimeoutError:
        outcome.append(asyncio.current_task().cancelling())
    try:
        async with asyncio.timeout(3):
            async with asyncio.timeout(10):
                await act(host, "b", 60)
    except TimeoutError:
        outcome.append("outer")
    async with asyncio.timeout(2) as scope:
        scope.reschedule(asyncio.get_running_loop().time() + 8)
        await act(host, "c", 5)
    try:
        async with asyncio.timeout_at(asyncio.get_running_loop().time() - 1):
            await act(host, "d", 60)
    except TimeoutError:
        outcome.append("past")
    try:
        await asyncio.wait_for(act(host, "e", 60), 1)
    except TimeoutError as error:
        outcome.append(type(error.__cause__).__name__)
    return outcome


async def timeout_in_context(host):
    try:
        async with asyncio.timeout(1):
            try:
                await act(host, "a", 9)
            finally:
                raise KeyError("late")
    except KeyError as error:
        return repr(error.__context__)


async def wait_for_nothing(host):
    outcome = []
    for limit in (0, -1):
        try:
            await asyncio.wait_for(act(host, "never", 1), limit)
        except TimeoutError:
            outcome.append("timeout")
    done = asyncio.get_running_loop().create_future()
    done.set_result("ready")
    outcome.append(await asyncio.wait_for(done, 0))
    outcome.append(await asyncio.wait_for(act(host, "no limit"), None))
    return outcome


async def shielded(host):
    inner = asyncio.create_task(act(host, "inner", 5))
    try:
        await asyncio.wait_for(asyncio.shield(inner), 1)
    except TimeoutError:
        host.log.append("gave up")
    return await inner


async def primitives(host):
    queue = asyncio.Queue(2)
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    semaphore, barrier = asyncio.Semaphore(2), asyncio.Barrier(3)

    async def produce():
        for number in range(6):
            await queue.put(number)
            host.log.append(f"put {number}")

    async def consume(name):
        await event.wait()
        for _ in range(3):
            number = await queue.get()
            async with lock:
                host.log.append(f"{name} got {number}")
                await asyncio.sleep(1)
            queue.task_done()

    async def limited(name):
        async with semaphore:
            await act(host, name)
        async with condition:
            await condition.wait_for(lambda: host.now >= 1_700_000_009)
            host.log.append(f"{name} saw it")
        await barrier.wait()
        host.log.append(f"{name} passed")

    async def clock():
        event.set()
        await asyncio.sleep(9)
        async with condition:
            condition.notify_all()

    await asyncio.gather(
        produce(), consume("x"), consume("y"), *[limited(name) for name in "abc"], clock(), queue.join()
    )


async def nested_fan_out(host):
    async def branch(name):
        await asyncio.wait([asyncio.create_task(act(host, f"{name}{i}", 1 + i)) for i in range(3)])
        async with asyncio.TaskGroup() as tasks:
            for i in range(3):
                tasks.create_task(act(host, f"{name}-{i}"))
        return name

    return await asyncio.gather(*[branch(name) for name in "pqr"])


async def tasks_of_commands(host):
    first = asyncio.create_task(Command(host, "task"))
    both = await asyncio.gather(Command(host, "direct"), first, asyncio.shield(Command(host, "shield")))
    return both, [
        await one for one in asyncio.as_completed([Command(host, "late", 2), Command(host, "soon")])
    ]


SCENARIOS = [
    gather_with_wait_for,
    early_import_of_wait_for,
    wait_all,
    wait_first_then_rest,
    wait_on_a_plain_set,
    wait_on_a_set_of_commands,
    wait_first_exception,
    completion_order,
    completion_timeout,
    group,
    group_abort,
    group_cancelled_and_failed,
    gather_of_finished,
    gather_errors,
    timeouts,
    timeout_in_context,
    wait_for_nothing,
    shielded,
    primitives,
    nested_fan_out,
    tasks_of_commands,
]


def record(scenario):
    host = Host()
    result = host.run(scenario, host)
    log = list(host.log)
    assert host.loop.discard() == 0
    assert host.log == log
    assert host.errors == []
    return {"result": json.loads(json.dumps(result)), "log": log}


if __name__ == "__main__":
    json.dump({scenario.__name__: record(scenario) for scenario in SCENARIOS}, sys.stdout)

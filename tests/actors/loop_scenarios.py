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

# Before Everact has touched asyncio.
from asyncio import Condition as EarlyCondition
from asyncio import Semaphore as EarlySemaphore
from asyncio import wait_for as early_wait_for

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
    guard = "warn"

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
            self.turn(lambda: self.loop.call_soon(callback, *args, context=timer.context))
            return True
        return False

    def turn(self, function=lambda: None):
        """Call ``function`` in a turn, then run what is ready."""
        with self.loop:
            result = function()
            self.loop.run_until_idle()
        return result

    def start(self, function, *args):
        return self.turn(lambda: self.loop.create_task(function(*args)))

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


async def enter(host, name, lock, seconds=1):
    """Hold a lock or semaphore for a while, and say when; ``name`` stands for the task."""
    try:
        async with lock:
            host.log.append(f"{name} in")
            await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        host.log.append(f"{name} cancelled")
        raise
    await act(host, name)


async def wait_on(host, name, condition, limit=None):
    try:
        async with condition:
            await asyncio.wait_for(condition.wait(), limit)
            host.log.append(f"{name} notified, {condition.locked()}")
    except (TimeoutError, asyncio.CancelledError) as error:
        host.log.append(f"{name} {type(error).__name__} {error}, {condition.locked()}")
        return
    await act(host, name)


async def condition_timeouts(host):
    condition = asyncio.Condition()
    limits = {"a": 5, "b": None, "c": 7, "d": 9, "e": None}
    tasks = [asyncio.create_task(wait_on(host, name, condition, limits[name])) for name in limits]
    await asyncio.wait(tasks, timeout=60)
    return [task.done() for task in tasks]


async def condition_notified_and_cancelled(host):
    condition = EarlyCondition()
    tasks = [asyncio.create_task(wait_on(host, name, condition)) for name in "abcdefg"]
    await asyncio.sleep(1)
    async with condition:
        condition.notify(2)
        tasks[0].cancel("notified")
        tasks[2].cancel("not notified")
        await asyncio.sleep(1)
        tasks[1].cancel("while it takes the lock")
        await asyncio.sleep(0)
        tasks[1].cancel("again")
        await asyncio.sleep(1)
    await asyncio.wait(tasks, timeout=60)
    async with condition:
        condition.notify_all()
        tasks[-1].cancel("notified with all")
    await asyncio.wait(tasks)
    return [task.done() for task in tasks]


async def condition_notified_at_the_limit(host):
    condition = asyncio.Condition()
    tasks = [asyncio.create_task(wait_on(host, name, condition, 5)) for name in "ab"]
    tasks += [asyncio.create_task(wait_on(host, name, condition)) for name in "cd"]

    async def notify():
        async with condition:
            condition.notify()

    early = asyncio.create_task(asyncio.sleep(5))  # behind the limits, in the same instant
    await early
    await notify()
    await asyncio.wait(tasks, timeout=60)
    return [task.done() for task in tasks]


async def condition_with_a_predicate(host):
    condition, items = asyncio.Condition(), []

    async def take(name, limit):
        try:
            async with asyncio.timeout(limit), condition:
                await condition.wait_for(lambda: items)
                host.log.append(f"{name} took {items.pop(0)}")
        except TimeoutError:
            host.log.append(f"{name} timed out")

    async def give():
        for number in range(4):
            await asyncio.sleep(1)
            async with condition:
                items.append(number)
                condition.notify()

    limits = [1, 2, 2, 3, 60, 60, 60]
    await asyncio.gather(give(), *[take(f"t{i}", limit) for i, limit in enumerate(limits)])


async def condition_misused(host):
    condition = asyncio.Condition()
    outcome = []
    try:
        await condition.wait()
    except RuntimeError as error:
        outcome.append(str(error))
    return outcome, condition.locked()


async def semaphore_cancels(host):
    outcome = []
    for count in range(1, 5):
        semaphore = EarlySemaphore(2)
        await semaphore.acquire()
        await semaphore.acquire()
        tasks = [asyncio.create_task(enter(host, f"{count}{name}", semaphore)) for name in "abcdef"]
        await asyncio.sleep(0)
        for _ in range(count):
            semaphore.release()  # lets in a, b, ...
        tasks[0].cancel()
        tasks[count].cancel()
        late = [asyncio.create_task(enter(host, f"{count}{name}", semaphore)) for name in "xyz"]
        for number in range(4):
            host.log.append(f"round {number}")
            await asyncio.sleep(0)
        late[0].cancel()
        await asyncio.wait(tasks + late, timeout=60)
        outcome.append([task.done() for task in tasks + late] + [semaphore.locked(), semaphore._value])
    return outcome


async def semaphore_free_with_waiters(host):
    outcome = []
    for cancelled in (False, True):
        semaphore = asyncio.BoundedSemaphore(3)
        for _ in range(3):
            await semaphore.acquire()
        first = asyncio.create_task(enter(host, f"first {cancelled}", semaphore))
        await asyncio.sleep(0)
        others = [asyncio.create_task(enter(host, f"{name} {cancelled}", semaphore)) for name in "abcd"]
        for _ in range(3):
            semaphore.release()  # one is for the first; the others start before it, and queue behind it
        if cancelled:
            first.cancel()
        for number in range(6):
            host.log.append(f"round {number}")
            await asyncio.sleep(0)
        await asyncio.gather(first, *others, return_exceptions=True)
        outcome.append(semaphore._value)
        try:
            semaphore.release()
        except ValueError as error:
            outcome.append(str(error))
    return outcome


async def semaphore_timeouts(host):
    semaphore = asyncio.Semaphore(1)

    async def limited(name, limit):
        try:
            await asyncio.wait_for(enter(host, name, semaphore, 2), limit)
        except TimeoutError:
            host.log.append(f"{name} timed out")

    await asyncio.gather(*[limited(name, limit) for name, limit in zip("abcdef", [9, 2, 4, 9, 5, 9])])
    return semaphore.locked()


async def lock_cancels(host):
    lock = asyncio.Lock()
    await lock.acquire()
    tasks = [asyncio.create_task(enter(host, name, lock)) for name in "abcdef"]
    await asyncio.sleep(0)
    lock.release()
    tasks[0].cancel()  # woken, and does not take it
    tasks[2].cancel()
    tasks.append(asyncio.create_task(enter(host, "late", lock)))
    await asyncio.sleep(1)
    tasks[3].cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return [repr(one) for one in outcomes], lock.locked()


async def event_cancels(host):
    event = asyncio.Event()

    async def wait(name, limit):
        try:
            host.log.append(f"{name} {await asyncio.wait_for(event.wait(), limit)}")
        except (TimeoutError, asyncio.CancelledError) as error:
            host.log.append(f"{name} {type(error).__name__}")

    tasks = [asyncio.create_task(wait(name, limit)) for name, limit in zip("abcde", [1, 2, None, 2, 9])]
    await asyncio.sleep(2)
    event.set()
    event.clear()
    tasks[2].cancel()
    tasks.append(asyncio.create_task(wait("late", 3)))
    await asyncio.wait(tasks)


async def queue_cancels(host):
    outcome = []
    for kind in (asyncio.Queue, asyncio.PriorityQueue, asyncio.LifoQueue):
        queue = kind(1)

        async def get(name, limit, queue=queue):
            try:
                number = await asyncio.wait_for(queue.get(), limit)
            except (TimeoutError, asyncio.CancelledError) as error:
                host.log.append(f"{name} {type(error).__name__}")
            else:
                host.log.append(f"{name} got {number}")
                queue.task_done()

        async def put(number, limit, queue=queue):
            try:
                await asyncio.wait_for(queue.put(number), limit)
                host.log.append(f"put {number}")
            except (TimeoutError, asyncio.CancelledError) as error:
                host.log.append(f"put {number} {type(error).__name__}")

        getters = [asyncio.create_task(get(name, limit)) for name, limit in zip("abcd", [1, 2, 2, 9])]
        await asyncio.sleep(2)
        queue.put_nowait(0)
        getters[1].cancel()
        putters = [asyncio.create_task(put(i, limit)) for i, limit in enumerate([9, 1, 9, 1, 9], 1)]
        await asyncio.sleep(1)
        queue.get_nowait()
        putters[2].cancel()
        await asyncio.sleep(1)
        for _ in range(3):
            outcome.append(queue.qsize() and queue.get_nowait())
            await asyncio.sleep(0)
        await asyncio.wait(getters + putters)
    return outcome


async def barrier_cancels(host):
    barrier = asyncio.Barrier(3)

    async def meet(name, limit=None):
        try:
            host.log.append(f"{name} {await asyncio.wait_for(barrier.wait(), limit)}")
        except (TimeoutError, asyncio.CancelledError, asyncio.BrokenBarrierError) as error:
            host.log.append(f"{name} {type(error).__name__} {barrier.n_waiting}")

    tasks = [asyncio.create_task(meet(name, limit)) for name, limit in [("a", 1), ("b", None)]]
    await asyncio.sleep(1)
    tasks += [asyncio.create_task(meet(name)) for name in "cdefg"]
    await asyncio.sleep(0)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.sleep(1)
    await barrier.reset()
    tasks += [asyncio.create_task(meet(name)) for name in "hi"]
    await asyncio.sleep(1)
    tasks[-1].cancel()
    await barrier.abort()
    await asyncio.wait(tasks)
    return barrier.broken


async def cancel_left_by_a_group(host):
    """The group's tasks fail as they are cancelled: the cancel from outside is kept, and taken back further out."""
    outcome = []

    async def fail_late():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("on cancel")

    async def fail(seconds=1):
        await asyncio.sleep(seconds)
        raise KeyError

    async def inner():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail_late())

    async def in_timeout():
        async with asyncio.timeout(1):
            await inner()

    async def in_group():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await inner()

    async def in_both():
        async with asyncio.timeout(1):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail(3))
                async with asyncio.timeout(2):
                    await inner()

    async def in_wait_for():
        await asyncio.wait_for(inner(), 1)

    for block in (in_timeout, in_group, in_both, in_wait_for):
        try:
            await block()
        except BaseException as error:
            outcome.append(repr(error))
        outcome.append(asyncio.current_task().cancelling())
        await act(host, block.__name__)  # no cancel comes after it

    async def cancel_later(task, rounds):
        for _ in range(rounds):
            await asyncio.sleep(0)
        host.log.append(f"cancel in round {rounds}")
        task.cancel("one more")

    async def fail_and_cancel_later(task, rounds):
        try:
            await asyncio.sleep(60)
        finally:
            asyncio.create_task(cancel_later(task, rounds))
            raise ValueError("on cancel")

    async def cancelled_again(rounds):
        this = asyncio.current_task()
        try:
            async with asyncio.timeout(1):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(fail_and_cancel_later(this, rounds))
        except BaseException as error:
            host.log.append(f"{error!r} {this.cancelling()}")
            await asyncio.sleep(1)

    for rounds in range(6):
        again = await asyncio.gather(asyncio.create_task(cancelled_again(rounds)), return_exceptions=True)
        outcome.append(repr(again))
    return outcome


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
    condition_timeouts,
    condition_notified_and_cancelled,
    condition_notified_at_the_limit,
    condition_with_a_predicate,
    condition_misused,
    semaphore_cancels,
    semaphore_free_with_waiters,
    semaphore_timeouts,
    lock_cancels,
    event_cancels,
    queue_cancels,
    barrier_cancels,
    cancel_left_by_a_group,
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

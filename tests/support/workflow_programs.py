"""Random workflows: a program is a tree of steps that one workflow class carries out.

The class uses asyncio's own names only, so the same code runs in a runtime and on a plain event loop, which
is the model (``workflow_model``). What two loops may do in another order is not compared: each branch has a
log of its own, a race has at most one racer that needs no time, and no two sums of sleeps are equal.

Steps::

    ["act", n]              an activity that works on the n-th attempt (0: it fails for good)
    ["gate", g]             an activity that waits until gate g is opened
    ["sleep", s]            seconds
    ["wait", k]             until k signals have come
    ["draw"]                a random number and an id
    ["all", [branch...]]    gather; a branch is a list of steps
    ["group", [branch...]]  the same with a TaskGroup
    ["race", [branch...]]   the first one wins, the others are cancelled
    ["limit", s, branch]    asyncio.timeout
    ["guard", branch, branch]   try: the first one, finally: the second one
    ["step", branch]        workflow.step
    ["saga", branch, undo, n]   workflow.saga; the branch undo undoes the first one; with n = 0 it fails in the end
    ["publish", n]          under a key of its own
    ["child", branch]       a child workflow that runs this branch, cancelled with its parent and waited for
"""

import asyncio
import random
from contextvars import ContextVar, copy_context
from datetime import timedelta
from itertools import count
from operator import itemgetter

from hypothesis import strategies as st

from everact import ApplicationError, RetryPolicy, activity, workflow

QUICK = RetryPolicy(
    initial_interval=timedelta(microseconds=1), backoff_coefficient=1, maximum_attempts=4, jitter=0.0
)
#: What the activities look at, by event loop: ``Outside`` of the model and of the runtime.
outsides = {}
#: The saga of the model whose block is being run, and what counts its completed steps.
sagas = ContextVar("sagas", default=None)
completions = count()


class Outside:
    """The world that activities act on.

    Attributes:
        calls: How often each call was made, by its name.
        gates: Open gates.
    """

    def __init__(self):
        self.calls = {}
        self.gates = set()
        self._opened = asyncio.Event()

    def open(self, number):
        self.gates.add(number)
        self._opened.set()
        self._opened = asyncio.Event()

    async def passes(self, number):
        while number not in self.gates:
            await self._opened.wait()


@activity.defn(retry_policy=QUICK)
async def act(name: str, works_at: int, attempt: int = 0) -> str:
    outside = outsides[asyncio.get_running_loop()]
    outside.calls[name] = outside.calls.get(name, 0) + 1
    attempt = attempt or activity.info().attempt
    if attempt != works_at:
        raise ApplicationError(f"{name} fails", non_retryable=works_at == 0)
    return f"{name} done"


@activity.defn
async def gated(name: str, number: int) -> str:
    outside = outsides[asyncio.get_running_loop()]
    outside.calls[name] = outside.calls.get(name, 0) + 1
    await outside.passes(number)
    return f"{name} passed"


class Program:
    """Carries a program out; ``Interpreted`` is the workflow."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.updates: list[str] = []
        self.log: dict[str, list[str]] = {}
        self.published: dict[str, int] = {}

    @workflow.transient
    def came(self) -> asyncio.Event:
        return asyncio.Event()

    def _signalled(self) -> None:
        self.came.set()
        self.came.clear()

    async def branch(self, name: str, steps: list[list]) -> str:
        self.log.setdefault(name, [])
        for number, step in enumerate(steps):
            here = f"{name}.{number}"
            try:
                result = await self.step(here, *step)
                self.log[name].append(f"{step[0]}: {result}")
            except asyncio.CancelledError:
                self.log[name].append(f"{step[0]} cancelled")
                raise
            except Exception:
                self.log[name].append(f"{step[0]} failed")
        return f"{name} ended"

    async def step(self, here: str, kind: str, *args) -> str:
        match kind, args:
            case "act", [works_at]:
                return await self.act(here, works_at)
            case "gate", [number]:
                return await gated(here, number)
            case "sleep", [seconds]:
                await asyncio.sleep(seconds)
                return "slept"
            case "wait", [count]:
                while len(self.signals) < count:
                    await self.came.wait()
                return f"{count} came"
            case "draw", []:
                return self.draw()
            case "all", [branches]:
                found = await asyncio.gather(*(self.branch(f"{here}/{n}", b) for n, b in enumerate(branches)))
                return ", ".join(found)
            case "group", [branches]:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.branch(f"{here}/{n}", b)) for n, b in enumerate(branches)]
                return ", ".join(task.result() for task in tasks)
            case "race", [branches]:
                return await self.race(here, branches)
            case "limit", [seconds, branch]:
                try:
                    async with asyncio.timeout(seconds):
                        return await self.branch(f"{here}/0", branch)
                except TimeoutError:
                    return "too late"
            case "guard", [branch, last]:
                try:
                    return await self.branch(f"{here}/0", branch)
                finally:
                    await self.branch(f"{here}/1", last)
            case "step", [branch]:
                return await self.in_step(f"{here}/0", branch)
            case "saga", [branch, undo, ends_well]:
                return await self.in_saga(here, branch, undo, ends_well)
            case "publish", [value]:
                self.publish(here, value)
                return "published"
            case "child", [branch]:
                return str(await self.in_child(here, branch))
        raise AssertionError(kind)

    async def in_step(self, name: str, branch: list[list]) -> str:
        return await self.branch(name, branch)

    async def in_saga(self, here: str, branch: list[list], undo: list[list], ends_well: int) -> str:
        async with self.saga() as saga:
            saga.add_compensation(self.branch, f"{here}/undo", undo)
            await self.branch(f"{here}/0", branch)
            if not ends_well:
                raise ApplicationError("in the end")
        return "ended well"

    def saga(self):
        return PlainSaga()

    def publish(self, key: str, value: int) -> None:
        self.published[key] = value

    async def in_child(self, here: str, branch: list[list]) -> dict[str, list[str]]:
        child = type(self)()
        context = copy_context()
        context.run(sagas.set, None)
        loop = asyncio.get_running_loop()
        await loop.create_task(child.branch(f"{here}/0", branch), context=context)
        return child.log

    async def race(self, here: str, branches: list[list]) -> str:
        tasks = [asyncio.ensure_future(self.branch(f"{here}/{n}", b)) for n, b in enumerate(branches)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            (first, *_) = [n for n, task in enumerate(tasks) if task.done()]
            return f"{first} won"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def signalled(self, n: int) -> None:
        self.signals.append(n)
        self._signalled()
        if n % 3 == 0:
            self.updates.append(await self.act(f"signal{n}", 1))

    async def updated(self, n: int) -> str:
        self.updates.append(f"update{n}")
        found = await self.act(f"update{n}", 1 if n % 2 else 0)
        count = len(self.signals)
        if n % 3:
            while len(self.signals) == count:
                await self.came.wait()
        return f"{found}, {len(self.signals)} signals"

    def draw(self) -> str:
        return "drawn"

    async def act(self, here: str, works_at: int) -> str:
        return await act(here, works_at)

    def found(self) -> dict[str, object]:
        return {"log": self.log, "signals": sorted(self.signals), "updates": sorted(self.updates)}


class PlainSaga:
    """What ``workflow.saga`` does, with compensations that are functions."""

    def __init__(self):
        self._done = []

    def add_compensation(self, undo, *args):
        self._done.append((next(completions), undo, args))

    async def __aenter__(self):
        self._outer = sagas.get()
        sagas.set(self)
        return self

    async def __aexit__(self, kind, error, trace):
        sagas.set(self._outer)
        if error is None:
            if self._outer is not None:
                self._outer._done += self._done
            return
        if not isinstance(error, Exception | asyncio.CancelledError):
            return
        undoing = asyncio.ensure_future(self._undo())
        cancelled = None
        while not undoing.done():
            try:
                await asyncio.wait([undoing])
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled

    async def _undo(self):
        sagas.set(None)
        for _place, undo, args in sorted(self._done, key=itemgetter(0), reverse=True):
            await undo(*args)


@workflow.defn
class Part(Program):
    """A child, which does a part of a program."""

    @workflow.run
    async def run(self, name: str, branch: list[list]) -> dict[str, list[str]]:
        await self.branch(name, branch)
        return self.log

    @workflow.step
    async def in_step(self, name: str, branch: list[list]) -> str:
        return await super().in_step(name, branch)

    def saga(self):
        return workflow.saga()

    def publish(self, key: str, value: int) -> None:
        workflow.publish(key, value)

    async def in_child(self, here: str, branch: list[list]) -> dict[str, list[str]]:
        options = {
            "cancellation_type": "wait_cancellation_completed",
            "parent_close_policy": "request_cancel",
        }
        return await workflow.execute_child_workflow(Part, f"{here}/0", branch, **options)


@workflow.defn
class Interpreted(Part):
    @workflow.run
    async def run(self, steps: list[list]) -> dict[str, object]:
        await self.branch("main", steps)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.found()

    @workflow.signal
    async def tell(self, n: int) -> None:
        await self.signalled(n)

    @workflow.update
    async def ask(self, n: int) -> str:
        return await self.updated(n)

    @workflow.query
    def seen(self) -> dict[str, object]:
        return self.found()

    def draw(self) -> str:
        # What is drawn is another thing in each run; that it is the same in each replay is what history and log say.
        return "drawn" if workflow.random().random() < 1 and workflow.uuid4().version == 4 else "wrong"


def programs():
    """Strategy of programs; seconds of sleeps are set by ``timed``."""
    quick = st.one_of(
        st.tuples(st.just("act"), st.integers(0, 3)),
        st.tuples(st.just("draw")),
        st.tuples(st.just("publish"), st.integers(0, 9)),
    )
    slow = st.one_of(
        st.tuples(st.just("sleep"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 4)),
        st.tuples(st.just("gate"), st.integers(0, 2)),
    )

    def more(steps):
        branch = st.lists(steps, max_size=3)
        return st.one_of(
            st.tuples(st.just("all"), st.lists(branch, min_size=1, max_size=3)),
            st.tuples(st.just("group"), st.lists(branch, min_size=1, max_size=3)),
            st.tuples(st.just("race"), racers),
            st.tuples(st.just("limit"), st.just(0), branch),
            st.tuples(st.just("guard"), branch, st.lists(quick, max_size=2)),
            st.tuples(st.just("step"), branch),
            st.tuples(st.just("step"), branch),
            st.tuples(st.just("saga"), branch, st.lists(steps, max_size=2), st.integers(0, 1)),
            st.tuples(st.just("child"), st.lists(deaf, max_size=3)),
        )

    # A child hears no signals of its parent.
    deaf = st.one_of(
        quick, st.tuples(st.just("sleep"), st.just(0)), st.tuples(st.just("gate"), st.integers(0, 2))
    )
    # Racers end at times of their own: who wins is then no matter of order.
    sleeps = st.lists(st.just(("sleep", 0)), min_size=1, max_size=2)
    racers = st.tuples(st.lists(slow, min_size=1, max_size=1), st.lists(sleeps, max_size=2)).map(
        lambda pair: [pair[0], *pair[1]]
    )
    return st.lists(st.recursive(st.one_of(quick, slow), more, max_leaves=8), min_size=1, max_size=4)


def timed(program):
    """The same program as lists, each sleep and limit with a length of its own, in seconds: no two sums are equal."""
    lengths = iter(random.Random(7).sample(range(1_000_000, 2_000_000_000), 100))

    def step(it):
        match it:
            case ("sleep", _):
                return ["sleep", next(lengths) / 1e6]
            case ("limit", _, inner):
                return ["limit", next(lengths) / 1e6, branch(inner)]
            case ("all" | "group" | "race" as kind, branches):
                return [kind, [branch(one) for one in branches]]
            case ("guard", first, last):
                return ["guard", branch(first), branch(last)]
            case ("step" | "child" as kind, inner):
                return [kind, branch(inner)]
            case ("saga", first, undo, ends_well):
                return ["saga", branch(first), branch(undo), ends_well]
            case _:
                return list(it)

    def branch(steps):
        return [step(it) for it in steps]

    return branch(program)

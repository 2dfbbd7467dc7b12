"""The corpus of committed histories: one run for each thing that a history can hold."""

import asyncio
import contextlib
import tempfile
from datetime import timedelta

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import EveractError
from everact.journal.memory_store import MemoryJournal
from support import (
    activity_workflows,
    chain_workflows,
    language_workflows,
    saga_workflows,
    step_workflows,
)
from support.activity_workflows import Patient, climbs, rests
from support.chain_workflows import Chained, cleans
from support.deaths import ATTEMPT, QUERY, TURN, Grave
from support.hosting import hosted, settled, until
from support.kin_workflows import Kid, Kin
from support.step_workflows import Stepping, climb, numbered
from support.wait_workflows import KINDS, Waits, alpha, beta, gamma


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2))
async def unlucky(always: bool) -> str:
    if always or activity.info().attempt == 1:
        raise ApplicationError("no luck", {"always": always}, type="Unlucky")
    return "luck"


@workflow.defn
class Everything:
    """Messages, updates, failures, timers, cancels."""

    @workflow.init
    def __init__(self, title: str, limit: int = 3) -> None:
        self.title = title
        self.notes: list[str] = []
        self.over = False

    @workflow.signal
    async def note(self, text: str) -> None:
        if text == "bad":
            raise ValueError(text)
        self.notes.append(text)

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.update
    async def change(self, text: str) -> str:
        await workflow.sleep(0.001)
        if text == "fail":
            raise ApplicationError("not this", text)
        self.notes.append(text)
        return text.upper()

    @change.validator
    def check(self, text: str) -> None:
        if not text:
            raise ValueError("empty")

    @workflow.query
    def look(self) -> list[str]:
        return self.notes

    @workflow.run
    async def run(self, title: str, limit: int = 3) -> list[str]:
        self.notes.append(await unlucky(False))
        try:
            await unlucky(True)
        except ActivityError as error:
            self.notes.append(f"{error.attempt} {error.__cause__}")
        task = asyncio.create_task(workflow.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        workflow.start_activity(alpha, 1).cancel()
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: self.over, timeout=timedelta(milliseconds=2))
        try:
            await workflow.wait_condition(lambda: self.over)
        except asyncio.CancelledError:
            self.notes.append(await beta(1))
            raise
        if len(self.notes) > limit + 3:
            raise ApplicationError("too many notes", self.notes)
        return self.notes


@workflow.defn
class Careless:
    """Ends without looking at what its task raised."""

    async def fail(self) -> None:
        raise ValueError("unseen")

    @workflow.run
    async def run(self) -> str:
        self.task = asyncio.create_task(self.fail())
        await workflow.sleep(0.001)
        await workflow.sleep(0.002)
        return "end"


#: What the activity waits for, newest last.
doors = [asyncio.Event()]


@activity.defn
async def lingers(number: int) -> int:
    await doors[-1].wait()
    return number


@workflow.defn
class Dies:
    """Waits for one activity, however often its process dies."""

    @workflow.run
    async def run(self) -> int:
        return await lingers(7) + await lingers(8)

    @workflow.query
    def so_far(self) -> None:
        pass


@workflow.defn
class Late:
    """Sets its handlers while it goes on, is paused in between, and fails together with a handler."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.is_open = False

    def note(self, text: str) -> None:
        if text == "bad" and "bad" not in self.notes:
            self.notes.append(text)
            raise ValueError(text)
        self.notes.append(text)

    async def change(self, text: str) -> str:
        await workflow.sleep(0.001)
        self.notes.append(text)
        return text.upper()

    @workflow.signal
    def open(self) -> None:
        self.is_open = True

    @workflow.signal(dynamic=True)
    def other(self, name: str, args: list[str]) -> None:
        self.notes.append(f"{name} {args}")
        if name == "end":
            raise ApplicationError("end")

    @workflow.run
    async def run(self) -> None:
        workflow.set_update_handler("change", self.change)
        await workflow.wait_condition(lambda: self.is_open)
        workflow.set_signal_handler("note", self.note)
        await workflow.wait_condition(lambda: "end []" in self.notes)
        raise ApplicationError(" ".join(self.notes))


@workflow.defn
class Delayed:
    """Keeps signals for a handler that it sets later."""

    def __init__(self) -> None:
        self.notes: list[int] = []
        self.is_open = False

    @workflow.signal
    def open(self) -> None:
        self.is_open = True

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: self.is_open)
        await workflow.sleep(0.001)
        workflow.set_signal_handler("add", self.add)
        await workflow.sleep(0.001)
        await workflow.wait_condition(lambda: len(self.notes) == 4)
        return self.notes

    def add(self, number: int) -> None:
        self.notes.append(number)


@workflow.defn
class Drawing:
    """Random numbers of several streams, before and after a command, and in a handler."""

    def __init__(self) -> None:
        self.ids = [str(workflow.uuid4())]

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.sleep(timedelta(microseconds=workflow.random().randint(1, 1000)))
        numbers = list(range(10))
        workflow.random("order").shuffle(numbers)
        await workflow.wait_condition(lambda: len(self.ids) > 2)
        await workflow.sleep(timedelta(microseconds=workflow.random().randint(1, 1000)))
        return [*self.ids, str(numbers), str(workflow.random().random())]

    @workflow.signal
    def add(self) -> None:
        self.ids.append(str(workflow.uuid4()))


WORKFLOWS = [
    Waits,
    Everything,
    Careless,
    Dies,
    Patient,
    Late,
    Delayed,
    Drawing,
    Kid,
    Kin,
    Chained,
    Stepping,
    *saga_workflows.WORKFLOWS,
    *language_workflows.WORKFLOWS,
]
ACTIVITIES = [
    alpha,
    beta,
    gamma,
    unlucky,
    lingers,
    climbs,
    rests,
    cleans,
    climb,
    numbered,
    *saga_workflows.ACTIVITIES,
    *language_workflows.ACTIVITIES,
]


async def record(write):
    """Make every run of the corpus; ``write(history, name)`` takes each."""
    await activity_workflows.record(write)
    await saga_workflows.record(write)
    await language_workflows.record(write)
    await chain_workflows.record(write)
    journal = MemoryJournal()
    async with hosted(journal, *WORKFLOWS, activities=ACTIVITIES) as runtime:
        for kind in KINDS:
            handle = await runtime.spawn(Waits.run, kind, id=f"waits-{kind}")
            await handle.result()
            write(await handle.fetch_history(), f"waits-{kind.replace(' ', '-')}")
        handle = await runtime.spawn(Careless.run, id="careless")
        await handle.result()
        write(await handle.fetch_history(), "careless")
        handle = await runtime.spawn(Drawing.run, id="drawing")
        await handle.signal(Drawing.add)
        await handle.signal(Drawing.add)
        await handle.result()
        write(await handle.fetch_history(), "drawing")
        handle = await runtime.spawn(Kin.run, id="kin")
        await handle.result()
        write(await handle.fetch_history(), "kin")
        handle = await runtime.spawn(Delayed.run, id="delayed")
        for number in (1, 2, 3):
            await handle.signal("add", number)
        await handle.signal("open")
        await handle.signal("add", 4)
        await handle.result()
        write(await handle.fetch_history(), "delayed")
        handle = await runtime.spawn(Late.run, id="late")
        await handle.signal("early", "x")
        await handle.pause("a look")
        await handle.signal("open")
        await handle.signal("note", "bad")
        update = asyncio.create_task(handle.execute_update("change", "change"))
        await settled(runtime)
        await handle.resume("looked")
        await update
        (letter,) = (await handle.describe()).dead_letters
        await handle.redrive(letter.number)
        await handle.signal("end")
        with contextlib.suppress(EveractError):
            await handle.result()
        write(await handle.fetch_history(), "late")
        await step_workflows.record(runtime, write)
        for ending in ("completed", "failed", "cancelled", "terminated", "open"):
            handle = await runtime.spawn(Everything.run, ending, id=ending)
            state = runtime._shard.find(ending).state
            await until(lambda state=state: state.waiting)
            await handle.signal(Everything.note, "one")
            await handle.signal(Everything.note, "bad")
            await handle.execute_update(Everything.change, "two", request_id="u")
            for text in ("fail", ""):
                with contextlib.suppress(EveractError):
                    await handle.execute_update(Everything.change, text)
            if ending == "failed":
                for n in range(3):
                    await handle.signal(Everything.note, str(n))
            if ending == "cancelled":
                await handle.cancel("history")
            elif ending == "terminated":
                await handle.terminate("history")
            elif ending != "open":
                await handle.signal(Everything.end)
            if ending != "open":
                with contextlib.suppress(EveractError):
                    await handle.result()
            await settled(runtime)
            write(await handle.fetch_history(), f"everything-{ending}")

    @workflow.defn(name="Everything")
    class Broken:
        @workflow.init
        def __init__(self, title: str, limit: int = 3) -> None:
            raise ValueError("first version")

        @workflow.run
        async def run(self, title: str, limit: int = 3) -> None:
            pass

        @workflow.signal
        def note(self, text: str) -> None:
            pass

    async with hosted(journal, Broken) as runtime:
        handle = await runtime.spawn(Broken.run, "stalled", 9, id="stalled")
        with contextlib.suppress(EveractError):
            await handle.result()
        await handle.signal(Broken.note, "early")
    async with hosted(journal, *WORKFLOWS, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("stalled", Everything)
        await handle.release()
        await until(lambda: runtime._shard.find("stalled").state.waiting)
        await handle.signal(Everything.end)
        await handle.result()
        write(await handle.fetch_history(), "everything-stalled")
    await _record_deaths(write)


async def _record_deaths(write):
    """A run that was there when its processes died: in turns, a query and attempts, alone and among others."""
    with tempfile.TemporaryDirectory() as directory:
        grave = Grave(MemoryJournal(), directory)
        deaths = [
            (),
            ((TURN, 1, 2),),
            ((TURN, 1, 2), (ATTEMPT, 1, 1, 1)),
            ((QUERY, 1, 2, "so_far"),),
            ((ATTEMPT, 1, 1, 2),),
        ]
        for death in deaths:
            if death:
                grave.die(*death)
            doors.append(asyncio.Event())
            async with hosted(grave.store(), Dies, activities=[lingers]) as runtime:
                handle = await runtime.spawn(Dies.run, id="deaths", if_running="attach")
                await settled(runtime)
        async with hosted(grave.store(), Dies, activities=[lingers]) as runtime:
            handle = runtime.ref("deaths", Dies)
            doors[-1].set()
            await handle.result()
            write(await handle.fetch_history(), "deaths")

"""Code that blocks the loop is named, then broken off; what the others do is not harmed (R19, F08)."""

import asyncio
import logging
import threading

import pytest
from support.clock import ManualClock
from support.hosting import hosted, settled, until

from everact import WatchdogLimits, activity, workflow
from everact.actors import marks
from everact.exceptions import (
    QueryFailedError,
    UpdateRejectedError,
    WorkflowFailedError,
    WorkflowQuarantinedError,
)
from everact.journal.memory_store import MemoryJournal

pytestmark = pytest.mark.usefixtures("keeps_code")


class Looks:
    """Looks of the watchdog at a runtime's loop, from a thread, while code blocks it."""

    def __init__(self, clock, *seconds):
        self.inside = threading.Event()
        self.release = threading.Event()
        self._clock = clock
        self._seconds = seconds
        self.runtime = None

    def start(self, runtime):
        self.runtime = runtime
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while self.inside.wait(20) and self.runtime._shard is not None:  # a run that crashes is restarted
            self.inside.clear()
            dog = self.runtime._shard.marks.watchdog
            dog.look()
            for seconds in self._seconds:
                self._clock.advance(seconds)
                dog.look()
            self.release.set()

    def block(self):
        """Called by the code: stay until the looks are over."""
        self.inside.set()
        while not self.release.is_set():
            pass

    def spin(self):
        """Called by the code: stay for ever."""
        self.inside.set()
        while True:
            pass


looks: Looks = None  # of the test that runs


@workflow.defn
class Spins:
    """Blocks in whatever it is asked to block in."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @workflow.run
    async def run(self, how: str) -> str:
        if how == "main":
            looks.spin()
        await workflow.wait_condition(lambda: "end" in self.done)
        return "ended"

    @workflow.signal
    def note(self, what: str) -> None:
        if what == "spin":
            looks.spin()
        elif what == "swallow":
            try:
                looks.spin()
            except BaseException:
                pass
        elif what == "block":
            looks.block()
        self.done.append(what)

    @workflow.query
    def look(self) -> list[str]:
        looks.spin()
        return self.done

    @workflow.query
    def seen(self) -> list[str]:
        return self.done

    @workflow.update
    def change(self) -> None:
        self.done.append("changed")

    @change.validator
    def check(self) -> None:
        looks.spin()


@workflow.defn
class Well:
    @workflow.run
    async def run(self) -> str:
        await asyncio.sleep(0)
        return "well"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def dog(clock):
    def begin(runtime, *seconds):
        global looks
        looks = Looks(clock, *seconds)
        looks.start(runtime)

    return begin


def started(clock, *workflows, activities=(), **options):
    # The test makes the looks itself.
    return hosted(
        MemoryJournal(), Spins, Well, *workflows, activities=activities, clock=clock, watchdog=None, **options
    )


async def test_a_turn_that_blocks_is_named_and_goes_on(clock, dog, caplog):
    async with started(clock) as runtime:
        handle = await runtime.spawn(Spins, "wait", id="slow")
        dog(runtime, 2.1)
        await handle.signal(Spins.note, "block")
        assert await handle.query(Spins.seen) == ["block"]
        assert runtime._shard.marks.watchdog.stalled == pytest.approx(2.1)
    [record] = [r for r in caplog.records if "has blocked the event loop" in r.getMessage()]
    text = record.getMessage()
    assert text.startswith("a turn of workflow 'slow' (run ")
    assert "has blocked the event loop for 2.1 s; nothing else runs meanwhile" in text
    assert "looks.block()" in text
    assert "workflow_actor.py" not in text


async def test_of_a_turn_that_never_ends_the_lines_of_its_tasks_are_named(clock, caplog):
    async with started(clock) as runtime:
        await runtime.spawn(Spins, "wait", id="slow")
        await settled(runtime)
        actor = runtime._shard.find("slow")
        engine = {
            "__name__": "everact.pretended",
            "name": lambda frame: marks._name((marks.TURN, actor, 1), 2, frame),
        }
        exec("import sys\ndef turn(): name(sys._getframe())", engine)
        named = asyncio.Event()
        asyncio.get_running_loop().call_soon(engine["turn"])
        asyncio.get_running_loop().call_soon(named.set)
        await named.wait()
    [text] = [r.getMessage() for r in caplog.records if "has blocked the event loop" in r.getMessage()]
    line = Spins.run.__code__.co_firstlineno + 4
    assert text.endswith(f"  a task of the workflow is at {__file__}:{line}\n")
    assert "pytest" not in text


@pytest.mark.parametrize("what", ["spin", "swallow"])
async def test_a_turn_that_blocks_for_too_long_is_discarded_however_it_ends(clock, dog, what):
    async with started(clock) as runtime:
        handle = await runtime.spawn(Spins, "wait", id="slow")
        dog(runtime, 10.1)
        await handle.signal(Spins.note, what)
        with pytest.raises(WorkflowQuarantinedError) as caught:
            await handle.result()
        assert "TurnBlockedError: the code blocked the event loop for more than 10 s" in str(caught.value)
        assert "raise the limit by Runtime(watchdog=WatchdogLimits(break_after=...))" in str(caught.value)
        description = await handle.describe()
        assert description.backlog == 1
        assert await runtime.execute(Well, id="well") == "well"
        assert asyncio.get_running_loop() is runtime._shard.loop


async def test_where_a_turn_was_broken_is_in_describe(clock, dog):
    async with started(clock) as runtime:
        dog(runtime, 10.1)
        handle = await runtime.spawn(Spins, "main", id="slow")
        await until(lambda: runtime._shard.find("slow").is_stalled)
        description = await handle.describe()
        assert description.status == "quarantined"
        assert "looks.spin()" in description.failure


async def test_it_goes_on_with_its_message_once_it_does_not_block(clock, dog):
    journal = MemoryJournal()
    async with hosted(journal, Spins, clock=clock, watchdog=None) as runtime:
        handle = await runtime.spawn(Spins, "wait", id="slow")
        dog(runtime, 10.1)
        await handle.signal(Spins.note, "spin")
        await settled(runtime)

    @workflow.defn(name="Spins")
    class Mended(Spins):
        @workflow.run
        async def run(self, how: str) -> str:
            await workflow.wait_condition(lambda: "end" in self.done)
            return "ended"

        @workflow.signal
        def note(self, what: str) -> None:
            self.done.append(what)

    async with hosted(journal, Mended, clock=clock, watchdog=None) as runtime:
        assert await runtime.ref("slow", Mended).query(Mended.seen) == ["spin"]


async def test_a_query_that_blocks_is_refused_and_its_run_is_well(clock, dog):
    async with started(clock) as runtime:
        handle = await runtime.spawn(Spins, "wait", id="slow")
        dog(runtime, 10.1)
        with pytest.raises(QueryFailedError, match="query 'look': the code blocked the event loop"):
            await handle.query(Spins.look)
        assert await handle.query(Spins.seen) == []
        assert (await handle.describe()).status == "running"


async def test_an_update_whose_validator_blocks_is_refused_and_its_run_is_well(clock, dog):
    async with started(clock) as runtime:
        handle = await runtime.spawn(Spins, "wait", id="slow")
        dog(runtime, 10.1)
        with pytest.raises(UpdateRejectedError, match="blocked the event loop for more than 10 s"):
            await handle.execute_update(Spins.change)
        assert await handle.query(Spins.seen) == []


async def test_an_async_activity_that_blocks_is_named_and_not_broken(clock, dog, caplog):
    @activity.defn
    async def blocks() -> str:
        await asyncio.sleep(0)
        looks.block()
        return "done"

    @workflow.defn
    class Calls:
        @workflow.run
        async def run(self) -> str:
            return await blocks()

    async with started(clock, Calls, activities=[blocks]) as runtime:
        dog(runtime, 2.1, 100, 100)
        assert await runtime.execute(Calls, id="caller") == "done"
    [text] = [r.getMessage() for r in caplog.records if "has blocked" in r.getMessage()]
    assert text.startswith(
        "async activity 'blocks' (attempt 1 of command 1) of workflow 'caller' has blocked the event loop for 2.1 s"
    )
    assert "make it a plain def, which runs in a thread" in text


async def test_the_replay_is_not_broken(clock, dog, caplog):
    """It is named: nothing else runs meanwhile, whatever the reason."""
    journal = MemoryJournal()
    slow = False

    @workflow.defn
    class Slow:
        @workflow.run
        async def run(self) -> str:
            if slow:
                looks.block()
            await workflow.sleep(3600)
            return "ended"

        @workflow.query
        def state(self) -> str:
            return "well"

    async with hosted(journal, Slow, clock=clock, watchdog=None) as runtime:
        await runtime.spawn(Slow, id="slow")
    slow = True
    async with hosted(journal, Slow, clock=clock, watchdog=None) as runtime:
        dog(runtime, 2.1, 100, 100)
        assert await runtime.ref("slow", Slow).query(Slow.state) == "well"
    assert "the replay of workflow 'slow'" in caplog.text


async def test_it_watches_by_itself(clock, caplog):
    """A thread of its own looks; the turn itself waits for its look."""
    named = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record):
            if "has blocked" in record.getMessage():
                named.set()

    @workflow.defn
    class Slow:
        @workflow.run
        async def run(self) -> bool:
            return named.wait(20)

    handler = Handler()
    logging.getLogger("everact.runtime").addHandler(handler)
    try:
        limits = WatchdogLimits(warn_after=0.01, break_after=None)
        async with hosted(MemoryJournal(), Slow, watchdog=limits) as runtime:
            assert await runtime.execute(Slow)
    finally:
        logging.getLogger("everact.runtime").removeHandler(handler)


async def test_an_endless_loop_is_ended_by_itself():
    @workflow.defn
    class Endless:
        @workflow.run
        async def run(self) -> None:
            while True:
                pass

    limits = WatchdogLimits(warn_after=0.01, break_after=0.05)
    async with hosted(MemoryJournal(), Endless, Well, watchdog=limits) as runtime:
        with pytest.raises(WorkflowFailedError, match="TurnBlockedError"):
            await runtime.execute(Endless, id="endless")
        for number in range(50):
            assert await runtime.execute(Well, id=f"well-{number}") == "well"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"warn_after": 0}, "WatchdogLimits.warn_after must be more than 0, not 0"),
        ({"warn_after": -1}, "WatchdogLimits.warn_after must be between 0 and 100 years, not -1"),
        ({"break_after": 0}, "WatchdogLimits.break_after must be more than 0, not 0"),
        ({"warn_after": 5, "break_after": 1}, "WatchdogLimits.break_after is shorter than warn_after"),
    ],
)
def test_limits_that_make_no_sense(limits, message):
    with pytest.raises(ValueError, match=message):
        WatchdogLimits(**limits)


def test_a_watchdog_that_is_none():
    with pytest.raises(TypeError, match="watchdog must be a WatchdogLimits or None, not 5"):
        hosted(MemoryJournal(), Well, watchdog=5)


async def test_its_thread_ends_with_the_runtime():
    async with hosted(MemoryJournal(), Well) as runtime:
        await until(lambda: "everact-watchdog" in {thread.name for thread in threading.enumerate()})
        assert await runtime.execute(Well) == "well"
    assert "everact-watchdog" not in {thread.name for thread in threading.enumerate()}

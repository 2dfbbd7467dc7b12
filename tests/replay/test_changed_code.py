"""Code that no longer does what the journal holds: the run is held, says why, and goes on when that is fixed."""

import asyncio
import re
from pathlib import Path

import pytest
from support.hosting import hosted, kinds, settled, until

from everact import ApplicationError, activity, workflow
from everact.exceptions import NondeterminismError, WorkflowHeldError
from everact.journal.memory_store import MemoryJournal


@activity.defn
async def one(n: int = 0) -> str:
    return f"one {n}"


@activity.defn
async def two(n: int = 0) -> str:
    return f"two {n}"


@activity.defn
async def three(n: int = 0) -> str:
    return f"three {n}"


ACTIVITIES = [one, two, three]


def version(body, answer=True):
    @workflow.defn(name="W")
    class W:
        def __init__(self) -> None:
            self.over = False

        @workflow.run
        async def run(self) -> str:
            result = await body()
            await workflow.wait_condition(lambda: self.over)
            return str(result)

        @workflow.signal
        async def end(self) -> None:
            self.over = True

        @workflow.update
        def ask(self) -> str:
            if answer:
                return "answer"
            raise ApplicationError("no answer")

        @workflow.query
        def look(self) -> str:
            return "fine"

    return W


async def base():
    first = await one(1)
    await workflow.sleep(0.002)
    return [first, await two(2)]


async def other_activity():
    first = await one(1)
    await workflow.sleep(0.002)
    return [first, await three(2)]  # changed


async def missing_command():
    await one(1)
    await workflow.sleep(0.002)
    await workflow.wait_condition(lambda: False)  # changed


async def extra_command():
    first = await one(1)
    workflow.start_activity(three)  # changed
    await workflow.sleep(0.002)
    return [first, await two(2)]


async def other_duration():
    first = await one(1)
    await workflow.sleep(5)  # changed
    return [first, await two(2)]


async def other_order():
    await workflow.sleep(0.002)  # changed
    first = await one(1)
    return [first, await two(2)]


async def early_end():
    raise ApplicationError("over")  # changed


async def timer_missing():
    first = await one(1)
    return [first, await two(2)]  # changed


async def extra_at_the_end():
    first = await one(1)
    await workflow.sleep(0.002)
    second = await two(2)
    await one(3)  # changed
    return [first, second]


CHANGES = {
    other_activity: (
        "command 3: activity 'two'",
        "command 3: activity 'three'",
        "command 2: a timer of 0.002 s",
    ),
    missing_command: ("command 3: activity 'two'", "nothing more", "command 2: a timer of 0.002 s"),
    extra_command: (
        "command 2: a timer of 0.002 s",
        "command 2: activity 'three'",
        "command 1: activity 'one'",
    ),
    other_duration: (
        "command 2: a timer of 0.002 s",
        "command 2: a timer of 5 s",
        "command 1: activity 'one'",
    ),
    other_order: ("command 1: activity 'one'", "command 1: a timer of 0.002 s", "the start of the run"),
    early_end: (
        "command 1: activity 'one'",
        "the end of run (it failed: ApplicationError)",
        "the start of the run",
    ),
    timer_missing: (
        "command 2: a timer of 0.002 s",
        "command 2: activity 'two'",
        "command 1: activity 'one'",
    ),
    extra_at_the_end: ("nothing more", "command 4: activity 'one'", "command 3: activity 'two'"),
}


def changed_line(body):
    code = body.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    for number in range(code.co_firstlineno, code.co_firstlineno + 10):
        if "# changed" in lines[number - 1]:
            return number
    raise AssertionError


async def recorded(journal, W, name="a"):
    """A run that waits after its last command."""
    async with hosted(journal, W, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(W.run, id=name)
        state = runtime._shard.find(name).state
        await until(lambda: state.waiting and not state.activities)
        await settled(runtime)
        return handle


@pytest.mark.parametrize("body", CHANGES, ids=lambda body: body.__name__)
async def test_a_difference_names_what_was_expected_what_was_done_and_where(body):
    journal = MemoryJournal()
    Old, New = version(base), version(body)
    await recorded(journal, Old)
    expected, actual, common = CHANGES[body]
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        waiter = asyncio.create_task(handle.result())
        await settled(runtime)
        await handle.signal(New.end)
        with pytest.raises(WorkflowHeldError) as caught:
            await waiter
        text = str(caught.value)
        assert f"the journal has {expected}, the code did {actual} " in text
        assert f"last in common: {common}." in text
        place, line = re.search(r"\(([^()]+\.py):(\d+)\)", text).groups()
        assert place == __file__
        assert int(line) == changed_line(body)
        cause = caught.value.__cause__
        assert isinstance(cause, NondeterminismError) or cause.caused_by(NondeterminismError)
        number = int(re.match(r".* at event (\d+):", text)[1])
        event = (await handle.fetch_history()).events[number - 1].event
        if expected == "nothing more":
            assert isinstance(cause, NondeterminismError) and (number, cause.number) == (cause.event, 0)
        else:
            assert event.command == int(re.match(r"command (\d+)", expected)[1])
        renamed = " If 'three' is only a new name, give it the stored one: name='two'."
        assert (renamed in text) == (body is other_activity)
        assert text.endswith(" What may change, and how: docs/changing-code.md.")
        description = await handle.describe()
        assert (description.status, description.backlog) == ("held", 1)
        assert expected in description.failure
        with pytest.raises(WorkflowHeldError):
            await handle.query(New.look)
    # Still the wrong code: tried again at each start, held again.
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        with pytest.raises(WorkflowHeldError):
            await runtime.ref("a", New).result()
    # The right code: it goes on, with the signal that came meanwhile.
    async with hosted(journal, Old, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", Old)
        assert await handle.result() == "['one 1', 'two 2']"
        seen = kinds(await handle.fetch_history())
        assert seen.count("RunStalled") == seen.count("RunReleased") == 2


async def test_a_held_run_stops_no_other():
    journal = MemoryJournal()
    Old, New = version(base), version(other_activity)
    await recorded(journal, Old, "a")

    @workflow.defn
    class Fine:
        @workflow.run
        async def run(self) -> str:
            return await one(5)

    async with hosted(journal, New, Fine, activities=ACTIVITIES) as runtime:
        with pytest.raises(WorkflowHeldError):
            await runtime.ref("a", New).query(New.look)
        assert await runtime.execute(Fine.run) == "one 5"
        fresh = await runtime.spawn(New.run, id="b")
        await fresh.signal(New.end)
        assert await fresh.result() == "['one 1', 'three 2']"


async def test_changed_arguments_and_results_are_no_difference():
    """Code may change what it sends, not what it does."""

    async def changed():
        first = await one(77)
        await workflow.sleep(0.002)
        return {"first": first, "second": await two(88)}

    journal = MemoryJournal()
    Old, New = version(base), version(changed)
    await recorded(journal, Old)
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        await handle.signal(New.end)
        assert await handle.result() == "{'first': 'one 1', 'second': 'two 2'}"


async def test_a_condition_added_without_a_limit_is_no_difference():
    async def changed():
        first = await one(1)
        await workflow.wait_condition(lambda: True)
        await workflow.sleep(0.002)
        second = await two(2)
        await workflow.wait_condition(lambda: second is not None)
        return [first, second]

    journal = MemoryJournal()
    Old, New = version(base), version(changed)
    await recorded(journal, Old)
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        await handle.signal(New.end)
        assert await handle.result() == "['one 1', 'two 2']"


async def test_an_update_that_now_fails_is_no_difference_and_its_recorded_answer_stands():
    journal = MemoryJournal()
    Old, New = version(base), version(base, answer=False)
    async with hosted(journal, Old, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Old.run, id="a")
        assert await handle.execute_update(Old.ask, request_id="q") == "answer"
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        assert await handle.query(New.look) == "fine"
        assert await handle.execute_update(New.ask, request_id="q") == "answer"


async def test_a_signal_handler_that_has_gone_is_a_difference():
    """It was handled then, it would be a dead letter now."""
    journal = MemoryJournal()

    @workflow.defn(name="W")
    class New:
        @workflow.run
        async def run(self) -> str:
            await base()
            await workflow.wait_condition(lambda: False)
            return ""

        @workflow.signal
        def other(self) -> None:
            pass

        @workflow.query
        def look(self) -> str:
            return ""

    async def never():
        await base()
        await workflow.wait_condition(lambda: False)

    Waiting = version(never)
    async with hosted(journal, Waiting, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Waiting.run, id="a")
        await handle.signal(Waiting.end)
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        with pytest.raises(WorkflowHeldError, match="nothing more.*failed handler for the message"):
            await runtime.ref("a", New).query(New.look)


async def test_a_closed_run_whose_code_has_changed_answers_its_result_and_refuses_queries():
    journal = MemoryJournal()
    Old, New = version(base), version(other_activity)
    async with hosted(journal, Old, activities=ACTIVITIES) as runtime:
        handle = await runtime.spawn(Old.run, id="a")
        await handle.signal(Old.end)
        await handle.result()
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        assert await handle.result() == "['one 1', 'two 2']"
        with pytest.raises(Exception, match="cannot be replayed.*activity 'two'"):
            await handle.query(New.look)
        assert (await handle.describe()).status == "completed"


async def test_on_crash_fail_does_not_end_a_run_because_its_code_has_changed():
    @workflow.defn(name="W", on_crash="fail")
    class New(version(other_activity)):
        pass

    journal = MemoryJournal()
    Old = version(base)
    await recorded(journal, Old)
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        handle = runtime.ref("a", New)
        await handle.signal("end")
        with pytest.raises(WorkflowHeldError):
            await handle.result()
    async with hosted(journal, Old, activities=ACTIVITIES) as runtime:
        assert await runtime.ref("a", Old).result() == "['one 1', 'two 2']"


async def test_a_result_that_the_new_hint_does_not_fit_holds_the_run():
    """H07: visible, with the path of the value; it goes on with code that fits."""

    @activity.defn(name="one")
    async def one_as_number(n: int = 0) -> int:
        return n

    journal = MemoryJournal()
    Old = version(base)
    await recorded(journal, Old)

    async def with_number():
        first = await one_as_number(1)
        await workflow.sleep(0.002)
        return [first, await two(2)]

    New = version(with_number)
    async with hosted(journal, New, activities=[one_as_number, two, three]) as runtime:
        handle = runtime.ref("a", New)
        await handle.signal(New.end)
        with pytest.raises(WorkflowHeldError, match="PayloadDecodeError.*activity one"):
            await handle.result()
    async with hosted(journal, Old, activities=ACTIVITIES) as runtime:
        assert await runtime.ref("a", Old).result() == "['one 1', 'two 2']"


async def test_the_journal_of_a_held_run_is_as_it_was():
    """Replay writes nothing but that the run stands still."""
    journal = MemoryJournal()
    Old, New = version(base), version(other_activity)
    await recorded(journal, Old)
    before = list(journal.records)
    async with hosted(journal, New, activities=ACTIVITIES) as runtime:
        with pytest.raises(WorkflowHeldError):
            await runtime.ref("a", New).query(New.look)
        history = await runtime.ref("a").fetch_history()
    assert journal.records[: len(before)] == before
    assert len(journal.records) == len(before) + 1
    assert kinds(history)[-1] == "RunStalled"

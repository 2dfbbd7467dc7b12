"""D05: a message that could not be handled is visible, and can be delivered again."""

import asyncio

import pytest
from support.codecs import Wrapping
from support.hosting import hosted, kinds, settled

from everact import DeadLetter, workflow
from everact.exceptions import NoDeadLetterError, WorkflowClosedError
from everact.journal.memory_store import MemoryJournal


def version(broken):
    @workflow.defn(name="Takes")
    class Takes:
        def __init__(self) -> None:
            self.seen: list[int] = []

        @workflow.run
        async def run(self) -> list[int]:
            await workflow.wait_condition(lambda: 0 in self.seen)
            return self.seen

        @workflow.signal
        def add(self, number: int) -> None:
            if broken and number % 2:
                raise ValueError(f"odd: {number}")
            self.seen.append(number)

        @workflow.signal
        async def later(self, number: int) -> None:
            await asyncio.sleep(0)
            self.add(number)

        @workflow.update
        def change(self, number: int) -> None:
            self.add(number)

        @workflow.query
        def look(self) -> list[int]:
            return self.seen

    return Takes


@pytest.fixture(params=["plain", "codecs"])
def options(request):
    return {"codecs": [Wrapping()]} if request.param == "codecs" else {}


async def test_dead_letters_are_delivered_again_as_new_messages_with_a_reference(options):
    journal = MemoryJournal()
    async with hosted(journal, version(broken=True), **options) as runtime:
        handle = await runtime.spawn("Takes", id="a")
        await handle.signal("add", 2)
        await handle.signal("add", 3)
        await handle.signal("later", 5)
        letters = (await handle.describe()).dead_letters
        assert letters == (
            DeadLetter(4, "add", "ValueError: odd: 3"),
            DeadLetter(6, "later", "ValueError: odd: 5"),
        )
        await handle.redrive(4)  # it fails again: a letter under its own number
        letters = (await handle.describe()).dead_letters
        assert [(letter.number, letter.name) for letter in letters] == [(6, "later"), (8, "add")]
    async with hosted(journal, version(broken=False), **options) as runtime:
        handle = runtime.ref("a")
        # The old code has decided that they fail; only what is delivered from here on meets the new one.
        for letter in letters:
            await handle.redrive(letter.number)
        described = await handle.describe()
        assert (described.dead_letters, described.dead_letter_count) == ((), 0)
        await handle.signal("add", 0)
        history = await handle.fetch_history()
    again = [e.event for e in history if e.kind == "SignalReceived" and e.event.redrives]
    assert [(event.name, event.redrives) for event in again] == [("add", 4), ("later", 6), ("add", 8)]


async def test_a_dead_letter_is_delivered_again_once():
    async with hosted(MemoryJournal(), version(broken=True)) as runtime:
        handle = await runtime.spawn("Takes")
        await handle.signal("add", 3)
        await handle.redrive(3)
        await handle.redrive(3)
        await asyncio.gather(*(handle.redrive(5) for _ in range(3)))
        events = (await handle.fetch_history()).events
        again = [e.event.redrives for e in events if e.kind == "SignalReceived"]
        assert again == [0, 3, 5]
        (letter,) = (await handle.describe()).dead_letters
        assert letter.number == 7
        assert (await handle.describe()).dead_letter_count == 1


async def test_a_letter_survives_starts_and_compaction(tmp_journal):
    async with hosted(tmp_journal, version(broken=True)) as runtime:
        handle = await runtime.spawn("Takes", id="a")
        await handle.signal("add", 3)
        for number in range(12):
            await runtime.spawn("Takes", id=f"other-{number}")
    async with hosted(tmp_journal, version(broken=True)) as runtime:
        handle = runtime.ref("a")
        (letter,) = (await handle.describe()).dead_letters
        assert (letter.number, letter.name) == (3, "add")
        await handle.redrive(letter.number)
        for number in range(12):
            await runtime.spawn("Takes", id=f"more-{number}")
    async with hosted(tmp_journal, version(broken=True)) as runtime:
        await runtime.ref("a").redrive(3)  # long ago
        (letter,) = (await runtime.ref("a").describe()).dead_letters
        assert letter.number == 5


async def test_what_is_no_dead_letter_is_refused():
    async with hosted(MemoryJournal(), version(broken=True)) as runtime:
        handle = await runtime.spawn("Takes", id="a")
        await handle.signal("add", 2)
        await handle.signal("add", 3)
        with pytest.raises(Exception, match="ValueError: odd: 5"):
            await handle.execute_update("change", 5)
        for number in (1, 2, 3, 5, 6, 99):  # 6: the update, whose caller has heard of it
            with pytest.raises(NoDeadLetterError) as caught:
                await handle.redrive(number)
        assert str(caught.value) == (
            "event 99 of workflow 'a' is no dead letter: redrive() takes the number of one of "
            "describe().dead_letters, a signal whose handler has failed"
        )
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="the number of a dead letter must be"):
                await handle.redrive(wrong)
        for wrong in ("4", True, None, 4.0):
            with pytest.raises(TypeError, match="the number of a dead letter must be"):
                await handle.redrive(wrong)
        await handle.signal("add", 0)
        await handle.result()
        with pytest.raises(WorkflowClosedError):
            await handle.redrive(4)


async def test_a_letter_of_a_paused_run_waits_with_the_other_messages():
    async with hosted(MemoryJournal(), version(broken=False)) as runtime:
        handle = await runtime.spawn("Takes")
        await handle.signal("add", 2)
        await handle.pause()
        await handle.signal("add", 4)
        await settled(runtime)
        assert kinds(await handle.fetch_history())[-1] == "SignalReceived"
        with pytest.raises(NoDeadLetterError):
            await handle.redrive(5)
        await handle.resume()
        assert await handle.query("look") == [2, 4]

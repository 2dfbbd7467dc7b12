"""Functions that replay does not call again, and the memo of a run."""

import asyncio
import dataclasses

import pytest
from support.codecs import InThreads
from support.hosting import gate, hosted, kinds, settled, until

from everact import ApplicationError, workflow
from everact.exceptions import PayloadTooLargeError, QueryFailedError, WorkflowHeldError
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal
from everact.journal.payload_limits import PayloadLimits

CODECS = pytest.mark.parametrize("codecs", [(), (InThreads(),)], ids=["plain", "coded"])


class Calls:
    """A workflow whose side effect counts its calls, and waits behind it."""

    def __init__(self, fn, result_type=None, first=False):
        @workflow.defn(name="Calls")
        class W:
            def __init__(self) -> None:
                self.over = False
                self.got: object = None

            @workflow.signal
            def end(self) -> None:
                self.over = True

            @workflow.query
            def look(self) -> object:
                return repr(self.got)

            @workflow.run
            async def run(self) -> object:
                if first:
                    await workflow.sleep(0.001)
                try:
                    self.got = workflow.side_effect(fn, result_type=result_type)
                except ApplicationError as error:
                    self.got = f"{error.type}: {error.message}"
                await workflow.wait_condition(lambda: self.over)
                return self.got

        self.W = W


@CODECS
async def test_a_side_effect_is_called_once_in_the_life_of_a_run(codecs):
    calls = []

    def draw() -> int:
        calls.append(1)
        return len(calls)

    it = Calls(draw)
    journal = MemoryJournal()
    for _ in range(3):
        async with hosted(journal, it.W, codecs=codecs) as runtime:
            handle = await runtime.spawn(it.W.run, id="a", if_running="attach")
            await settled(runtime)
            assert await handle.query(it.W.look) == "1"
    async with hosted(journal, it.W, codecs=codecs) as runtime:
        handle = runtime.ref("a", it.W)
        await handle.signal(it.W.end)
        assert await handle.result() == 1
        (event,) = [e.event for e in await handle.fetch_history() if e.kind == "SideEffectRecorded"]
    assert (event.command, event.result.data, event.failure) == (1, b"1", None)
    assert calls == [1]


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize("how", ["annotation", "result_type"])
async def test_the_code_gets_a_copy_of_its_type_live_and_replayed(how):
    shared = Point(1)

    def annotated() -> Point:
        return shared

    it = Calls(annotated) if how == "annotation" else Calls(lambda: shared, Point)
    journal = MemoryJournal()
    seen = []
    for _ in range(2):
        async with hosted(journal, it.W) as runtime:
            handle = await runtime.spawn(it.W.run, id="a", if_running="attach")
            await settled(runtime)
            shared.x = 99
            seen.append(await handle.query(it.W.look))
    assert seen == ["Point(x=1)", "Point(x=1)"]


async def test_an_error_of_the_function_is_recorded_too():
    calls = []

    def fails() -> None:
        calls.append(1)
        raise KeyError("gone")

    it = Calls(fails)
    journal = MemoryJournal()
    seen = []
    for _ in range(2):
        async with hosted(journal, it.W) as runtime:
            handle = await runtime.spawn(it.W.run, id="a", if_running="attach")
            await settled(runtime)
            seen.append(await handle.query(it.W.look))
    assert seen == ["\"KeyError: 'gone'\""] * 2
    assert calls == [1]


async def test_it_is_durable_before_anything_that_the_turn_decides_leaves():
    """A turn that is lost never was: the function is called again, and only the second value is seen."""
    calls = []
    gated = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            number = workflow.side_effect(lambda: calls.append(1) or len(calls))
            return await gated.fn(str(number))

    failures = [1]

    def fail():
        if failures and calls:
            failures.pop()
            raise OSError("disk")

    async with hosted(MemoryJournal(), W, activities=[gated.fn]) as runtime:
        gated.open.set()
        with armed("journal.commit.before", fail):
            handle = None
            while handle is None:
                try:
                    handle = await runtime.spawn(W.run, id="a", if_running="attach", if_closed="attach")
                except Exception as error:
                    assert type(error).__name__ == "CommitUnknownError"
                    await asyncio.sleep(0)  # let the rebuild go on
        await handle.result()
    assert calls == [1, 1]
    assert gated.calls == ["2"]


async def test_code_that_gained_a_side_effect_is_held_and_the_function_is_not_called():
    calls = []
    journal = MemoryJournal()

    @workflow.defn(name="Calls")
    class Old:
        @workflow.run
        async def run(self) -> object:
            await workflow.wait_condition(lambda: False)

    it = Calls(lambda: calls.append(1))
    async with hosted(journal, Old) as runtime:
        await runtime.spawn(Old.run, id="a")
        await settled(runtime)
    async with hosted(journal, it.W) as runtime:
        handle = runtime.ref("a", it.W)
        await handle.signal(it.W.end)
        with pytest.raises(WorkflowHeldError, match="command 1: a side effect.*test_side_effects.py"):
            await handle.result()
    assert calls == []


async def test_code_that_lost_a_side_effect_is_held():
    journal = MemoryJournal()
    it = Calls(lambda: 1)

    @workflow.defn(name="Calls")
    class New:
        @workflow.signal
        def end(self) -> None:
            pass

        @workflow.run
        async def run(self) -> object:
            await workflow.wait_condition(lambda: False)

    async with hosted(journal, it.W) as runtime:
        await runtime.spawn(it.W.run, id="a")
        await settled(runtime)
    async with hosted(journal, New) as runtime:
        handle = runtime.ref("a", New)
        await handle.signal(New.end)
        with pytest.raises(
            WorkflowHeldError, match="journal has command 1: a side effect, the code did nothing more"
        ):
            await handle.result()


async def test_a_side_effect_decides_nothing_and_questions_have_none():
    gated = gate()

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            try:
                workflow.side_effect(lambda: gated.fn("x"))
            except ApplicationError as error:
                first = error.message
            try:
                workflow.side_effect(self.wrong)  # type: ignore[arg-type]
            except TypeError as error:
                return f"{first} / {error}"
            return "?"

        async def wrong(self) -> None:
            pass

        @workflow.query
        def ask(self) -> int:
            return workflow.side_effect(lambda: 1)

        @workflow.query
        def change(self) -> None:
            workflow.upsert_memo({"a": 1})

    async with hosted(MemoryJournal(), W, activities=[gated.fn]) as runtime:
        handle = await runtime.spawn(W.run)
        result = await handle.result()
        assert "activity 'gated'" in result and "what awaits is an activity" in result
        for query in (W.ask, W.change):
            with pytest.raises(QueryFailedError, match="side_effect|upsert_memo"):
                await handle.query(query)


# --- memo ---------------------------------------------------------------------------------------------------------


@workflow.defn
class Noted:
    def __init__(self) -> None:
        self.over = False

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.signal
    def note(self, name: str, value: object) -> None:
        workflow.upsert_memo({name: value})

    @workflow.query
    def look(self) -> dict[str, object]:
        return workflow.memo()

    @workflow.run
    async def run(self) -> dict[str, object]:
        await workflow.wait_condition(lambda: self.over)
        return workflow.memo()


@CODECS
async def test_a_memo_is_in_the_description_and_in_the_code(codecs):
    journal = MemoryJournal()
    memo = {"customer": "Ann", "tags": ["new", 1], "long": "x" * 200}
    async with hosted(journal, Noted, codecs=codecs) as runtime:
        handle = await runtime.spawn(Noted.run, id="a", memo=memo)
        assert (await handle.describe()).memo == memo
        assert await handle.query(Noted.look) == memo
        await handle.signal(Noted.note, "customer", "Eve")
        await handle.signal(Noted.note, "tags", None)
        await handle.signal(Noted.note, "more", {"a": 1})
    changed = {"customer": "Eve", "long": "x" * 200, "more": {"a": 1}}
    for _ in range(2):
        async with hosted(journal, Noted, codecs=codecs) as runtime:
            handle = runtime.ref("a", Noted)
            assert (await handle.describe()).memo == changed
            assert await handle.query(Noted.look) == changed
    async with hosted(journal, Noted, codecs=codecs) as runtime:
        handle = runtime.ref("a", Noted)
        await handle.signal(Noted.end)
        assert await handle.result() == changed
        assert (await handle.describe()).memo == changed, "closed runs keep theirs"
        assert kinds(await handle.fetch_history()).count("MemoUpserted") == 3


async def test_a_memo_is_checked_at_the_start():
    limits = PayloadLimits(payload=1000, record=5000, warning=500)
    async with hosted(MemoryJournal(), Noted, payload_limits=limits) as runtime:
        for wrong, error, said in (
            (["a"], TypeError, "memo must be a dict"),
            ({1: 2}, TypeError, "a name in a memo must be a str"),
            ({"": 2}, ValueError, "a name in a memo must not be empty"),
            ({"a": object()}, Exception, "memo 'a'"),
            ({"a": "x" * 2000}, PayloadTooLargeError, "memo value 1 of workflow Noted"),
        ):
            with pytest.raises(error, match=said):
                await runtime.spawn(Noted.run, memo=wrong)
        assert await runtime.count_workflows() == 0


async def test_runs_without_a_memo_have_an_empty_one():
    async with hosted(MemoryJournal(), Noted) as runtime:
        handle = await runtime.spawn(Noted.run)
        assert (await handle.describe()).memo == {}
        assert await handle.query(Noted.look) == {}
        await until(lambda: True)
        await asyncio.sleep(0)

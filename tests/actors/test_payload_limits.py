"""Values that are too large (H01): who gets the error, by what words, and that nothing is half-written."""

import logging

import pytest
from support.codecs import InThreads, encrypted
from support.hosting import hosted, kinds

from everact import activity, workflow
from everact.exceptions import ActivityError, ApplicationError, PayloadTooLargeError, WorkflowHeldError
from everact.journal.memory_store import MemoryJournal
from everact.payloads import PayloadLimits, ZstdCodec

LIMITS = PayloadLimits(payload=10_000, record=35_000, warning=9_000)
FITS = "x" * 9_000
LARGE = "x" * 10_001

CODECS = pytest.mark.parametrize(
    "codecs", [(), (encrypted(),), (InThreads(),)], ids=["none", "inline", "threads"]
)
#: What the message says of ``LARGE`` as JSON, plain and encrypted.
SIZES = {0: "10,003", 1: "10,043"}

made: list[str] = []


@activity.defn
async def make(size: int) -> str:
    made.append("once")
    return "x" * size


@activity.defn
async def take(word: str, more: str = "") -> int:
    return len(word) + len(more)


@activity.defn
def fail(size: int) -> None:
    raise ApplicationError("with details", "x" * size)


@workflow.defn(name="Keeper")
class Keeper:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, first: str = "") -> int:
        await workflow.wait_condition(lambda: "end" in self.words and workflow.all_handlers_finished())
        return len(self.words)

    @workflow.signal
    def add(self, word: str, note: str = "") -> None:
        self.words.append(word)

    @workflow.update
    async def pass_on(self, size: int) -> int:
        return await workflow.execute_activity(take, "x" * size)

    @workflow.update
    def answer(self, size: int) -> str:
        return "x" * size

    @workflow.update
    def echo(self, word: str) -> int:
        return len(word)

    @workflow.update
    async def fetch(self, size: int) -> str:
        try:
            return await make(size)
        except ActivityError as error:
            return f"{error} / {error.__cause__}"

    @workflow.update
    async def fail_with(self, size: int) -> str:
        try:
            await workflow.execute_activity(fail, size)
        except ActivityError as error:
            return str(error)
        return ""

    @workflow.update
    async def fan_out(self, count: int, size: int) -> int:
        handles = [workflow.start_activity(take, "x" * size) for _ in range(count)]
        return sum([await handle for handle in handles])


@pytest.fixture(autouse=True)
def _nothing_made():
    made.clear()


def limited(journal, codecs, cls=Keeper, limits=LIMITS):
    return hosted(journal, cls, activities=[make, take, fail], codecs=codecs, payload_limits=limits)


def says(where, codecs, option="payload", limit="10,000"):
    return (
        f"{where} has {SIZES[len(codecs)]} bytes, and the limit is {limit}: pass a reference to data that is kept "
        f"elsewhere, or raise Runtime(payload_limits=PayloadLimits({option}=...))"
    )


@CODECS
async def test_a_caller_gets_the_error_and_nothing_is_written(codecs):
    async with limited(MemoryJournal(), codecs) as runtime:
        with pytest.raises(PayloadTooLargeError) as caught:
            await runtime.spawn(Keeper, LARGE, id="k")
        assert str(caught.value) == says("argument 'first' of workflow Keeper", codecs)
        assert await runtime.list_workflows() == []
        handle = await runtime.spawn(Keeper, FITS, id="k")
        with pytest.raises(PayloadTooLargeError) as caught:
            await handle.signal(Keeper.add, "x", LARGE)
        assert str(caught.value) == says("argument 'note' of signal Keeper.add", codecs)
        with pytest.raises(PayloadTooLargeError, match=r"argument 'word' of update Keeper.echo"):
            await handle.execute_update(Keeper.echo, LARGE)
        assert kinds(await handle.fetch_history())[0] == "WorkflowStarted"
        assert "SignalReceived" not in kinds(await handle.fetch_history())
        await handle.signal(Keeper.add, "end", FITS)
        assert await handle.result() == 1


@CODECS
async def test_an_activitys_result_fails_its_attempt_for_good_and_the_run_goes_on(codecs):
    async with limited(MemoryJournal(), codecs) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        answer = await handle.execute_update(Keeper.fetch, 10_001)
        failed, _, cause = answer.partition(" / ")
        assert failed.startswith(
            "activity 'make' failed after 1 attempt (non-retryable error): PayloadTooLargeError: "
        )
        assert cause == "PayloadTooLargeError: " + says("result of activity make", codecs)
        assert made == ["once"]
        assert await handle.execute_update(Keeper.fetch, 10) == "x" * 10


@CODECS
async def test_details_of_an_error_are_limited_too(codecs):
    async with limited(MemoryJournal(), codecs) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        answer = await handle.execute_update(Keeper.fail_with, 10_001)
        assert "the failure's detail 1 of activity fail has 10,0" in answer


@CODECS
@pytest.mark.parametrize(
    ("handler", "args", "where"),
    [
        ("pass_on", (10_001,), "argument 'word' of activity take"),
        ("answer", (10_001,), "result of update answer"),
    ],
)
async def test_what_a_turn_decides_holds_the_run_until_the_code_passes_less(codecs, handler, args, where):
    journal = MemoryJournal()
    async with limited(journal, codecs) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        with pytest.raises(WorkflowHeldError) as caught:
            await handle.execute_update(handler, *args)
        assert str(caught.value).endswith("PayloadTooLargeError: " + says(where, codecs))
        assert kinds(await handle.fetch_history())[-2:] == ["UpdateReceived", "RunStalled"]
        await handle.signal(Keeper.add, "end")

    @workflow.defn(name="Keeper")
    class Fixed(Keeper):
        @workflow.update
        async def pass_on(self, size: int) -> int:
            return await workflow.execute_activity(take, "short")

        @workflow.update
        def answer(self, size: int) -> str:
            return "short"

    async with limited(journal, codecs, Fixed) as runtime:
        assert await runtime.ref("k", Fixed).result() == 1
        assert "UpdateCompleted" in kinds(await runtime.ref("k", Fixed).fetch_history())


async def test_a_higher_limit_lets_it_go_on_too():
    journal = MemoryJournal()
    async with limited(journal, ()) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        with pytest.raises(WorkflowHeldError):
            await handle.execute_update(Keeper.pass_on, 10_001)
    async with limited(journal, (), limits=None) as runtime:
        handle = runtime.ref("k", Keeper)
        assert await handle.execute_update(Keeper.fetch, 10_001) == "x" * 10_001


@CODECS
async def test_many_values_that_only_together_are_large_hold_the_run(codecs):
    async with limited(MemoryJournal(), codecs) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        assert await handle.execute_update(Keeper.fan_out, 3, 9_000) == 27_000
        with pytest.raises(
            WorkflowHeldError, match=r"one turn of the workflow has 36,\d\d\d bytes \(9,0\d\d in argument"
        ):
            await handle.execute_update(Keeper.fan_out, 4, 9_000)


async def test_sizes_count_behind_compression():
    async with limited(MemoryJournal(), [ZstdCodec()]) as runtime:
        handle = await runtime.spawn(Keeper, LARGE * 100, id="k")
        await handle.signal(Keeper.add, "end", LARGE)
        assert await handle.result() == 1


@CODECS
async def test_large_values_are_warned_of_once(codecs, caplog):
    with caplog.at_level(logging.WARNING):
        async with limited(MemoryJournal(), codecs) as runtime:
            for number in range(3):
                handle = await runtime.spawn(Keeper, id=f"k{number}")
                await handle.signal(Keeper.add, FITS)
                await handle.execute_update(Keeper.pass_on, 9_000)
                await handle.execute_update(Keeper.fetch, 9_000)
    warned = sorted(
        r.getMessage().partition(" has ")[0] for r in caplog.records if "reads again" in r.getMessage()
    )
    assert warned == [
        "argument 'word' of activity take",
        "argument 'word' of signal Keeper.add",
        "result of activity make",
        "result of update fetch",
    ]

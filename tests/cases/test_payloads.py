"""Chapter H: sizes, codecs and types of stored values."""

import asyncio
from dataclasses import make_dataclass
from typing import Any

import msgspec
import pytest
from support.clock import ManualClock
from support.codecs import InThreads, Wrapping, encrypted, holding
from support.hosting import hosted, kinds

from everact import ApplicationError, RetryPolicy, WatchdogLimits, activity, workflow
from everact.exceptions import (
    ActivityError,
    ChildWorkflowError,
    PayloadTooLargeError,
    UpdateFailedError,
    WorkflowFailedError,
    WorkflowHeldError,
)
from everact.journal.memory_store import MemoryJournal
from everact.payloads import PayloadLimits, TypeUpgrade
from everact.testing import TestEnvironment

CODECS = pytest.mark.parametrize(
    "codecs",
    [list, lambda: [encrypted()], lambda: [InThreads()], lambda: [Wrapping()]],
    ids=["plain", "encrypted", "in threads", "async"],
)

# --- sizes

LIMITS = PayloadLimits(payload=1_000, record=10_000, warning=900)
FITS = "x" * 998  # and two quotes
OVER = FITS + "x"


@activity.defn
async def give(size: int) -> str:
    return "x" * size


@activity.defn
async def take(word: str) -> int:
    return len(word)


@workflow.defn
class Small:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, first: str = "") -> list[object]:
        await workflow.wait_condition(lambda: "end" in self.words)
        return [len(first), *map(len, self.words)]

    @workflow.signal
    def add(self, word: str) -> None:
        self.words.append(word)

    @workflow.update
    async def fetch(self, size: int) -> int:
        return len(await give(size))

    @workflow.update
    async def put(self, word: str) -> int:
        return len(word)

    @workflow.query
    def echo(self, word: str) -> int:
        return len(word)


def refused(where: str) -> Any:
    return pytest.raises(PayloadTooLargeError, match=rf"{where}.* has 1,001 bytes, and the limit is 1,000")


async def test_h01_one_byte_over_the_limit_is_refused_at_the_call_and_nothing_is_written():
    async with TestEnvironment(workflows=[Small], activities=[give], payload_limits=LIMITS) as env:
        with refused("argument 'first' of workflow Small"):
            await env.spawn(Small, OVER, id="small")
        assert await env.runtime.list_workflows() == []
        handle = await env.spawn(Small, FITS, id="small")
        before = kinds(await handle.fetch_history())
        with refused("argument 'word' of signal Small.add"):
            await handle.signal(Small.add, OVER)
        with refused("argument 'word' of update Small.put"):
            await handle.execute_update(Small.put, OVER)
        assert kinds(await handle.fetch_history()) == before
        await env.restart()
        assert await handle.execute_update(Small.put, FITS) == 998
        await handle.signal(Small.add, FITS)
        await handle.signal(Small.add, "end")
        assert await handle.result() == [998, 998, 3]


async def test_h01_a_result_over_the_limit_is_one_failed_attempt_and_the_run_goes_on():
    async with TestEnvironment(workflows=[Small], activities=[give], payload_limits=LIMITS) as env:
        handle = await env.spawn(Small)
        with pytest.raises(UpdateFailedError) as caught:
            await handle.execute_update(Small.fetch, 999)
        text = repr(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__cause__.__cause__)
        assert "result of activity give has 1,001 bytes, and the limit is 1,000" in text
        assert await handle.execute_update(Small.fetch, 998) == 998
        await handle.signal(Small.add, "end")
        assert await handle.result() == [0, 3]


@pytest.mark.parametrize("where", ["result", "argument", "child", "signal", "state"])
async def test_h01_a_turn_that_decides_too_much_is_held_until_its_code_is_mended(where):
    def version(size: int) -> Any:
        @workflow.defn(name="Large")
        class Large:
            @workflow.run
            async def run(self) -> str:
                word = "x" * size
                match where:
                    case "argument":
                        await take(word)
                    case "child":
                        await workflow.start_child_workflow("Small", word, parent_close_policy="abandon")
                    case "signal":
                        await workflow.get_external_workflow_handle("small").signal("add", word)
                    case "state":
                        workflow.publish("note", word)
                return word if where == "result" else "fine"

        return Large

    journal = MemoryJournal()
    options: dict[str, Any] = {"activities": [take], "payload_limits": LIMITS, "journal": journal}
    async with TestEnvironment(workflows=[version(999), Small], **options) as env:
        await env.spawn(Small, id="small")
        handle = await env.spawn("Large", id="large")
        with pytest.raises(WorkflowHeldError, match="1,001 bytes, and the limit is 1,000"):
            await handle.result()
    async with TestEnvironment(workflows=[version(998), Small], **options) as env:
        assert len(await env.ref("large").result()) == (998 if where == "result" else 4)


# --- failures and codecs

DETAILS = ["outer", {"secret": 1}], ["inner", [2, None]]


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
async def fails() -> None:
    raise failure()


def failure() -> ApplicationError:
    error = ApplicationError("outside", *DETAILS[0])
    error.__cause__ = ApplicationError("inside", *DETAILS[1])
    return error


@workflow.defn
class FailingChild:
    @workflow.run
    async def run(self) -> None:
        raise failure()


@workflow.defn
class Reads:
    @workflow.run
    async def run(self, what: str) -> list[object]:
        try:
            if what == "activity":
                await fails()
            else:
                await workflow.execute_child_workflow(FailingChild)
        except (ActivityError, ChildWorkflowError) as error:
            outer = error.__cause__
            assert isinstance(outer, ApplicationError)
            inner = outer.__cause__
            assert isinstance(inner, ApplicationError)
            await workflow.wait_for_signal("go on")
            return [list(outer.details), list(inner.details)]
        raise AssertionError

    @workflow.update
    async def refuse(self) -> None:
        raise failure()


def read(error: BaseException | None) -> list[object]:
    found = []
    while error is not None:
        if isinstance(error, ApplicationError):
            found.append(list(error.details))
        error = error.__cause__
    return found


@CODECS
@pytest.mark.parametrize("what", ["activity", "child"])
async def test_h03_details_come_back_at_every_level_of_causes(codecs, what):
    expected = [list(details) for details in DETAILS]
    async with TestEnvironment(workflows=[Reads, FailingChild], activities=[fails], codecs=codecs()) as env:
        handle = await env.spawn(Reads, what)
        with pytest.raises(UpdateFailedError) as caught:
            await handle.execute_update(Reads.refuse)
        assert read(caught.value) == expected
        await env.restart()  # and once more from the journal
        await handle.signal("go on")
        assert await handle.result() == expected
        with pytest.raises(WorkflowFailedError) as failed:
            await env.execute(FailingChild)
        assert read(failed.value) == expected


@CODECS
async def test_h03_heartbeat_details_take_the_same_way(codecs):
    seen = []

    @activity.defn(retry_policy=RetryPolicy(maximum_attempts=2))
    async def resumes() -> None:
        seen.append(activity.heartbeat_details(dict[str, int]))
        activity.heartbeat({"page": 7})
        if activity.info().attempt == 1:
            raise ValueError("again")

    @workflow.defn
    class Resumes:
        @workflow.run
        async def run(self) -> None:
            await resumes()

    async with TestEnvironment(workflows=[Resumes], activities=[resumes], codecs=codecs()) as env:
        await env.execute(Resumes)
    assert seen == [None, {"page": 7}]


SECRET = "n0t-for-the-store"


@workflow.defn
class Family:
    @workflow.run
    async def run(self, word: str) -> str:
        return await workflow.execute_child_workflow(Kept, word, id="child", memo={"note": word})


@workflow.defn
class Kept:
    @workflow.run
    async def run(self, word: str) -> str:
        await workflow.wait_for_signal("go on")
        return word


async def test_h05_the_store_lists_by_what_is_no_payload_and_sees_nothing_else():
    """Attributes to search by are not there yet; ids, types and statuses are what lists know."""
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[Family, Kept], codecs=[encrypted()], journal=journal) as env:
        handle = await env.spawn(Family, SECRET, id="parent", memo={"note": SECRET})
        while not await env.runtime.count_workflows(workflow_type="Kept"):  # its start goes through the codec
            await asyncio.sleep(0)
        for _ in range(2):
            for kind, name in (("Family", "parent"), ("Kept", "child")):
                (run,) = await env.runtime.list_workflows(workflow_type=kind, status="running")
                assert run.workflow_id == name
                assert (await env.ref(name).describe()).memo == {"note": SECRET}
            await env.restart()
        assert SECRET.encode() not in b"".join(map(_bytes, journal.records))
        await env.ref("child").signal("go on")
        assert await handle.result() == SECRET


def _bytes(record: object) -> bytes:
    return record if isinstance(record, bytes) else repr(record).encode()


# --- slow codecs

TIGHT = WatchdogLimits(warn_after=1, break_after=2)


@activity.defn(start_to_close_timeout=1, retry_policy=RetryPolicy(maximum_attempts=1))
async def measures(word: str) -> str:
    return word.upper()


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, word: str) -> str:
        return await measures(word + "call")


@pytest.mark.parametrize("seconds", [3, 3_000])
@pytest.mark.parametrize(
    ("word", "way"),
    [("slowcall", "encode"), ("slowcall", "decode"), ("SLOWCALL", "encode"), ("SLOWCALL", "decode")],
)
async def test_h06_the_time_of_a_slow_codec_is_nobodys(seconds, word, way, caplog):
    codec, clock = Wrapping(), ManualClock()
    codec.holds = holding(word, way)
    async with hosted(
        MemoryJournal(), Calls, activities=[measures], codecs=[codec], clock=clock, watchdog=TIGHT
    ) as runtime:
        slow = asyncio.create_task(runtime.execute(Calls, "slow", id="slow"))
        await codec.at_work.wait()
        assert await runtime.execute(Calls, "quick") == "QUICKCALL"  # nobody waits for another's codec
        clock.advance(seconds)
        pool = runtime._shard.dispatcher.pool
        pool.deadlines.check()
        pool.heartbeats.check()
        codec.gate.set()
        assert await slow == "SLOWCALL"
        assert "AttemptFailed" not in kinds(await runtime.ref("slow").fetch_history())
    assert "blocked" not in caplog.text


# --- types that have changed


def shop(hint: Any) -> Any:
    @workflow.defn(name="Shop")
    class Shop:
        @workflow.run
        async def run(self, given: hint) -> str:
            await workflow.wait_for_signal("end")
            return repr(given)

    return Shop


HUGE = "x" * 100_000
FIRST = make_dataclass("Order", [("item", str)])
SECOND = make_dataclass("Order", [("item", str), ("count", int)])
NUMBER = make_dataclass("Order", [("item", int)])


class Sent(msgspec.Struct, tag="sent"):
    body: str


class Posted(msgspec.Struct, tag="posted"):
    body: str


class Draft(msgspec.Struct, tag="draft"):
    body: str


@pytest.mark.parametrize(
    ("old", "new", "value", "message", "upgrade"),
    [
        (FIRST, SECOND, FIRST(HUGE), "missing required field 'count' of Order", lambda s: {"count": 1, **s}),
        (FIRST, NUMBER, FIRST(HUGE), "item", lambda s: {"item": len(s["item"])}),
        (Sent | Draft, Posted | Draft, Sent(HUGE), "Sent", None),
        (str, int, HUGE, "int", None),
        (list[str], list[int], [HUGE], r"\[0\]", None),
    ],
    ids=["new field", "other type", "renamed member", "scalar", "in a list"],
)
async def test_h07_a_value_that_no_longer_fits_holds_the_run_and_is_still_there(
    old, new, value, message, upgrade
):
    journal = MemoryJournal()
    async with TestEnvironment(workflows=[shop(old)], journal=journal) as env:
        await env.spawn("Shop", value, id="s")
    async with TestEnvironment(workflows=[shop(new)], journal=journal) as env:
        await env.ref("s").signal("end")
        with pytest.raises(WorkflowHeldError, match=message) as caught:
            await env.ref("s").result()
        text = str(caught.value)
        assert "argument 'given' of workflow Shop" in text
        assert len(text) < 2_000
        seen = await env.ref("s").describe()
        assert "argument 'given'" in f"{seen.failure} {seen.pause_reason}"
        assert len(repr(seen)) < 10_000
        started = next(iter(await env.ref("s").fetch_history())).event
        assert HUGE.encode() in started.args[0].data  # the raw value can be had
    if upgrade is not None:
        mended = TypeUpgrade(new, upgrade)
        async with TestEnvironment(workflows=[shop(new)], journal=journal, converters=[mended]) as env:
            assert (await env.ref("s").result()).startswith("Order(item=")
    else:
        async with TestEnvironment(workflows=[shop(old)], journal=journal) as env:
            assert await env.ref("s").result() == repr(value)

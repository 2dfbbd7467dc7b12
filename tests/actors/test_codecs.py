"""Whole runs with payload codecs: plain for code and callers, coded in the journal and in the fold."""

import asyncio
import logging
import subprocess
import sys
from datetime import timedelta

import pytest
from support.codecs import KEY, InThreads, Untouched, Wrapping, encrypted, holding
from support.hosting import hosted, kinds, settled, until

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.actors import appending
from everact.exceptions import (
    ActivityError,
    PayloadCodecError,
    RequestIdReusedError,
    UpdateFailedError,
    WorkflowFailedError,
    WorkflowHeldError,
    WorkflowTerminatedError,
)
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal
from everact.payloads import AesGcmCodec, PayloadCodec, TypeUpgrade, ZstdCodec

#: Stands in every value and every text that must not be readable.
SECRET = "Zanzibar"

WAYS = pytest.mark.parametrize("way", ["inline", "threads", "loop", "chain"])


def codecs_of(way):
    return {
        "inline": lambda: [encrypted()],
        "threads": lambda: [InThreads()],
        "loop": lambda: [encrypted(), Wrapping()],
        "chain": lambda: [ZstdCodec(smallest=1), encrypted()],
    }[way]()


class Own(Exception):
    """Its message has the secret."""


@activity.defn
async def greet(word: str) -> str:
    return f"{word} greeted"


@activity.defn(
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=1), maximum_attempts=2, jitter=0.0)
)
def fails(word: str) -> None:
    try:
        raise Own(f"inner {word}")
    except Own as inner:
        members = [ApplicationError(f"member {word}", {"member": word}), Own(f"other {word}")]
        group = ExceptionGroup(f"group {word}", members)
        error = ApplicationError(f"outer {word}", {"detail": word}, [word])
        error.__cause__ = group
        group.__cause__ = inner
        raise error from group


@workflow.defn
class Everything:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, word: str) -> str:
        said = await greet(word)
        try:
            await workflow.execute_activity(fails, word)
        except ActivityError as error:
            cause = error.__cause__
            assert isinstance(cause, ApplicationError)
            assert cause.details == ({"detail": word}, [word])
            assert str(cause) == f"outer {word}"
            group = cause.__cause__
            assert group.exceptions[0].details == ({"member": word},)
            assert str(group.exceptions[1]) == f"Own: other {word}"
            assert str(group.__cause__) == f"Own: inner {word}"
        background = asyncio.create_task(self.breaks(word), name="background")
        await workflow.sleep(0.001)
        assert background.done()
        await workflow.wait_condition(lambda: "end" in self.words)
        if "fail" in self.words:
            raise ApplicationError(f"left {word}", word)
        return said

    async def breaks(self, word: str) -> None:
        raise ApplicationError(f"background {word}")

    @workflow.signal
    def add(self, word: str) -> None:
        if word.startswith("bad"):
            raise ApplicationError(f"letter {word}")
        self.words.append(word)

    @workflow.update
    async def put(self, word: str) -> str:
        self.words.append(word)
        return f"put {word}"

    @put.validator
    def check(self, word: str) -> None:
        if word.startswith("no"):
            raise ValueError(f"refused {word}")

    @workflow.update
    def refuse(self, word: str) -> None:
        raise ApplicationError(f"update {word}", word)

    @workflow.query
    def get(self) -> list[str]:
        return self.words


def everything(journal, codecs, **options):
    return hosted(journal, Everything, activities=[greet, fails], codecs=codecs, **options)


async def live_it(runtime, *last):
    handle = await runtime.spawn(Everything, SECRET, id="e")
    await handle.signal(Everything.add, f"bad {SECRET}")
    assert await handle.execute_update(Everything.put, SECRET, request_id="r") == f"put {SECRET}"
    assert await handle.execute_update(Everything.put, SECRET, request_id="r") == f"put {SECRET}"
    with pytest.raises(RequestIdReusedError):
        await handle.execute_update(Everything.put, f"other {SECRET}", request_id="r")
    with pytest.raises(UpdateFailedError, match=f"update {SECRET}") as caught:
        await handle.execute_update(Everything.refuse, SECRET, request_id="f")
    assert caught.value.__cause__.details == (SECRET,)
    with pytest.raises(UpdateFailedError, match=f"update {SECRET}"):
        await handle.execute_update(Everything.refuse, SECRET, request_id="f")
    assert await handle.query(Everything.get) == [SECRET]
    description = await handle.describe()
    assert f"letter bad {SECRET}" in description.dead_letters[0].reason
    for word in last:
        await handle.signal(Everything.add, word)
    return handle


def bodies(runtime):
    """Every record of the journal, as bytes."""
    index = runtime._shard.index
    return [entry.body for row in index.newest_first() for entry in index.entries(row)]


async def stored(journal, *, encrypted=True):
    async with hosted(journal, codecs=[Untouched()] if encrypted else []) as runtime:
        return b"\n".join(bodies(runtime))


def in_fold(value, seen=None):
    """Every text and bytes in a fold."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for pair in value.items():
            for part in pair:
                yield from in_fold(part)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from in_fold(item)
    else:
        names = getattr(value, "__struct_fields__", getattr(type(value), "__slots__", ()))
        for name in names:
            yield from in_fold(getattr(value, name))


@WAYS
async def test_code_and_callers_see_plain_values_and_neither_journal_nor_fold_holds_them(way):
    journal = MemoryJournal()
    async with everything(journal, codecs_of(way)) as runtime:
        handle = await live_it(runtime)
        fold = b"\n".join(in_fold(runtime._shard.find("e").state))
        assert SECRET.encode() not in fold
        assert b"Everything" in fold
        await handle.signal(Everything.add, "end")
        assert await handle.result() == f"{SECRET} greeted"
        history = await handle.fetch_history()
        seen = set(kinds(history))
        assert SECRET in str([event.fields for event in history])
    expected = {
        "WorkflowStarted", "SignalReceived", "UpdateReceived", "ActivityScheduled", "ActivityCompleted",
        "AttemptFailed", "ActivityFailed", "TaskFailed", "UpdateCompleted", "UpdateFailed", "HandlerFailed",
        "WorkflowCompleted",
    }  # fmt: skip
    assert expected <= seen
    found = await stored(journal)
    assert SECRET.encode() not in found
    assert b"greet" in found and b"Everything" in found and b"everact.actors.errors.ApplicationError" in found


@WAYS
async def test_a_journal_is_carried_on_with_by_replay(way):
    """The next start decodes, replays, and answers as the first one did."""
    journal = MemoryJournal()
    async with everything(journal, codecs_of(way)) as runtime:
        await live_it(runtime)
    async with everything(journal, codecs_of(way)) as runtime:
        handle = runtime.ref("e", Everything)
        assert await handle.query(Everything.get) == [SECRET]
        assert await handle.execute_update(Everything.put, SECRET, request_id="r") == f"put {SECRET}"
        await handle.signal(Everything.add, "fail")
        await handle.signal(Everything.add, "end")
        with pytest.raises(WorkflowFailedError, match=f"left {SECRET}") as caught:
            await handle.result()
        assert caught.value.__cause__.details == (SECRET,)
    async with everything(journal, codecs_of(way)) as runtime:
        handle = runtime.ref("e", Everything)
        assert await handle.query(Everything.get) == [SECRET, "fail", "end"]
        assert f"left {SECRET}" in (await handle.describe()).failure
        with pytest.raises(WorkflowFailedError, match=f"left {SECRET}"):
            await handle.result()


PROGRAM = """
import asyncio, sys
sys.path[:0] = {path!r}
from support.codecs import encrypted
from everact import Runtime, workflow

@workflow.defn
class Keeper:
    def __init__(self): self.words = []
    @workflow.run
    async def run(self, word: str) -> list[str]:
        self.words.append(word)
        await workflow.wait_condition(lambda: "end" in self.words)
        return self.words
    @workflow.signal
    def add(self, word: str): self.words.append(word)

async def main(word):
    async with Runtime({journal!r}, workflows=[Keeper], codecs=[encrypted()], durability="os") as runtime:
        handle = await runtime.spawn(Keeper, "Zanzibar", id="k", if_running="attach")
        await handle.signal(Keeper.add, word)
        if word == "end":
            print(await handle.result())

asyncio.run(main(sys.argv[1]))
"""


def test_another_process_replays_it_and_the_files_hold_nothing_readable(tmp_path):
    journal = tmp_path / "journal"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(path=[p for p in sys.path if p], journal=str(journal)))
    for word in (f"{SECRET} 2", "end"):
        done = subprocess.run([sys.executable, program, word], capture_output=True, timeout=30, text=True)
        assert done.returncode == 0, done.stderr
    assert done.stdout == f"['{SECRET}', '{SECRET} 2', 'end']\n"
    for file in journal.iterdir():
        assert SECRET.encode() not in file.read_bytes()
    found = asyncio.run(stored(journal))
    assert SECRET.encode() not in found
    assert b"Keeper" in found


# --- keys


@workflow.defn
class Keeper:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self, first: str = "first") -> list[str]:
        self.words.append(first)
        await workflow.wait_condition(lambda: "end" in self.words)
        return self.words

    @workflow.signal
    def add(self, word: str) -> None:
        self.words.append(word)

    @workflow.update
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    @workflow.query
    def get(self) -> list[str]:
        return self.words


async def test_keys_change_while_runs_go_on_and_repeats_are_known():
    journal = MemoryJournal()
    keys = {"a": b"a" * 32, "b": b"b" * 32}
    async with hosted(journal, Keeper, codecs=[AesGcmCodec({"a": keys["a"]}, active="a")]) as runtime:
        handle = await runtime.spawn(Keeper, SECRET, id="k", request_id="start")
        await handle.execute_update(Keeper.put, "x", request_id="r")
    async with hosted(journal, Keeper, codecs=[AesGcmCodec(keys, active="b")]) as runtime:
        handle = await runtime.spawn(Keeper, SECRET, id="k", request_id="start")
        assert await handle.execute_update(Keeper.put, "x", request_id="r") == 2
        with pytest.raises(RequestIdReusedError):
            await handle.execute_update(Keeper.put, "y", request_id="r")
        await handle.signal(Keeper.add, "end")
        assert await handle.result() == [SECRET, "x", "end"]
    found = await stored(journal)
    assert b"\1\1a" in found and b"\1\1b" in found


async def test_digests_of_arguments_are_keyed():
    """Or a reader of the journal could try out what an encrypted argument is."""
    digests = []
    for key in (KEY, b"other key".ljust(32)):
        async with hosted(MemoryJournal(), Keeper, codecs=[AesGcmCodec({"k": key}, active="k")]) as runtime:
            await runtime.spawn(Keeper, "1234", id="k", request_id="r")
            digests.append(runtime._shard.find("k").state.started.digest)
    assert digests[0] != digests[1]


async def test_a_missing_key_holds_the_run_until_it_is_there():
    """H07: visibly, with the place and what to do."""
    journal = MemoryJournal()
    async with hosted(journal, Keeper, codecs=[encrypted()]) as runtime:
        handle = await runtime.spawn(Keeper, SECRET, id="k")
    other = AesGcmCodec({"other": KEY}, active="other")
    async with hosted(journal, Keeper, codecs=[other]) as runtime:
        handle = runtime.ref("k", Keeper)
        await handle.signal(Keeper.add, "late")
        await until(lambda: runtime._shard.find("k").is_stalled)
        with pytest.raises(WorkflowHeldError) as caught:
            await handle.result()
        assert str(caught.value).endswith(
            "PayloadCodecError: argument 'first' of workflow Keeper: payload codec AesGcmCodec: it is encrypted with "
            "the key 'k', which is not among the keys here: 'other'. Add that key to AesGcmCodec(keys=...); a key is "
            "needed for as long as the journal has payloads of it. The run is tried again when the Runtime starts next."
        )
        assert "argument 'first' of workflow Keeper" in (await handle.describe()).failure
        with pytest.raises(PayloadCodecError, match="the key 'k'"):
            await handle.fetch_history()
    both = AesGcmCodec({"other": KEY, "k": KEY}, active="other")
    async with hosted(journal, Keeper, codecs=[both]) as runtime:
        handle = runtime.ref("k", Keeper)
        await handle.signal(Keeper.add, "end")
        assert await handle.result() == [SECRET, "late", "end"]


class Refusing(PayloadCodec):
    """Raises in both ways, some calls deep."""

    def encode(self, payloads):
        return payloads

    def decode(self, payloads):
        return self._ask(payloads)

    def _ask(self, payloads):
        raise ConnectionError("the key service does not answer")


@pytest.mark.parametrize("inline", [True, False])
async def test_what_a_codec_raises_is_one_line_and_its_trace_is_for_debugging(inline, caplog):
    caplog.set_level(logging.DEBUG, "everact.runtime")
    journal = MemoryJournal()
    async with hosted(journal, Keeper) as runtime:
        await runtime.spawn(Keeper, "a", id="k")
    codec = Refusing()
    codec.inline_limit = 1000 * inline
    async with hosted(journal, Keeper, codecs=[codec]) as runtime:
        handle = runtime.ref("k", Keeper)
        await handle.signal(Keeper.add, "late")
        await until(lambda: runtime._shard.find("k").is_stalled)
        failure = (await handle.describe()).failure
    says = (
        "PayloadCodecError: argument 'first' of workflow Keeper: payload codec Refusing could not decode it: "
        "ConnectionError: the key service does not answer. The run is tried again when the Runtime starts next."
    )
    assert failure == says
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.getMessage().endswith(f") is held: {says}")
    (detail,) = [record for record in caplog.records if record.levelno == logging.DEBUG and record.exc_info]
    assert detail.getMessage() == "workflow 'k': a payload codec has failed"
    assert isinstance(detail.exc_info[1].__cause__, ConnectionError)


async def test_arguments_of_an_activity_that_cannot_be_decoded_hold_the_run_and_count_no_attempt():
    journal = MemoryJournal()
    calls = []

    @activity.defn(name="work")
    async def work(word: str) -> str:
        calls.append((word, activity.info().attempt))
        return word

    @workflow.defn
    class Worker:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(work, SECRET)

    codec = Wrapping()
    codec.breaks = holding(SECRET, "decode")
    async with hosted(journal, Worker, activities=[work], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Worker, id="w")
        with pytest.raises(
            WorkflowHeldError, match="argument 'word' of activity work: payload codec Wrapping could not"
        ):
            await handle.result()
        (pending,) = (await handle.describe()).pending_activities
        assert (pending.attempt, pending.last_failure, calls) == (1, None, [])
    async with hosted(journal, Worker, activities=[work], codecs=[Wrapping()]) as runtime:
        assert await runtime.ref("w", Worker).result() == SECRET
    assert calls == [(SECRET, 1)]


async def test_without_the_codec_the_run_is_held_with_its_name():
    journal = MemoryJournal()
    async with hosted(journal, Keeper, codecs=[encrypted()]) as runtime:
        await runtime.spawn(Keeper, SECRET, id="k")
    async with hosted(journal, Keeper, codecs=[Untouched()]) as runtime:
        handle = runtime.ref("k", Keeper)
        await handle.signal(Keeper.add, "late")
        with pytest.raises(WorkflowHeldError, match=r"unknown encoding 'aes-gcm'.*Runtime\(codecs="):
            await handle.result()


async def test_a_journal_from_before_is_read_where_plain_values_are_accepted():
    journal = MemoryJournal()
    async with everything(journal, ()) as runtime:
        await live_it(runtime)
    async with everything(journal, [encrypted()]) as runtime:
        await runtime.ref("e", Everything).signal(Everything.add, "x")
        with pytest.raises(WorkflowHeldError, match=r"stored without encryption \(as 'json'\)"):
            await runtime.ref("e", Everything).result()
    async with everything(journal, [encrypted(accept_plain=True)]) as runtime:
        await runtime.ref("e", Everything).signal(Everything.add, "end")
        assert await runtime.ref("e", Everything).result() == f"{SECRET} greeted"
        assert SECRET.encode() in bodies(runtime)[0]
        assert SECRET.encode() not in bodies(runtime)[-1]


async def test_a_run_whose_type_is_not_registered_is_held_as_without_codecs():
    journal = MemoryJournal()
    async with hosted(journal, Keeper, codecs=[encrypted()]) as runtime:
        await runtime.spawn(Keeper, id="k")
    for _ in range(2):
        async with hosted(journal, codecs=[encrypted()]) as runtime:
            handle = runtime.ref("k")
            with pytest.raises(WorkflowHeldError, match="not registered"):
                await handle.result()
            history = await handle.fetch_history()
            assert kinds(history).count("RunStalled") == 1
            await handle.signal("add", "end")
    async with hosted(journal, Keeper, codecs=[encrypted()]) as runtime:
        assert await runtime.ref("k", Keeper).result() == ["first", "end", "end"]


async def test_a_type_that_no_longer_fits_holds_the_run_until_there_is_an_upgrade():
    """H07 with the hook for old versions."""
    from dataclasses import make_dataclass

    first = make_dataclass("Order", [("item", str)])
    second = make_dataclass("Order", [("item", str), ("count", int)])

    def shop(order):
        class Shop:
            def __init__(self) -> None:
                self.done = False

            async def run(self, given) -> str:
                await workflow.wait_condition(lambda: self.done)
                return repr(given)

            def end(self) -> None:
                self.done = True

        Shop.run.__annotations__["given"] = order
        Shop.run, Shop.end = workflow.run(Shop.run), workflow.signal(Shop.end)
        return workflow.defn(name="Shop")(Shop)

    journal = MemoryJournal()
    old, new = shop(first), shop(second)
    async with hosted(journal, old, codecs=[encrypted()]) as runtime:
        await runtime.spawn(old, first(SECRET), id="s")
    async with hosted(journal, new, codecs=[encrypted()]) as runtime:
        handle = runtime.ref("s", new)
        await handle.signal(new.end)
        with pytest.raises(WorkflowHeldError, match=r"missing required field 'count' of Order"):
            await handle.result()
    upgrade = TypeUpgrade(second, lambda stored: {"count": 1, **stored})
    async with hosted(journal, new, codecs=[encrypted()], converters=[upgrade]) as runtime:
        assert await runtime.ref("s", new).result() == f"Order(item='{SECRET}', count=1)"


# --- slow codecs


async def test_a_slow_payload_holds_its_own_run_and_no_other_and_order_is_kept():
    """H06, R20: three seconds or three hours, the others go on."""
    codec = Wrapping()
    codec.holds = holding("slow")
    async with hosted(MemoryJournal(), Keeper, codecs=[codec]) as runtime:
        slow = await runtime.spawn(Keeper, id="slow-run")
        quick = await runtime.spawn(Keeper, id="quick-run")
        first = asyncio.create_task(slow.signal(Keeper.add, "slow"))
        await codec.at_work.wait()
        second = asyncio.create_task(slow.signal(Keeper.add, "second"))
        third = asyncio.create_task(slow.execute_update(Keeper.put, "third"))
        asked = asyncio.create_task(slow.query(Keeper.get))
        assert await quick.execute_update(Keeper.put, "quick") == 2
        assert not any(task.done() for task in (first, second, third, asked))
        codec.gate.set()
        assert await third == 4
        assert await asked == ["first", "slow", "second", "third"]
        assert [await first, await second] == [None, None]


async def test_a_turn_whose_outputs_are_slow_is_visible_only_when_it_is_durable():
    codec = Wrapping()
    codec.holds = holding("slow")

    @workflow.defn
    class Worker:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(greet, "slow")

        @workflow.signal
        def add(self, word: str) -> None:
            self.seen.append(word)

    async with hosted(MemoryJournal(), Worker, activities=[greet], codecs=[codec]) as runtime:
        spawned = asyncio.create_task(runtime.spawn(Worker, id="w"))
        await codec.at_work.wait()
        told = asyncio.create_task(runtime.ref("w", Worker).signal(Worker.add, "x"))
        described = asyncio.create_task(runtime.ref("w").describe())
        await asyncio.sleep(0)
        assert not (spawned.done() or told.done() or described.done())
        assert await runtime.list_workflows() == []
        codec.gate.set()
        assert await (await spawned).result() == "slow greeted"
        assert (await described).workflow_id == "w"


async def test_the_time_of_the_codecs_is_not_the_activitys(caplog):
    codec = Wrapping()
    codec.holds = holding("slow", "decode")
    from support.clock import ManualClock

    clock = ManualClock()

    @activity.defn(name="work", start_to_close_timeout=timedelta(seconds=1))
    async def work(word: str) -> str:
        return word

    @workflow.defn
    class Worker:
        @workflow.run
        async def run(self) -> str:
            return await workflow.execute_activity(work, "slow")

    async with hosted(MemoryJournal(), Worker, activities=[work], codecs=[codec], clock=clock) as runtime:
        handle = await runtime.spawn(Worker)
        await codec.at_work.wait()
        clock.advance(3600)
        runtime._shard.dispatcher.pool.deadlines.check()
        codec.gate.set()
        assert await handle.result() == "slow"
        assert "AttemptFailed" not in kinds(await handle.fetch_history())


async def test_terminate_waits_for_no_codec():
    codec = Wrapping()
    codec.holds = holding("slow")
    async with hosted(MemoryJournal(), Keeper, codecs=[codec]) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        told = asyncio.create_task(handle.signal(Keeper.add, "slow"))
        await codec.at_work.wait()
        await handle.terminate("enough")
        with pytest.raises(WorkflowTerminatedError, match="enough"):
            await handle.result()
        codec.gate.set()
        with pytest.raises(Exception, match="terminated"):
            await told


async def test_leaving_waits_for_codecs_no_longer_than_the_grace_time(caplog):
    codec = Wrapping()
    codec.holds = holding("slow")
    journal = MemoryJournal()
    async with hosted(journal, Keeper, codecs=[codec], grace=0.01) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        told = asyncio.create_task(handle.signal(Keeper.add, "slow"))
        await codec.at_work.wait()
    with pytest.raises(Exception, match="the Runtime was left"):
        await told
    assert "payload codecs have not answered within 0.01 s" in caplog.text
    async with hosted(journal, Keeper, codecs=[Wrapping()]) as runtime:
        assert await runtime.ref("k", Keeper).query(Keeper.get) == ["first"]


# --- codecs that fail


async def test_an_argument_that_cannot_be_encoded_is_the_callers_error_and_nothing_is_written():
    codec = Wrapping()
    codec.breaks = holding("bad")
    journal = MemoryJournal()
    async with hosted(journal, Keeper, codecs=[codec]) as runtime:
        with pytest.raises(PayloadCodecError) as caught:
            await runtime.spawn(Keeper, "bad", id="k")
        assert str(caught.value) == (
            "argument 'first' of workflow Keeper: payload codec Wrapping could not encode it: OSError: cannot encode "
            "b'\"bad\"'"
        )
        assert await runtime.list_workflows() == []
        handle = await runtime.spawn(Keeper, id="k")
        before = len(bodies(runtime))
        with pytest.raises(PayloadCodecError, match=r"argument 'word' of signal Keeper.add"):
            await handle.signal(Keeper.add, "bad")
        with pytest.raises(PayloadCodecError, match=r"argument 'word' of update Keeper.put"):
            await handle.execute_update(Keeper.put, "bad")
        assert len(bodies(runtime)) == before
        assert await handle.execute_update(Keeper.put, "good") == 2


@pytest.mark.parametrize("also_the_reason", [False, True])
async def test_a_result_that_cannot_be_encoded_holds_the_run_with_nothing_half_written(
    also_the_reason, caplog
):
    codec = Wrapping()
    codec.breaks = lambda payload, way: way == "encode" and (SECRET.encode() in payload.data)
    journal = MemoryJournal()

    @workflow.defn
    class Returns:
        @workflow.run
        async def run(self) -> str:
            return SECRET

    if not also_the_reason:  # the reason cites the value
        codec.breaks = lambda payload, way: way == "encode" and payload.data == f'"{SECRET}"'.encode()
    async with hosted(journal, Returns, codecs=[codec]) as runtime:
        handle = await runtime.spawn(Returns, id="r")
        with pytest.raises(WorkflowHeldError) as caught:
            await handle.result()
        if also_the_reason:
            assert "the payload codecs could not encode the reason either" in str(caught.value)
            assert "result of workflow Returns" in caplog.text
        else:
            assert "result of workflow Returns: payload codec Wrapping could not encode it" in str(
                caught.value
            )
        assert kinds(await handle.fetch_history()) == ["WorkflowStarted", "RunStalled"]
    assert SECRET.encode() not in await stored(journal, encrypted=False)
    async with hosted(journal, Returns, codecs=[Wrapping()]) as runtime:
        assert await runtime.ref("r", Returns).result() == SECRET


async def test_an_activitys_result_that_cannot_be_encoded_holds_the_run_and_is_asked_for_again_after():
    codec = Wrapping()
    codec.breaks = lambda payload, way: way == "encode" and payload.data == f'"{SECRET} greeted"'.encode()
    journal = MemoryJournal()

    @workflow.defn
    class Worker:
        @workflow.run
        async def run(self) -> str:
            return await greet(SECRET)

    async with hosted(journal, Worker, activities=[greet], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Worker, id="w")
        with pytest.raises(WorkflowHeldError, match="result of activity greet: payload codec Wrapping"):
            await handle.result()
    async with hosted(journal, Worker, activities=[greet], codecs=[Wrapping()]) as runtime:
        assert await runtime.ref("w", Worker).result() == f"{SECRET} greeted"


async def test_an_answer_that_cannot_be_decoded_is_the_callers_error():
    codec = Wrapping()
    async with hosted(MemoryJournal(), Keeper, codecs=[codec]) as runtime:
        handle = await runtime.spawn(Keeper, id="k")
        await handle.signal(Keeper.add, "end")
        codec.breaks = holding("end", "decode")
        with pytest.raises(
            PayloadCodecError, match="result of workflow Keeper: payload codec Wrapping could not decode"
        ):
            await handle.result()
        codec.breaks = lambda payload, way: False
        assert await handle.result() == ["first", "end"]


async def test_codecs_are_checked():
    with pytest.raises(TypeError, match="codecs must be PayloadCodec objects, not 7"):
        hosted(MemoryJournal(), Keeper, codecs=[7])
    with pytest.raises(TypeError, match="codecs must be a list"):
        hosted(MemoryJournal(), Keeper, codecs=encrypted())
    with pytest.raises(TypeError, match="payload_limits must be a PayloadLimits, not 7"):
        hosted(MemoryJournal(), Keeper, payload_limits=7)


async def test_without_codecs_a_record_is_its_own_coded_form(monkeypatch):
    async with hosted(MemoryJournal(), Keeper) as runtime:
        await runtime.spawn(Keeper, id="k")
        assert runtime._shard.find("k").coding is None
        seen = []
        append = appending.append

        def noted(actor, plain, coded, *args, **options):
            seen.append((plain, coded))
            append(actor, plain, coded, *args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(appending, "append", noted)
            await runtime.ref("k", Keeper).signal(Keeper.add, "x")
        assert all(plain is coded for plain, coded in seen)
        assert isinstance(seen[0][0], ev.Turn)
        await settled(runtime)


async def test_a_run_whose_codec_failed_goes_on_when_it_is_released_and_pays_once():
    """The result that could not be encoded is still there; what could not be decoded begins now."""
    codec = Wrapping()
    codec.breaks = lambda payload, way: way == "encode" and payload.data == f'"{SECRET} greeted"'.encode()
    ran = []

    @activity.defn
    async def counted(word: str) -> str:
        ran.append(word)
        return f"{word} greeted"

    @workflow.defn
    class Worker:
        @workflow.run
        async def run(self) -> list[str]:
            return [await counted(SECRET), await counted("second")]

    async with hosted(MemoryJournal(), Worker, activities=[counted], codecs=[codec]) as runtime:
        handle = await runtime.spawn(Worker, id="w")
        with pytest.raises(WorkflowHeldError, match="result of activity counted"):
            await handle.result()
        await handle.release("perhaps")
        with pytest.raises(WorkflowHeldError, match="result of activity counted"):
            await handle.result()
        assert ran == [SECRET]
        codec.breaks = lambda payload, way: way == "decode" and payload.data == b'"second"'
        await handle.release("the codec is back")
        with pytest.raises(WorkflowHeldError, match="argument 'word' of activity counted"):
            await handle.result(on_stall="raise")
        codec.breaks = lambda payload, way: False
        await handle.release("and so is its other half")
        assert await handle.result() == [f"{SECRET} greeted", "second greeted"]
    assert ran == [SECRET, "second"]

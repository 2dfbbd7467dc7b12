"""Continue-as-new (R21): one transaction ends a run and begins the next one, and nothing is lost between them."""

import asyncio
from dataclasses import replace

import pytest
from support.blocking import Blocked
from support.clock import ManualClock
from support.codecs import InThreads, Wrapping, encrypted
from support.hosting import gate, hosted, kinds, settled, tick, until

from everact import ApplicationError, activity, workflow
from everact.exceptions import (
    CommitUnknownError,
    PayloadEncodeError,
    ReadOnlyError,
    UpdateCutError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowContinuedAsNewError,
    WorkflowFailedError,
    WorkflowNotFoundError,
    WorkflowNotRegisteredError,
    WorkflowTerminatedError,
)
from everact.interceptors import (
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.export import export_runs
from everact.journal.fault_points import armed
from everact.journal.importing import import_runs
from everact.journal.memory_store import MemoryJournal, MemoryStore


@activity.defn
async def double(n: int) -> int:
    return 2 * n


@workflow.defn
class Counter:
    """D03: waits for a message, notes it, continues as new."""

    def __init__(self) -> None:
        self.unseen: list[int] = []

    @workflow.run
    async def run(self, seen: list[int], until: int, pause: float | None) -> list[int]:
        self.seen = seen
        await workflow.wait_condition(lambda: self.unseen)
        if pause is not None:
            await workflow.sleep(pause)
        seen.append(self.unseen.pop(0))
        if len(seen) == until:
            return seen
        if self.unseen:  # what was handled and not used is the author's to pass on
            seen += self.unseen
            if len(seen) >= until:
                return seen
        workflow.continue_as_new(seen, until, pause)

    @workflow.signal
    def add(self, n: int) -> None:
        self.unseen.append(n)

    @workflow.query
    def count(self) -> int:
        return len(self.seen)


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, left: int) -> str:
        if left:
            workflow.continue_as_new(left - 1)
        return f"{workflow.info().first_execution_run_id} {workflow.info().continued_run_id}"


async def chain(runtime, workflow_id):
    """The runs of an id as they are described, oldest first."""
    found = [one for one in await runtime.list_workflows() if one.workflow_id == workflow_id]
    return [
        await runtime.ref(f"everact://local/{workflow_id}/{one.run_id}").describe() for one in reversed(found)
    ]


@pytest.mark.parametrize("pause", [None, 0.0, 0.000_001])
async def test_two_hundred_messages_sent_as_fast_as_possible_arrive_in_order(pause):
    """D03"""
    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter, [], 200, pause)
        sending = [asyncio.create_task(handle.signal(Counter.add, n)) for n in range(200)]
        assert await handle.result() == list(range(200))
        await asyncio.gather(*sending)


async def test_messages_that_come_one_by_one_each_meet_another_run():
    journal = MemoryJournal()
    sent = 0
    while sent < 30:  # a start of the runtime in between, every few messages
        async with hosted(journal, Counter) as runtime:
            handle = await runtime.spawn(
                Counter, [], 30, None, id="counter", if_running="attach", if_closed="attach"
            )
            for n in range(sent, sent + 7):
                if n < 30:
                    await handle.signal(Counter.add, n)
            sent += 7
            await settled(runtime)
    async with hosted(journal, Counter) as runtime:
        assert await runtime.ref("counter", Counter).result() == list(range(30))
        runs = await chain(runtime, "counter")
    assert [one.status for one in runs] == [*["continued_as_new"] * 29, "completed"]


async def test_the_chain_can_be_seen_from_each_of_its_runs():
    async with hosted(MemoryJournal(), Loop) as runtime:
        handle = await runtime.spawn(Loop, 2, id="a")
        first_said, before_said = (await handle.result()).split()
        one, two, three = await chain(runtime, "a")
        assert handle.run_id == one.run_id == first_said
        assert before_said == two.run_id
        assert (one.continued_from, one.continued_to) == (None, two.run_id)
        assert (two.continued_from, two.continued_to) == (one.run_id, three.run_id)
        assert (three.continued_from, three.continued_to) == (two.run_id, None)
        assert {one.first_run_id, two.first_run_id, three.first_run_id} == {one.run_id}
        assert kinds(await handle.fetch_history()) == ["WorkflowStarted", "WorkflowContinuedAsNew"]
        with pytest.raises(WorkflowContinuedAsNewError, match=f"goes on as run {two.run_id}") as caught:
            await handle.result(follow_runs=False)
        assert caught.value.new_run_id == two.run_id
        assert (await runtime.ref("a").describe()).run_id == three.run_id
        assert await runtime.count_workflows(status="continued_as_new") == 2


async def test_the_end_and_the_beginning_are_one_commit():
    async with hosted(MemoryJournal(), Loop) as runtime:
        blocked = Blocked()
        with armed("journal.commit.before", blocked):
            starting = asyncio.create_task(runtime.spawn(Loop, 1, id="a"))
            await asyncio.to_thread(blocked.reached.wait)
            blocked.go.set()
            await starting
        await runtime.ref("a").result()
        by_run = {}
        for sequence, entries in runtime._shard.store.scan():
            for entry in entries:
                by_run.setdefault(entry.run_key, []).append(sequence)
        assert by_run[1][-1] == by_run[2][0]


@workflow.defn
class Told:
    """Continues as new from its handlers, with what it knows by then."""

    def __init__(self) -> None:
        self.over = False
        self.noted: list[str] = []

    @workflow.run
    async def run(self, noted: list[str]) -> list[str]:
        self.noted = noted + self.noted
        try:
            await workflow.wait_condition(lambda: self.over)
        finally:
            self.noted.append("finally")
        return self.noted

    @workflow.signal
    def note(self, text: str) -> None:
        self.noted.append(text)

    @workflow.signal
    def again(self) -> None:
        workflow.continue_as_new(self.noted)

    @workflow.signal
    async def again_later(self) -> None:
        await asyncio.sleep(0)
        workflow.continue_as_new(self.noted)

    @workflow.update
    def ask_again(self) -> str:
        workflow.continue_as_new(self.noted)

    @workflow.update
    async def ask_again_later(self) -> str:
        await asyncio.sleep(0)
        workflow.continue_as_new(self.noted)

    @workflow.update
    async def wait(self) -> str:
        await workflow.wait_condition(lambda: self.over)
        return "over"

    @workflow.update
    def say(self, text: str) -> str:
        self.noted.append(text)
        return text

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def all(self) -> list[str]:
        return self.noted

    @workflow.query
    def wrong(self) -> None:
        workflow.continue_as_new([])

    @say.validator
    def check(self, text: str) -> None:
        if text == "wrong":
            workflow.continue_as_new([])


@pytest.mark.parametrize("handler", [Told.again, Told.again_later])
async def test_a_signal_handler_ends_the_run_and_nothing_of_main_runs(handler):
    async with hosted(MemoryJournal(), Told) as runtime:
        handle = await runtime.spawn(Told, [], id="a")
        await handle.signal(Told.note, "one")
        await handle.signal(handler)
        await handle.signal(Told.note, "two")
        await handle.signal(Told.end)
        assert await handle.result() == ["one", "two", "finally"]
        assert [one.status for one in await chain(runtime, "a")] == ["continued_as_new", "completed"]


@pytest.mark.parametrize("handler", [Told.ask_again, Told.ask_again_later])
async def test_callers_of_updates_in_flight_are_cut(handler):
    async with hosted(MemoryJournal(), Told) as runtime:
        handle = await runtime.spawn(Told, [], id="a")
        waiting = asyncio.create_task(handle.execute_update(Told.wait))
        await until(lambda: runtime._shard.find("a").state.updates)
        with pytest.raises(UpdateCutError, match="'a' continued as new before update 'ask_again"):
            await handle.execute_update(handler)
        with pytest.raises(
            UpdateCutError, match="'a' continued as new before update 'wait' was done: send it"
        ):
            await waiting
        await handle.signal(Told.end)
        assert await handle.result() == ["finally"]


async def test_queries_and_validators_must_not():
    async with hosted(MemoryJournal(), Told) as runtime:
        handle = await runtime.spawn(Told, [])
        with pytest.raises(Exception, match="continue_as_new") as caught:
            await handle.query(Told.wrong)
        assert isinstance(caught.value.__cause__, ReadOnlyError)
        with pytest.raises(Exception, match="continue_as_new"):
            await handle.execute_update(Told.say, "wrong")
        assert await handle.query(Told.all) == []


async def test_what_was_received_and_not_delivered_goes_with_the_run_in_order():
    """Of a run that is paused, all of it: messages, an update whose caller waits, a cancel; and the pause."""
    journal = MemoryJournal()
    async with hosted(journal, Told) as runtime:
        handle = await runtime.spawn(Told, [], id="a", memo={"by": "me"})
        await handle.pause("look")
        await handle.signal(Told.note, "one")
        await handle.signal(Told.again)
        await handle.signal(Told.note, "two", request_id="q")
        saying = asyncio.create_task(handle.execute_update(Told.say, "three", request_id="r"))
        await until(lambda: len(runtime._shard.find("a").state.unread) == 4)
        await handle.cancel("enough")
        await handle.resume()
        assert await saying == "three"
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await handle.result()
        one, two = await chain(runtime, "a")
        assert (one.status, two.status) == ("continued_as_new", "cancelled")
        assert one.dead_letters == ()
        assert two.memo == {"by": "me"}
        assert kinds(await runtime.ref("a").fetch_history())[:4] == [
            "WorkflowStarted",
            "SignalReceived",
            "UpdateReceived",
            "CancelRequested",
        ]
        # It is known by its request id, as if it had never moved.
        assert await runtime.ref("a", Told).execute_update(Told.say, "three", request_id="r") == "three"
        with pytest.raises(WorkflowClosedError):
            await handle.signal(Told.note, "late")
    async with hosted(journal, Told) as runtime:
        assert await runtime.ref("a", Told).execute_update(Told.say, "three", request_id="r") == "three"
        await runtime.ref("a", Told).signal(Told.note, "two", request_id="q")


@workflow.defn
class Pausing:
    """Continues as new in the turn in which a message comes that asks for it, while it is paused."""

    @workflow.run
    async def run(self, n: int) -> int:
        self.go = False
        await workflow.wait_condition(lambda: self.go)
        if n:
            workflow.continue_as_new(n - 1)
        return n

    @workflow.signal
    def next(self) -> None:
        self.go = True


async def test_a_pause_that_comes_before_the_end_is_seen_goes_with_the_run():
    async with hosted(MemoryJournal(), Pausing) as runtime:
        handle = await runtime.spawn(Pausing, 1, id="a")
        actor = runtime._shard.find("a")
        # Both in the mailbox when the turn comes: the pause acts at receipt, so the signal waits; then resume.
        sending = asyncio.create_task(handle.signal(Pausing.next))
        pausing = asyncio.create_task(handle.pause("hold"))
        await asyncio.gather(sending, pausing)
        assert (await handle.describe()).status == "paused"
        assert runtime._shard.find("a") is actor
        await handle.resume()
        await until(lambda: runtime._shard.find("a") is not actor)
        await handle.signal(Pausing.next)
        assert await handle.result() == 0


@workflow.defn
class Shielded:
    """Has not seen its cancel when it continues as new: its await cannot be cancelled."""

    @workflow.run
    async def run(self, n: int) -> str:
        if n == 0:
            await workflow.sleep(3600)
        self.go = asyncio.get_running_loop().create_future()
        inner = asyncio.ensure_future(self.wait())
        while not inner.done():
            try:
                await asyncio.shield(inner)
            except asyncio.CancelledError:
                if n == 2:  # seen, and passed over
                    continue
                raise
        workflow.continue_as_new(n - 1)

    async def wait(self) -> None:
        await self.go

    @workflow.signal
    def next(self) -> None:
        self.go.set_result(None)

    @workflow.signal
    def again(self, n: int) -> None:
        workflow.continue_as_new(n)


async def test_a_cancel_that_was_seen_stays_with_the_run_that_saw_it():
    async with hosted(MemoryJournal(), Shielded) as runtime:
        handle = await runtime.spawn(Shielded, 2, id="a")
        await handle.cancel("first")
        await settled(runtime)
        await handle.signal(Shielded.next)
        await settled(runtime)
        assert not (await runtime.ref("a").describe()).cancel_requested
        assert await runtime.count_workflows(status="running") == 1
        await handle.terminate()


stopping = gate("stopping", cancellation_type="wait_cancellation_completed")


@workflow.defn
class WaitsForTheEnd:
    @workflow.run
    async def run(self, n: int) -> str:
        if n:
            await workflow.execute_activity(stopping.fn, "x", cancellation_type="wait_cancellation_completed")
        await workflow.sleep(3600)
        return "?"

    @workflow.signal
    def again(self) -> None:
        workflow.continue_as_new(0)


async def test_a_cancel_that_was_not_seen_goes_with_the_run():
    """Its await is for an activity that is still asked to stop: nothing was thrown into main yet."""
    stays = asyncio.Event()

    @activity.defn(name="stopping")
    async def stubborn(label: str) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await stays.wait()
            raise
        return label

    journal = MemoryJournal()
    async with hosted(journal, WaitsForTheEnd, activities=[stubborn]) as runtime:
        handle = await runtime.spawn(WaitsForTheEnd, 1, id="a")
        await settled(runtime)
        await handle.cancel("enough")
        await settled(runtime)
        await handle.signal(WaitsForTheEnd.again)
        with pytest.raises(WorkflowCancelledError, match="enough"):
            await handle.result()
        assert [one.status for one in await chain(runtime, "a")] == ["continued_as_new", "cancelled"]
        stays.set()


@workflow.defn
class SetsLater:
    def __init__(self) -> None:
        self.got: list[str] = []

    @workflow.run
    async def run(self, n: int) -> list[str]:
        if n == 0:
            self.got = []
            workflow.set_signal_handler("later", self.later)
            return self.got
        await workflow.wait_condition(lambda: "go" in self.got)
        workflow.continue_as_new(n - 1)

    def later(self, text: str) -> None:
        self.got.append(text)

    @workflow.signal
    def go(self) -> None:
        self.got.append("go")


@pytest.mark.parametrize("restart", [False, True])
async def test_signals_that_wait_for_a_handler_go_with_the_run(restart):
    journal = MemoryJournal()
    async with hosted(journal, SetsLater) as runtime:
        handle = await runtime.spawn(SetsLater, 2, id="a")
        await handle.signal("later", "one")
        await handle.signal("later", "two")
        await handle.signal(SetsLater.go)
        await settled(runtime)
        await handle.signal("later", "three")
        assert (await runtime.ref("a").describe()).backlog == 3
        if not restart:
            await handle.signal(SetsLater.go)
            assert await handle.result() == ["one", "two", "three"]
    if restart:
        async with hosted(journal, SetsLater) as runtime:
            await runtime.ref("a", SetsLater).signal(SetsLater.go)
            assert await runtime.ref("a", SetsLater).result() == ["one", "two", "three"]
            assert [one.dead_letters for one in await chain(runtime, "a")] == [(), (), ()]


async def test_what_the_run_waits_for_is_cancelled():
    slow = gate("slow")

    @workflow.defn
    class Busy:
        @workflow.run
        async def run(self, n: int) -> int:
            if n == 0:
                return 0
            await asyncio.gather(workflow.execute_activity(slow.fn, "x"), workflow.sleep(5))
            return -1

        @workflow.signal
        def again(self) -> None:
            workflow.continue_as_new(0)

    clock = ManualClock()
    async with hosted(MemoryJournal(), Busy, activities=[slow.fn], clock=clock) as runtime:
        handle = await runtime.spawn(Busy, 1, id="a")
        await until(lambda: slow.calls)
        await handle.signal(Busy.again)
        assert await handle.result() == 0
        await until(lambda: not runtime._shard.dispatcher.pool._running)
        await tick(runtime, clock, 10)
        one, _two = await chain(runtime, "a")
        assert (one.pending_activities, one.timers) == ((), ())


async def test_finally_blocks_run_when_main_says_it_and_its_swallowing_goes_on():
    @workflow.defn
    class Cleans:
        @workflow.run
        async def run(self, n: int) -> str:
            if n == 0:
                return "second"
            try:
                try:
                    workflow.continue_as_new(n + 1)
                except workflow.ContinueAsNewError:
                    pass
                workflow.continue_as_new(n - 1)
            finally:
                await double(1)

    async with hosted(MemoryJournal(), Cleans, activities=[double]) as runtime:
        handle = await runtime.spawn(Cleans, 1)
        assert await handle.result() == "second"
        assert "ActivityCompleted" in kinds(await handle.fetch_history())


@pytest.mark.parametrize("how", ["gather", "group", "init"])
async def test_it_may_leave_through_a_task_a_group_or_the_constructor(how):
    @workflow.defn
    class Deep:
        @workflow.init
        def __init__(self, n: int) -> None:
            if how == "init" and n:
                workflow.continue_as_new(n - 1)

        async def deep(self, n: int) -> None:
            workflow.continue_as_new(n - 1)

        @workflow.run
        async def run(self, n: int) -> int:
            if n == 0:
                return n
            if how == "gather":
                await asyncio.gather(self.deep(n), workflow.sleep(10))
            async with asyncio.TaskGroup() as group:
                group.create_task(workflow.sleep(10))
                group.create_task(self.deep(n))
            return -1

    async with hosted(MemoryJournal(), Deep) as runtime:
        assert await runtime.execute(Deep, 2) == 0


@workflow.defn
class Other:
    @workflow.run
    async def run(self, text: str) -> str:
        return f"other {text} {sorted(workflow.memo())} {workflow.memo().get('a')}"


@workflow.defn
class Turns:
    @workflow.run
    async def run(self, how: str) -> str:
        match how:
            case "class":
                workflow.continue_as_new("x", workflow=Other)
            case "run method":
                workflow.continue_as_new("x", workflow=Other.run)
            case "name":
                workflow.continue_as_new("x", workflow="Other", memo={"a": 1})
            case "unknown":
                workflow.continue_as_new(workflow="Nothing")
            case "activity":
                workflow.continue_as_new(workflow=how.upper)  # type: ignore[call-overload]
            case "arguments":
                workflow.continue_as_new(1, 2)
            case "type":
                workflow.continue_as_new(object())
            case "wait":
                workflow.continue_as_new(how, backoff_start_interval=-1)
            case "policy":
                workflow.continue_as_new(how, retry_policy=3)
        return "?"


async def test_the_new_run_may_be_of_another_type_and_have_another_memo():
    async with hosted(MemoryJournal(), Turns, Other) as runtime:
        assert await runtime.execute(Turns, "class", memo={"b": 2}) == "other x ['b'] None"
        assert await runtime.execute(Turns, "run method", memo={"b": 2}) == "other x ['b'] None"
        assert await runtime.execute(Turns, "name", memo={"b": 2}) == "other x ['a'] 1"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("unknown", "workflow type 'Nothing' is not registered with this runtime; known: Other, Turns"),
        ("activity", "str.upper is neither a workflow class, nor the run method of one, nor the name of"),
        ("arguments", "takes 1 argument"),
        ("type", "argument 'how' of workflow Turns"),
        ("wait", "backoff_start_interval must be between 0 and 100 years"),
        ("policy", "retry_policy must be a RetryPolicy, not 3"),
    ],
)
async def test_what_does_not_fit_is_refused_at_the_call(how, text, caplog):
    async with hosted(MemoryJournal(), Turns, Other) as runtime:
        handle = await runtime.spawn(Turns, how, id="a")
        with pytest.raises(WorkflowFailedError, match=text):
            await handle.result()
        assert await runtime.count_workflows() == 1
    assert issubclass(PayloadEncodeError, Exception) and issubclass(WorkflowNotRegisteredError, Exception)


async def test_the_new_run_can_begin_later_and_is_cancelled_before():
    @workflow.defn
    class Later:
        @workflow.run
        async def run(self, n: int) -> int:
            if n == 0:
                return n
            workflow.continue_as_new(n - 1, backoff_start_interval=60)

        @workflow.signal
        def note(self) -> None:
            pass

    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Later, clock=clock) as runtime:
        handle = await runtime.spawn(Later, 2, id="a")
        await settled(runtime)
        seen = await runtime.ref("a").describe()
        assert (seen.status, seen.history_length) == ("running", 1)
        assert seen.begins_at is not None
        assert "its time to begin" in seen.waiting_on
        await handle.signal(Later.note)
        await tick(runtime, clock, 61)
        assert len(await chain(runtime, "a")) == 3
    async with hosted(journal, Later, clock=clock) as runtime:
        await settled(runtime)
        assert await runtime.count_workflows(status="running") == 1
        await runtime.ref("a").cancel("no more")
        with pytest.raises(WorkflowCancelledError, match="no more"):
            await runtime.ref("a").result()
        await tick(runtime, clock, 61)
        assert len(await chain(runtime, "a")) == 3


async def test_a_failed_commit_undoes_the_end_and_the_beginning():
    """R5: mail that no turn has handled is still there, and who waits for the result waits on."""

    def fail():
        raise OSError("the disk says no")

    async with hosted(MemoryJournal(), Counter) as runtime:
        handle = await runtime.spawn(Counter, [], 5, None, id="a")
        waiting = asyncio.create_task(handle.result())
        await settled(runtime)
        newest = asyncio.create_task(runtime.ref("a").result())
        for n in range(4):
            with armed("journal.commit.before", fail), pytest.raises(CommitUnknownError):
                await handle.signal(Counter.add, n, request_id=f"q{n}")
            await handle.signal(Counter.add, n, request_id=f"q{n}")
        await handle.signal(Counter.add, 4)
        assert await waiting == await newest == [0, 1, 2, 3, 4]


async def test_a_chain_of_which_runs_were_purged_is_still_found_by_its_first_run():
    journal = MemoryJournal()
    async with hosted(journal, Counter) as runtime:
        handle = await runtime.spawn(Counter, [], 4, None, id="a", request_id="start")
        for n in range(3):
            await handle.signal(Counter.add, n)
            await settled(runtime)
        assert await runtime.purge(status="continued_as_new") == 3
        assert await runtime.count_workflows() == 1
        assert await handle.query(Counter.count) == 3
        again = await runtime.spawn(Counter, [], 4, None, id="a", request_id="start")
        assert again.run_id == (await runtime.ref("a").describe()).run_id
        with pytest.raises(WorkflowNotFoundError):
            await handle.describe()
        await handle.signal(Counter.add, 3)
        assert await handle.result() == [0, 1, 2, 3]
        with pytest.raises(WorkflowClosedError):
            await handle.signal(Counter.add, 4)


async def test_a_later_chain_of_the_same_id_is_not_taken_for_this_one():
    async with hosted(MemoryJournal(), Loop) as runtime:
        first = await runtime.spawn(Loop, 3, id="a")
        said = await first.result()
        second = await runtime.spawn(Loop, 1, id="a")
        assert await second.result() != said
        assert await first.result() == said


async def test_a_start_that_replaces_the_run_replaces_whatever_that_has_become(keeps_code):
    async with hosted(MemoryJournal(), Told) as runtime:
        old = await runtime.spawn(Told, [], id="a")
        again = asyncio.create_task(old.signal(Told.again))
        replacing = asyncio.create_task(runtime.spawn(Told, ["new"], id="a", if_running="replace"))
        await again
        new = await replacing
        assert await new.query(Told.all) == ["new"]
        with pytest.raises(WorkflowTerminatedError, match="replaced"):
            await old.result()
        assert (await runtime.ref("a").describe()).run_id == new.run_id


async def test_terminate_ends_the_chain():
    async with hosted(MemoryJournal(), Told) as runtime:
        handle = await runtime.spawn(Told, [], id="a")
        await handle.signal(Told.again)
        await handle.terminate("over")
        with pytest.raises(WorkflowTerminatedError, match="over"):
            await handle.result()
        assert [one.status for one in await chain(runtime, "a")] == ["continued_as_new", "terminated"]


@pytest.mark.parametrize("codec", [encrypted, InThreads, Wrapping])
async def test_with_payload_codecs_nothing_is_lost_either(codec):
    codec = codec()
    journal = MemoryJournal()
    async with hosted(journal, Counter, codecs=[codec]) as runtime:
        handle = await runtime.spawn(Counter, [], 40, None, id="a", memo={"x": "secret"})
        sending = [asyncio.create_task(handle.signal(Counter.add, n)) for n in range(40)]
        assert await handle.result() == list(range(40))
        await asyncio.gather(*sending)
        assert (await runtime.ref("a").describe()).memo == {"x": "secret"}


async def test_the_suggestion_comes_with_the_length_of_the_history(monkeypatch):
    monkeypatch.setattr("everact.actors.workflow_info.SUGGESTED_EVENTS", 6)

    @workflow.defn
    class Long:
        @workflow.run
        async def run(self) -> list[tuple[int, bool]]:
            seen = []
            for _ in range(3):
                info = workflow.info()
                seen.append((info.history_length, info.continue_as_new_suggested))
                await double(1)
            return seen

    async with hosted(MemoryJournal(), Long, activities=[double]) as runtime:
        handle = await runtime.spawn(Long)
        assert await handle.result() == [(1, False), (3, False), (5, False)]
        events = await handle.fetch_history()
        assert [e.number for e in events if e.kind == "ActivityCompleted"] == [3, 5, 7]
    assert ApplicationError is not None


class Tags(Interceptor):
    """Counts the hops of a chain in a header."""

    def intercept_workflow(self, next):
        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound):
                super().init(Outbound(outbound))

            async def execute_workflow(self, input):
                hops = input.headers.get("hops")
                args = [*input.args]
                if hops is not None:
                    args[1] = f"{args[1]} {workflow.payload_converter().decode(hops)}"
                return await self.next.execute_workflow(replace(input, args=args))

        class Outbound(WorkflowOutboundInterceptor):
            def continue_as_new(self, input):
                hops = input.headers.get("hops")
                count = 0 if hops is None else workflow.payload_converter().decode(hops)
                headers = {**input.headers, "hops": workflow.payload_converter().encode(count + 1)}
                self.next.continue_as_new(replace(input, headers=headers))

        return Inbound(next)


@pytest.mark.parametrize("interceptors", [[], [Tags()]])
@pytest.mark.parametrize("codecs", [[], [encrypted]])
async def test_headers_go_with_the_run_and_interceptors_may_change_them(interceptors, codecs):
    @workflow.defn
    class Hops:
        @workflow.run
        async def run(self, left: int, said: str) -> str:
            if left:
                workflow.continue_as_new(left - 1, said)
            return said

    options = {"codecs": [codec() for codec in codecs], "interceptors": interceptors}
    async with hosted(MemoryJournal(), Hops, **options) as runtime:
        assert await runtime.execute(Hops, 3, "said") == ("said 1 2 3" if interceptors else "said")


async def test_a_chain_that_went_on_while_the_clock_was_set_back_can_be_imported():
    clock = ManualClock()
    journal = MemoryJournal()
    async with hosted(journal, Counter, clock=clock) as runtime:
        handle = await runtime.spawn(Counter, [], 3, None, id="count")
        for number in range(3):
            clock.set_back(3600)
            await handle.signal(Counter.add, number)
            await settled(runtime)
        assert await handle.result() == [0, 1, 2]
    store = MemoryStore(journal)
    documents = list(export_runs(store, left_out=pytest.fail, damaged=pytest.fail, moved=pytest.fail))
    assert import_runs(MemoryStore(MemoryJournal()), documents).runs == 3

"""What workflow code sees is its journal: nothing of its callers, of other runs, or of how often it was replayed."""

import asyncio
import contextvars
import logging
import random
import uuid
from datetime import timedelta

import pytest
import uvloop
from support.blocking import Blocked
from support.hosting import gate, hosted, settled, until

from everact import activity, workflow
from everact.exceptions import WorkflowQuarantinedError
from everact.journal.fault_points import armed
from everact.journal.memory_store import MemoryJournal

CALLER = contextvars.ContextVar("caller", default="nobody")


def talker():
    @workflow.defn(name="Talker")
    class Talker:
        def __init__(self) -> None:
            self.log: list[str] = []

        @workflow.run
        async def run(self) -> None:
            self.log.append(CALLER.get())
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def hear(self, text: str) -> None:
            self.log += [CALLER.get(), str(activity.in_activity())]
            CALLER.set(text)

        @workflow.signal
        async def hear_later(self) -> None:
            self.log.append(CALLER.get())
            CALLER.set("mine")

        @workflow.query
        def look(self) -> list[str]:
            return [*self.log, CALLER.get()]

    return Talker


async def test_context_variables_of_a_caller_do_not_reach_the_run():
    """Live and replayed are the same; a run keeps what its own handlers set, and no other run sees it."""
    journal = MemoryJournal()
    Talker = talker()

    @activity.defn
    async def send(workflow_id: str) -> None:
        await activity.client().ref(workflow_id).signal("hear", "from an activity")

    @workflow.defn
    class Sender:
        @workflow.run
        async def run(self, workflow_id: str) -> None:
            await send(workflow_id)

    async with hosted(journal, Talker, Sender, activities=[send]) as runtime:
        CALLER.set("a user's task")
        handle = await runtime.spawn(Talker.run, id="a")
        other = await runtime.spawn(Talker.run, id="b")
        await handle.signal(Talker.hear, "x")
        await runtime.execute(Sender.run, "a")
        await handle.signal(Talker.hear_later)
        live = await handle.query(Talker.look)
        assert await other.query(Talker.look) == ["nobody", "nobody"]
        assert CALLER.get() == "a user's task"
    async with hosted(journal, Talker, Sender, activities=[send]) as runtime:
        assert await runtime.ref("a", Talker).query(Talker.look) == live
    assert live == ["nobody", "nobody", "False", "x", "False", "from an activity", "from an activity"]


# --- time, ids, chance --------------------------------------------------------------------------------------------


def reader():
    @workflow.defn(name="Reader")
    class Reader:
        def __init__(self) -> None:
            self.log: list[str] = []

        def note(self) -> None:
            about = workflow.info()
            self.log += [
                workflow.now().isoformat(),
                repr(workflow.time()),
                str(workflow.uuid4()),
                repr(workflow.random().random()),
                repr(workflow.random("other").randint(0, 10**9)),
                f"{about.workflow_id} {about.run_id} {about.workflow_type} {about.start_time}",
            ]

        @workflow.run
        async def run(self) -> None:
            self.note()
            await workflow.sleep(0.002)
            self.note()
            await workflow.wait_condition(lambda: False)

        @workflow.signal
        def poke(self) -> None:
            self.note()

        @workflow.query
        def look(self) -> list[str]:
            workflow.uuid4()
            workflow.random().random()
            return self.log

        @workflow.query
        def draw(self) -> list[str]:
            return [
                str(workflow.uuid4()),
                repr(workflow.random().random()),
                repr(workflow.random("x").random()),
            ]

    return Reader


async def test_time_ids_and_chance_are_the_same_when_replayed_and_queries_shift_nothing():
    journal = MemoryJournal()
    Reader = reader()
    async with hosted(journal, Reader) as runtime:
        handle = await runtime.spawn(Reader.run, id="a")
        await until(lambda: not runtime._shard.find("a").state.timers)
        await handle.query(Reader.look)
        await handle.signal(Reader.poke)
        live = await handle.query(Reader.look)
        assert len(live) == 18 and len(set(live)) == 16
    for _ in range(2):
        async with hosted(journal, Reader) as runtime:
            handle = runtime.ref("a", Reader)
            assert await handle.query(Reader.look) == live
            drawn = await handle.query(Reader.draw)
            assert not set(drawn) & set(live)


@pytest.mark.usefixtures("keeps_code")
async def test_named_streams_are_independent():
    """B04: a draw that a new version makes before an id does not shift the id."""

    def version(extra):
        @workflow.defn(name="W")
        class W:
            @workflow.run
            async def run(self) -> list[str]:
                if extra:
                    workflow.random("jitter").random()
                    workflow.random().random()
                return [str(workflow.uuid4()), repr(workflow.random("a").random())]

            @workflow.query
            def look(self) -> None:
                pass

        return W

    journal = MemoryJournal()
    Old, New = version(False), version(True)
    async with hosted(journal, Old) as runtime:
        handle = await runtime.spawn(Old.run, id="a")
        before = await handle.result()
        run_id = handle.run_id
    assert uuid.UUID(before[0]).version == 4
    async with hosted(journal, New) as runtime:
        await runtime.ref("a", New).query(New.look)
        actor = runtime._shard.find("a")
        decoded = runtime._converter.decode(actor.instance.outcome.result, list[str])
        assert decoded == before
    assert before[0] == str(uuid.UUID(int=random.Random(f"{run_id}/uuid4").getrandbits(128), version=4)), (
        "the way ids are made is part of the journal's format"
    )


async def test_two_draws_of_one_query_differ():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            pass

        @workflow.query
        def draw(self) -> bool:
            return (
                workflow.uuid4() != workflow.uuid4()
                and workflow.random().random() != workflow.random().random()
            )

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.result()
        assert await handle.query(W.draw)


# --- the logger ---------------------------------------------------------------------------------------------------


def logging_workflow():
    @workflow.defn(name="L")
    class L:
        def __init__(self) -> None:
            self.steps = 0

        @workflow.run
        async def run(self) -> int:
            for step in range(3):
                workflow.logger.info("step %d", step)
                await workflow.sleep(0.001)
            workflow.logger.warning("waiting", extra={"colour": "red"})
            await workflow.wait_condition(lambda: self.steps)
            workflow.logger.info("over")
            return 1

        @workflow.signal
        def end(self) -> None:
            self.steps += 1

        @workflow.query
        def look(self) -> int:
            return self.steps

    return L


async def test_each_log_line_comes_once_however_often_the_run_is_replayed(caplog):
    """J03"""
    caplog.set_level(logging.INFO)
    journal = MemoryJournal()
    L = logging_workflow()
    async with hosted(journal, L) as runtime:
        handle = await runtime.spawn(L.run, id="a")
        await until(lambda: runtime._shard.find("a").state.waiting)
    for _ in range(3):
        async with hosted(journal, L) as runtime:
            await runtime.ref("a", L).query(L.look)
    async with hosted(journal, L) as runtime:
        handle = runtime.ref("a", L)
        await handle.signal(L.end)
        assert await handle.result() == 1
        await handle.query(L.look)
    records = [r for r in caplog.records if r.name == "everact.workflow"]
    assert [r.getMessage() for r in records] == ["step 0", "step 1", "step 2", "waiting", "over"]
    assert {r.workflow_id for r in records} == {"a"} and len({r.run_id for r in records}) == 1
    assert records[3].colour == "red" and records[3].funcName == "run"


async def test_log_lines_leave_behind_the_commit_of_their_turn(caplog):
    caplog.set_level(logging.INFO)
    L = logging_workflow()
    blocked = Blocked()
    async with hosted(MemoryJournal(), L) as runtime:
        with armed("journal.commit.before", blocked):
            start = asyncio.create_task(runtime.spawn(L.run))
            await asyncio.to_thread(blocked.reached.wait)
            assert "step 0" not in caplog.text
            blocked.go.set()
            await start
            assert "step 0" in caplog.text


async def test_a_turn_that_never_was_logs_nothing(caplog):
    caplog.set_level(logging.INFO)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            workflow.logger.info("about to crash")
            raise ValueError("bug")

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowQuarantinedError):
            await runtime.execute(W.run)
    assert "about to crash" not in [r.getMessage() for r in caplog.records]


async def test_a_log_call_with_wrong_arguments_harms_only_its_line():
    """logging reports it and goes on; so live and replay do the same."""
    seen = []

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            workflow.logger.warning("%d items", "many")
            workflow.logger.warning("%s and %s", "one")
            return "fine"

    class Keep(logging.Handler):
        def emit(self, record):
            seen.append(record.msg)

    handler = Keep()
    logger = logging.getLogger("everact")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        async with hosted(MemoryJournal(), W) as runtime:
            assert await runtime.execute(W.run) == "fine"
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    assert seen == ["%d items", "%s and %s"]


async def test_log_lines_of_a_query_come_too(caplog):
    caplog.set_level(logging.INFO)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            pass

        @workflow.query
        def look(self) -> None:
            workflow.logger.info("looked")

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        await handle.result()
        await handle.query(W.look)
        await handle.query(W.look)
    assert [r.getMessage() for r in caplog.records if r.name == "everact.workflow"] == ["looked", "looked"]


# --- queries ------------------------------------------------------------------------------------------------------


async def test_queries_answer_on_running_restarted_and_closed_runs_alike():
    @workflow.defn
    class W:
        def __init__(self) -> None:
            self.notes: list[int] = []
            self.over = False

        @workflow.run
        async def run(self) -> str:
            await workflow.wait_condition(lambda: self.over)
            return "end"

        @workflow.signal
        def note(self, n: int) -> None:
            self.notes.append(n)
            self.over = n == 3

        @workflow.query
        def look(self, factor: int = 1) -> list[int]:
            return [n * factor for n in self.notes]

    journal = MemoryJournal()
    async with hosted(journal, W) as runtime:
        handle = await runtime.spawn(W.run, id="a")
        await handle.signal(W.note, 1)
        assert await handle.query(W.look) == [1]
    async with hosted(journal, W) as runtime:
        handle = runtime.ref("a", W)
        assert runtime._shard.find("a").instance is None
        await settled(runtime)
        assert runtime._shard.find("a").instance is None, "an idle run is replayed only when somebody asks"
        assert await handle.query(W.look) == [1]
        await handle.signal(W.note, 3)
        assert await handle.query(W.look, 2) == [2, 6]
    async with hosted(journal, W) as runtime:
        handle = runtime.ref("a", W)
        assert await handle.query(W.look, 2) == [2, 6]
        assert await handle.result() == "end"
        records = len(journal.records)
        assert await handle.query("look") == [1, 3]
        assert len(journal.records) == records


# --- several runtimes ---------------------------------------------------------------------------------------------


async def test_two_runtimes_on_one_loop_know_nothing_of_each_other():
    held = gate("held")

    @workflow.defn
    class W:
        @workflow.run
        async def run(self, label: str) -> str:
            await asyncio.gather(workflow.sleep(0.002), workflow.execute_activity(held.fn, label))
            return label

    async with (
        hosted(MemoryJournal(), W, activities=[held.fn]) as one,
        hosted(MemoryJournal(), W, activities=[held.fn]) as two,
    ):
        first = await one.spawn(W.run, "first", id="same")
        second = await two.spawn(W.run, "second", id="same")
        await until(lambda: len(held.calls) == 2)
        held.open.set()
        assert (await first.result(), await second.result()) == ("first", "second")
        assert await one.count_workflows() == await two.count_workflows() == 1


def test_it_runs_on_uvloop(tmp_journal):
    @activity.defn(start_to_close_timeout=timedelta(seconds=5))
    def in_thread(n: int) -> int:
        return n + 1

    @activity.defn
    async def on_loop(n: int) -> int:
        await asyncio.sleep(0.001)
        return n + 1

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> int:
            n = await workflow.execute_activity(in_thread, 1)
            async with asyncio.timeout(5):
                n = await on_loop(n)
            await asyncio.sleep(0.001)
            return n

    async def main():
        async with hosted(str(tmp_journal), W, activities=[in_thread, on_loop]) as runtime:
            handles = [await runtime.spawn(W.run, id=str(n)) for n in range(20)]
            results = [await handle.result() for handle in handles]
        async with hosted(str(tmp_journal), W, activities=[in_thread, on_loop]) as runtime:
            assert await runtime.ref("3", W).result() == 3
        return results

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == [3] * 20


@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_what_one_attempt_sets_in_its_context_no_other_sees(colour):
    """Also when the end of the one starts the other; what the program had set before is there for all."""
    seen = []

    def look(n):
        seen.append(CALLER.get())
        CALLER.set(f"attempt {n}")

    @activity.defn(name="look")
    async def on_loop(n: int) -> None:
        look(n)

    @activity.defn(name="look")
    def in_thread(n: int) -> None:
        look(n)

    fn = on_loop if colour == "async" else in_thread

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await asyncio.gather(*(workflow.execute_activity(fn, n) for n in range(5)))

    CALLER.set("program")
    limits = {"max_concurrent_activities": 1, "max_activity_threads": 1}
    async with hosted(MemoryJournal(), W, activities=[fn], **limits) as runtime:
        CALLER.set("caller")
        await runtime.execute(W.run)
    assert seen == ["program"] * 5

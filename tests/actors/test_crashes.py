"""R7 and R13: a run that crashes is restarted from the journal, quarantined, and goes on when it is released."""

import random

import pytest
from support.clock import ManualClock
from support.hosting import gate, hosted, kinds, settled, until
from support.stores import TroubledStore

from everact import Runtime, workflow
from everact.actors import controls, restarts
from everact.actors.event_loop import TurnAborted
from everact.exceptions import (
    CommitUnknownError,
    WorkflowBacklogFullError,
    WorkflowClosedError,
    WorkflowHeldError,
    WorkflowNotRegisteredError,
    WorkflowQuarantinedError,
    WorkflowStatusError,
    WorkflowTerminatedError,
)
from everact.journal import events as ev
from everact.journal.memory_store import MemoryJournal, MemoryStore
from everact.supervision.backoff import Backoff
from everact.supervision.strategies import RestartLimit

#: What the next turns of a run raise, one after the other; the test fills it.
TROUBLE: list[BaseException] = []


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    TROUBLE.clear()
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=0.001, longest=0.004)))


def trouble():
    if TROUBLE:
        raise TROUBLE.pop(0)  # everact: allow


@workflow.defn
class Sums:
    """Adds up; each signal may make it crash."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    @workflow.run
    async def run(self, count: int) -> list[int]:
        await workflow.wait_condition(self.check(count))
        return self.seen

    def check(self, count):
        def holds() -> bool:
            return len(self.seen) == count

        return holds

    @workflow.signal
    def add(self, number: int) -> None:
        if TROUBLE:
            raise TurnAborted from TROUBLE.pop(0)  # everact: allow
        self.seen.append(number)

    @workflow.query
    def look(self) -> list[int]:
        return self.seen


@workflow.defn
class Pays:
    """Gets a paid result, and may crash over it."""

    @workflow.run
    async def run(self) -> str:
        paid = await workflow.execute_activity("pay", "once", result_type=str)
        trouble()
        return paid


# --- restarts


async def test_a_crash_that_passes_costs_nothing_but_a_moment():
    """Three other errors one after the other, each after a restart; then it goes on, and the activity ran once."""
    pay = gate("pay")
    pay.open.set()
    TROUBLE[:] = [ValueError("a"), ValueError("b"), KeyError("b")]
    async with hosted(MemoryJournal(), Pays, activities=[pay.fn]) as runtime:
        handle = await runtime.spawn(Pays.run)
        assert await handle.result() == "through"
        history = await handle.fetch_history()
    assert pay.calls == ["once"] and TROUBLE == []
    assert kinds(history) == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "WorkflowCompleted",
    ]
    assert [type(record) for _, record in history.records] == [ev.Turn, ev.Received, ev.Turn]


async def test_the_fourth_crash_within_the_window_quarantines():
    pay = gate("pay")
    pay.open.set()
    TROUBLE[:] = [ValueError(str(n)) for n in range(9)]
    async with hosted(MemoryJournal(), Pays, activities=[pay.fn]) as runtime:
        handle = await runtime.spawn(Pays.run)
        with pytest.raises(WorkflowQuarantinedError, match="ValueError: 3"):
            await handle.result()
        assert len(TROUBLE) == 5
        history = await handle.fetch_history()
        # The result that was paid for is kept, once.
        assert kinds(history) == ["WorkflowStarted", "ActivityScheduled", "ActivityCompleted", "RunStalled"]
        TROUBLE.clear()
        await handle.release("it was the weather")
        assert await handle.result() == "through"
    assert pay.calls == ["once"]


async def test_crashes_that_are_further_apart_than_the_window_do_not_quarantine():
    clock = ManualClock()
    TROUBLE[:] = [ValueError(str(n)) for n in range(7)]

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> str:
            clock.advance(2)  # each try takes so long
            trouble()
            return "end"

    async with hosted(MemoryJournal(), W, clock=clock) as runtime:
        assert await runtime.execute(W.run) == "end"
    assert TROUBLE == []


async def test_the_same_exception_at_the_same_position_twice_quarantines_at_once(caplog):
    pay = gate("pay")
    pay.open.set()
    TROUBLE[:] = [ValueError("same") for _ in range(9)]
    async with hosted(MemoryJournal(), Pays, activities=[pay.fn]) as runtime:
        handle = await runtime.spawn(Pays.run)
        with pytest.raises(WorkflowQuarantinedError, match="ValueError: same"):
            await handle.result()
        assert len(TROUBLE) == 7
    logged = [record.levelname for record in caplog.records if "same" in record.getMessage()]
    assert logged == ["WARNING", "ERROR"]
    assert "crashed and is restarted from the journal in" in caplog.text


async def test_the_counts_begin_anew_with_progress():
    """Each of six signals crashes once: twice the budget, and never two crashes without progress."""
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await runtime.spawn(Sums.run, 6)
        for number in range(6):
            TROUBLE[:] = [ValueError("same")]
            await handle.signal(Sums.add, number)
            await until(lambda: runtime._shard.find(handle.workflow_id).restarts is None)
        assert await handle.result() == [0, 1, 2, 3, 4, 5]


async def test_what_comes_in_before_the_restart_is_received_and_the_last_state_answers(monkeypatch):
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600.0, longest=3600.0)))
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await runtime.spawn(Sums.run, 3)
        await handle.signal(Sums.add, 1)
        TROUBLE[:] = [ValueError("bug")]
        await handle.signal(Sums.add, 2)
        await handle.signal(Sums.add, 3)
        described = await handle.describe()
        assert (described.status, described.backlog) == ("running", 2)
        assert await handle.query(Sums.look) == [1]
        actor = runtime._shard.find(handle.workflow_id)
        assert actor.restarts.is_waiting
        restarts._restart(actor, actor.restarts)
        assert await handle.result() == [1, 2, 3]


async def test_a_run_that_waits_for_its_restart_can_be_terminated(monkeypatch):
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600.0, longest=3600.0)))
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await runtime.spawn(Sums.run, 3)
        TROUBLE[:] = [ValueError("bug")]
        await handle.signal(Sums.add, 2)
        actor = runtime._shard.find(handle.workflow_id)
        await handle.terminate("enough")
        restarts._restart(actor, actor.restarts)  # its time comes all the same
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
        await settled(runtime)


async def test_the_pauses_have_jitter_from_a_source_that_can_be_set(monkeypatch):
    seen = []
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit())
    restart_later = restarts.restart_later

    def noted(actor, failure, pause):
        seen.append(pause)
        restart_later(actor, failure, 0.0)

    monkeypatch.setattr(restarts, "restart_later", noted)
    TROUBLE[:] = [ValueError(str(n)) for n in range(3)]

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            trouble()

    async with hosted(MemoryJournal(), W) as runtime:
        runtime._shard.dispatcher.jitter = random.Random(7)
        await runtime.execute(W.run)
    source, backoff = random.Random(7), Backoff()
    assert seen == [backoff.pause(n, source) for n in range(3)]


async def test_on_crash_fail_fails_the_run_without_restarts():
    @workflow.defn(on_crash="fail")
    class W:
        tries = 0

        @workflow.run
        async def run(self) -> None:
            W.tries += 1
            raise ValueError("bug")

    async with hosted(MemoryJournal(), W) as runtime:
        handle = await runtime.spawn(W.run)
        with pytest.raises(Exception, match="ValueError: bug"):
            await handle.result()
        assert (await handle.describe()).status == "failed"
    assert W.tries == 1


async def test_a_query_that_cannot_load_the_code_for_a_moment_is_answered_after_a_restart():
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await runtime.spawn(Sums.run, 3)
        await handle.signal(Sums.add, 1)
        TROUBLE[:] = [ValueError("not now")]  # in the replay of that signal
        assert await handle.query(Sums.look) == [1]
        assert TROUBLE == []
        assert (await handle.describe()).status == "running"
        TROUBLE[:] = [ValueError("bug")] * 2
        with pytest.raises(WorkflowQuarantinedError):
            await handle.query(Sums.look)


async def test_a_stalled_run_is_no_more_than_held_by_a_mismatch():
    """A difference to the journal is not tried again by itself (R13)."""

    def version(seconds):
        @workflow.defn(name="W")
        class W:
            @workflow.run
            async def run(self) -> str:
                await workflow.sleep(seconds)
                return "end"

            @workflow.signal
            def note(self) -> None: ...

        return W

    journal = MemoryJournal()
    async with hosted(journal, version(3600)) as runtime:
        await runtime.spawn("W", id="w")
    async with hosted(journal, version(60)) as runtime:
        handle = runtime.ref("w")
        await handle.signal("note")
        with pytest.raises(WorkflowHeldError, match="replay differs"):
            await handle.result()
        assert kinds(await handle.fetch_history())[-2:] == ["SignalReceived", "RunStalled"]
        await handle.release("try")  # the same code: it is held again
        with pytest.raises(WorkflowHeldError, match="replay differs"):
            await handle.result()


# --- release


async def quarantined(runtime, cls=Sums, *args):
    handle = await runtime.spawn(cls.run, *(args or (3,)), id="q")
    TROUBLE[:] = [ValueError("bug")] * 2
    await handle.signal("add", 1)
    with pytest.raises(WorkflowQuarantinedError):
        await handle.result()
    assert TROUBLE == []
    return handle


async def test_a_quarantined_run_is_not_tried_at_a_start_and_a_held_one_is():
    journal = MemoryJournal()
    async with hosted(journal, Sums) as runtime:
        handle = await quarantined(runtime)
    for _ in range(2):
        async with hosted(journal, Sums) as runtime:
            handle = runtime.ref("q", Sums)
            described = await handle.describe()
            assert described.status == "quarantined"
            assert described.waiting_on.startswith("release; condition at ")
    async with hosted(journal) as runtime:  # its type is not registered: it stays quarantined
        handle = runtime.ref("q")
        assert (await handle.describe()).status == "quarantined"
        with pytest.raises(WorkflowNotRegisteredError, match="'Sums' is not registered"):
            await handle.release()
    async with hosted(journal, Sums) as runtime:
        handle = runtime.ref("q", Sums)
        assert kinds(await handle.fetch_history()).count("RunReleased") == 0
        await handle.release("by hand")
        assert await handle.query(Sums.look) == [1]


async def test_a_run_whose_type_is_not_registered_is_held_and_goes_on_when_it_is():
    """C08: visible, with the known names; tried once at each start that has the type."""
    journal = MemoryJournal()
    async with hosted(journal, Sums) as runtime:
        await runtime.spawn(Sums.run, 1, id="a")
    async with hosted(journal, Pays) as runtime:
        handle = runtime.ref("a")
        with pytest.raises(WorkflowHeldError, match="known: Pays"):
            await handle.result()
        assert [line.workflow_id for line in await runtime.list_workflows(status="held")] == ["a"]
        await handle.signal("add", 7)
        with pytest.raises(WorkflowNotRegisteredError):
            await handle.release()
    async with hosted(journal, Sums) as runtime:
        assert await runtime.ref("a", Sums).result() == [7]


async def test_release_is_idempotent_and_a_late_repeat_releases_nothing():
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await quarantined(runtime)
        await handle.release("mended", request_id="r-1")
        await handle.release("mended", request_id="r-1")
        await handle.release("again")  # it goes on: nothing happens
        TROUBLE[:] = [ValueError("other bug")] * 2
        await handle.signal(Sums.add, 2)
        with pytest.raises(WorkflowQuarantinedError):
            await handle.result()
        await handle.release("mended", request_id="r-1")  # arrives late
        assert (await handle.describe()).status == "quarantined"
        await handle.release("really")
        assert kinds(await handle.fetch_history()).count("RunReleased") == 2
        await handle.signal(Sums.add, 3)
        assert await handle.result() == [1, 2, 3]
        with pytest.raises(WorkflowClosedError):
            await handle.release()


async def test_resume_of_a_stalled_run_names_the_right_verb():
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await quarantined(runtime)
        with pytest.raises(WorkflowStatusError) as caught:
            await handle.resume()
        assert str(caught.value) == (
            f"workflow 'q' (run {handle.run_id}) is quarantined, which resume() does not end: call release()"
        )
        await handle.pause("and paused too")
        assert (await handle.describe()).status == "quarantined"
        await handle.release()
        assert (await handle.describe()).status == "paused"
        with pytest.raises(WorkflowStatusError) as caught:
            await handle.release()
        assert str(caught.value) == (
            f"workflow 'q' (run {handle.run_id}) is paused, which release() does not end: call resume()"
        )
        await handle.resume()
        assert await handle.query(Sums.look) == [1]


async def test_a_stalled_run_keeps_a_cancel_and_can_be_terminated():
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await quarantined(runtime)
        await handle.cancel("no more")
        assert (await handle.describe()).cancel_requested
        await handle.terminate("over")
        with pytest.raises(WorkflowTerminatedError):
            await handle.result()
        letters = (await handle.describe()).dead_letters
        assert [letter.name for letter in letters] == ["add"]


async def test_the_backlog_is_capped_by_refusal(monkeypatch):
    monkeypatch.setattr(controls, "BACKLOG", 5)
    async with hosted(MemoryJournal(), Sums) as runtime:
        handle = await quarantined(runtime)
        for number in range(2, 6):
            await handle.signal(Sums.add, number)
        before = await handle.fetch_history()
        with pytest.raises(WorkflowBacklogFullError) as caught:
            await handle.signal(Sums.add, 6)
        assert str(caught.value) == (
            f"workflow 'q' (run {handle.run_id}, quarantined) takes no more messages for now: 5 wait until the run "
            f"goes on"
        )
        await handle.cancel("is taken")
        assert len(await handle.fetch_history()) == len(before) + 1


async def test_an_exception_that_names_a_place_in_memory_is_the_same_each_time():
    @workflow.defn
    class W:
        tries = 0

        @workflow.run
        async def run(self) -> None:
            W.tries += 1
            raise ValueError(f"unexpected {object()!r}")

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowQuarantinedError):
            await runtime.execute(W.run)
    assert W.tries == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_that_fails_under_a_crash_leaves_no_run_that_waits_for_ever(monkeypatch, when):
    """C11: after an unknown append the run is rebuilt from the journal, and tries what that holds."""
    monkeypatch.setattr(restarts, "LIMIT", RestartLimit(backoff=Backoff(first=3600.0, longest=3600.0)))
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with Runtime(store, workflows=[Sums]) as runtime:
        handle = await runtime.spawn(Sums.run, 2)
        TROUBLE[:] = [ValueError("bug")]
        store.failures.append(when)
        with pytest.raises(CommitUnknownError):
            await handle.signal(Sums.add, 1, request_id="r")
        await handle.signal(Sums.add, 1, request_id="r")
        await handle.signal(Sums.add, 2)
        assert await handle.result() == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["pause", "resume", "release"])
async def test_a_control_whose_commit_fails_is_unknown_and_a_repeat_settles_it(when, verb):
    store = TroubledStore(MemoryStore(MemoryJournal()))
    async with Runtime(store, workflows=[Sums]) as runtime:
        handle = await runtime.spawn(Sums.run, 2, id="q")
        if verb == "resume":
            await handle.pause()
        if verb == "release":
            TROUBLE[:] = [ValueError("bug")] * 2
            await handle.signal(Sums.add, 1)
            with pytest.raises(WorkflowQuarantinedError):
                await handle.result()
        store.failures.append(when)
        with pytest.raises(CommitUnknownError):
            await getattr(handle, verb)("why", request_id="r")
        await getattr(handle, verb)("why", request_id="r")
        assert (await handle.describe()).status == ("paused" if verb == "pause" else "running")
        kind = {"pause": "RunPaused", "resume": "RunResumed", "release": "RunReleased"}[verb]
        assert kinds(await handle.fetch_history()).count(kind) == 1

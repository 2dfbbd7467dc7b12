"""Nothing leaves before it is durable: not an acknowledgement, not an answer, not an activity's start."""

import asyncio
import logging

import pytest
from support.stores import TroubledStore, turns

from everact import Runtime, activity, workflow
from everact.actors import restarts
from everact.exceptions import (
    RequestIdReusedError,
    UpdateRejectedError,
    WorkflowAlreadyStartedError,
    WorkflowCancelledError,
    WorkflowClosedError,
    WorkflowQuarantinedError,
    WorkflowStatusError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryStore
from everact.supervision.strategies import RestartLimit

started = []


@activity.defn
async def touch(word: str) -> str:
    started.append(word)
    return word


@activity.defn
def touch_in_thread(word: str) -> str:
    started.append(word)
    return word


@workflow.defn
class Keeper:
    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: bool({"end", "crash"} & {*self.words}))
        if "crash" in self.words:
            raise RuntimeError("crashed")
        return self.words

    @workflow.signal
    def add(self, word: str) -> None:
        workflow.logger.warning("added %s", word)
        self.words.append(word)

    @workflow.update
    def put(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    @put.validator
    def check_put(self, word: str) -> None:
        if word in self.words:
            raise ValueError("twice")

    @workflow.query
    def get(self) -> list[str]:
        return self.words


@workflow.defn
class Worker:
    @workflow.run
    async def run(self) -> list[str]:
        workflow.logger.warning("begins")
        return [
            *await asyncio.gather(touch("a"), workflow.execute_activity(touch_in_thread, "b")),
            await touch("c"),
        ]


@pytest.fixture
def store(monkeypatch):
    started.clear()
    monkeypatch.setattr(
        restarts, "LIMIT", RestartLimit(most=0)
    )  # what crashes is quarantined in the same turn
    return TroubledStore(MemoryStore())


@pytest.fixture
async def runtime(store):
    async with Runtime(store, workflows=[Keeper, Worker], activities=[touch, touch_in_thread]) as runtime:
        yield runtime
        store.release()


def start(runtime, _ref):
    return runtime.spawn(Keeper, id="new", request_id="start")


def add(word):
    return lambda _runtime, ref: ref.tell(Keeper.add, word, request_id="add")


def new(call):
    return lambda runtime, _ref: call(runtime.ref("new", Keeper))


def old(call):
    return lambda _runtime, ref: call(ref)


async def last_signal(ref):
    event = [e.event for e in await ref.fetch_history() if e.kind == "SignalReceived"][-1]
    return event.name


async def status(ref):
    return (await ref.describe()).status


async def workflow_id(handle):
    return (await handle).workflow_id


#: What is not durable yet, a call that could show it, and what that returns or raises once it is.
SHOWS = {
    "start, refused": (start, lambda r, _: r.spawn(Keeper, id="new"), WorkflowAlreadyStartedError),
    "start, attached": (
        start,
        lambda r, _: workflow_id(r.spawn(Keeper, id="new", if_running="attach")),
        "new",
    ),
    "start, repeated": (
        start,
        lambda r, _: workflow_id(r.spawn(Keeper, id="new", request_id="start")),
        "new",
    ),
    "start, id reused": (
        start,
        lambda r, _: r.spawn(Worker, id="new", request_id="start"),
        RequestIdReusedError,
    ),
    "start, query": (start, new(lambda ref: ref.query(Keeper.get)), []),
    "start, describe": (start, new(status), "running"),
    "start, history": (start, new(lambda ref: history_length(ref)), 2),
    "start, signal": (start, new(lambda ref: ref.tell(Keeper.add, "x")), None),
    "signal, query": (add("seen"), old(lambda ref: ref.query(Keeper.get)), ["seen"]),
    "signal, describe": (add("seen"), old(status), "running"),
    "signal, history": (add("seen"), old(last_signal), "add"),
    "signal, update": (add("seen"), old(lambda ref: ref.ask(Keeper.put, "more")), 2),
    "signal, rejection": (add("seen"), old(lambda ref: ref.ask(Keeper.put, "seen")), UpdateRejectedError),
    "signal, repeated": (add("seen"), add("seen"), None),
    "signal, id reused": (add("seen"), add("other"), RequestIdReusedError),
    "end, result": (add("end"), old(lambda ref: ref.result()), ["end"]),
    "end, query": (add("end"), old(lambda ref: ref.query(Keeper.get)), ["end"]),
    "end, describe": (add("end"), old(status), "completed"),
    "end, signal": (add("end"), old(lambda ref: ref.tell(Keeper.add, "late")), WorkflowClosedError),
    "end, update": (add("end"), old(lambda ref: ref.ask(Keeper.put, "late")), WorkflowClosedError),
    "end, cancel": (add("end"), old(lambda ref: ref.cancel()), WorkflowClosedError),
    "end, start refused": (
        add("end"),
        lambda r, _: r.spawn(Keeper, id="old", if_closed="refuse"),
        WorkflowAlreadyStartedError,
    ),
    "end, start again": (add("end"), lambda r, _: workflow_id(r.spawn(Keeper, id="old")), "old"),
    "crash, result": (add("crash"), old(lambda ref: ref.result()), WorkflowQuarantinedError),
    "crash, query": (add("crash"), old(lambda ref: ref.query(Keeper.get)), WorkflowQuarantinedError),
    "crash, update": (add("crash"), old(lambda ref: ref.ask(Keeper.put, "x")), WorkflowQuarantinedError),
    "crash, describe": (add("crash"), old(status), "quarantined"),
    "crash, signal": (add("crash"), old(lambda ref: ref.tell(Keeper.add, "kept")), None),
    "pause, describe": (old(lambda ref: ref.pause()), old(status), "paused"),
    "pause, pause": (old(lambda ref: ref.pause()), old(lambda ref: ref.pause()), None),
    "pause, resume": (old(lambda ref: ref.pause()), old(lambda ref: ref.resume()), None),
    "pause, release": (
        old(lambda ref: ref.pause()),
        old(lambda ref: ref.release()),
        WorkflowStatusError,
    ),
    "pause, signal": (old(lambda ref: ref.pause()), old(lambda ref: ref.tell(Keeper.add, "kept")), None),
    "crash, resume": (add("crash"), old(lambda ref: ref.resume()), WorkflowStatusError),
    "crash, release": (add("crash"), old(lambda ref: ref.release()), None),
    "end, pause": (add("end"), old(lambda ref: ref.pause()), WorkflowClosedError),
    "end, start update": (
        add("end"),
        old(lambda ref: ref.start_update(Keeper.put, "late")),
        WorkflowClosedError,
    ),
    "signal, start update": (
        add("seen"),
        old(lambda ref: ref.start_update(Keeper.put, "seen")),
        UpdateRejectedError,
    ),
    "terminate, result": (
        old(lambda ref: ref.terminate()),
        old(lambda ref: ref.result()),
        WorkflowTerminatedError,
    ),
    "terminate, signal": (
        old(lambda ref: ref.terminate()),
        old(lambda ref: ref.tell(Keeper.add, "late")),
        WorkflowClosedError,
    ),
    "cancel, cancel": (old(lambda ref: ref.cancel()), old(lambda ref: ref.cancel()), WorkflowClosedError),
    "cancel, result": (
        old(lambda ref: ref.cancel()),
        old(lambda ref: ref.result()),
        WorkflowCancelledError,
    ),
}


async def history_length(ref):
    return len(await ref.fetch_history())


@pytest.mark.parametrize(
    ("shown", "when"),
    [
        *((shown, when) for shown in SHOWS for when in ("in flight", "queued")),
        *(
            (shown, "same tick")
            for shown in SHOWS
            if not shown.startswith(("end, start", "end, pause", "crash, re"))
        ),
    ],
)
async def test_no_answer_leaves_before_what_it_shows_is_durable(runtime, store, shown, when):
    write, call, expected = SHOWS[shown]
    ref = await runtime.spawn(Keeper, id="old")
    other = await runtime.spawn(Keeper, id="other")
    before = await runtime.list_workflows()
    store.hold()
    tasks = []
    try:
        if when == "queued":
            tasks.append(asyncio.create_task(other.tell(Keeper.add, "first")))
            await store.held()
        tasks.append(asyncio.create_task(write(runtime, ref)))
        if when != "same tick":
            await turns()
        tasks.append(asyncio.create_task(call(runtime, ref)))
        await store.held()
        await turns()
        assert not [task for task in tasks if task.done()], "left before the commit"
        assert await runtime.list_workflows() == before
    finally:
        store.release()
        *_, answer = await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(expected, type):
        assert type(answer) is expected
    else:
        assert answer == expected


@pytest.mark.parametrize("when", ["in flight", "queued"])
async def test_no_activity_starts_and_nothing_is_logged_before_the_commit(runtime, store, when, caplog):
    caplog.set_level(logging.INFO, "everact")
    other = await runtime.spawn(Keeper, id="other")
    caplog.clear()
    store.hold()
    first = []
    if when == "queued":
        first.append(asyncio.create_task(other.tell(Keeper.add, "first")))
        await store.held()
    task = asyncio.create_task(runtime.execute(Worker, id="new"))
    await store.held()
    await turns()
    assert started == []
    assert caplog.messages == []
    store.release()
    assert await task == ["a", "b", "c"]
    assert sorted(started) == ["a", "b", "c"]
    await asyncio.gather(*first)
    assert [m for m in caplog.messages if m == "begins"] == ["begins"]


async def test_the_next_activity_waits_for_the_result_before_it(store):
    finish = asyncio.Event()

    @activity.defn
    async def slow() -> None:
        await finish.wait()

    @workflow.defn
    class Two:
        @workflow.run
        async def run(self) -> str:
            await slow()
            return await touch("after")

    async with Runtime(store, workflows=[Two], activities=[slow, touch]) as runtime:
        handle = await runtime.spawn(Two)
        store.hold()
        finish.set()
        await store.held()
        await turns()
        assert started == []
        store.release()
        assert await handle.result() == "after"


async def test_the_notice_of_a_stalled_run_waits_for_its_commit(runtime, store, caplog):
    ref = await runtime.spawn(Keeper, id="old")
    caplog.clear()
    store.hold()
    task = asyncio.create_task(ref.tell(Keeper.add, "crash"))
    await store.held()
    await turns()
    assert caplog.messages == []
    store.release()
    await task
    assert any("quarantined" in message for message in caplog.messages)

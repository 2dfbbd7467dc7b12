"""Chapter D, the second half: handlers that come late or run late, and what senders can rely on."""

import asyncio

import pytest

from everact import ApplicationError, activity, workflow
from everact.exceptions import (
    ChildWorkflowError,
    RequestIdReusedError,
    UpdateCutError,
    WorkflowBacklogFullError,
    WorkflowFailedError,
)
from everact.testing import TestEnvironment


async def signal_with_start(env, kind, *args, signal, payload, request_id=None, workflow_id="x"):
    """Start it unless it runs, and send it a signal."""
    start_id = request_id and f"start {request_id}"
    handle = await env.spawn(kind, *args, id=workflow_id, if_running="attach", request_id=start_id)
    await handle.signal(signal, payload, request_id=request_id)
    return handle


# --- D07


@workflow.defn
class SetsLater:
    def __init__(self) -> None:
        self.heard: list[int] = []

    @workflow.run
    async def run(self, count: int) -> list[int]:
        await workflow.sleep(1)
        workflow.set_signal_handler("hear", self.hear)
        await workflow.wait_condition(lambda: len(self.heard) == count)
        return self.heard

    def hear(self, number: int) -> None:
        self.heard.append(number)


@pytest.mark.parametrize("restarts", [False, True])
async def test_d07_signals_before_their_handler_come_first_and_in_order(restarts):
    async with TestEnvironment(workflows=[SetsLater]) as env:
        for number in range(3):
            handle = await signal_with_start(
                env, SetsLater, 5, signal="hear", payload=number, request_id=f"r{number}"
            )
        if restarts:
            await env.restart()
        await env.sleep(1)
        for number in (3, 4):
            await handle.signal("hear", number)
        assert await handle.result() == [0, 1, 2, 3, 4]


async def test_d07_what_is_kept_has_a_cap_and_beyond_it_the_sender_is_refused():
    async with TestEnvironment(workflows=[SetsLater]) as env:
        handle = await env.spawn(SetsLater, 1001)
        with env.time_held():
            for number in range(1000):
                await handle.signal("hear", number)
            for number in range(1000, 1003):
                with pytest.raises(WorkflowBacklogFullError, match="1,000 wait for a handler"):
                    await handle.signal("hear", number)
        await env.sleep(2)
        await handle.signal("hear", 1000)
        assert await handle.result() == list(range(1001))


# --- D08


@activity.defn(start_to_close_timeout=60)
async def slow() -> str:
    raise NotImplementedError


@workflow.defn
class EndsEarly:
    @workflow.run
    async def run(self, end: str, waits: bool) -> str:
        await workflow.sleep(1)
        if waits:
            await workflow.wait_condition(workflow.all_handlers_finished)
        match end:
            case "continue":
                workflow.continue_as_new("return", False)
            case "fail":
                raise ApplicationError("failed on purpose")
            case "sleep":
                await workflow.sleep(3600)
        return "end"

    @workflow.signal
    async def tell(self) -> None:
        await slow()

    @workflow.update
    async def ask(self) -> str:
        return await slow()


@pytest.mark.parametrize("end", ["return", "continue", "fail", "cancel"])
@pytest.mark.parametrize("dynamic", [False, True])
async def test_d08_a_run_that_ends_over_its_handlers_says_so_and_tells_the_asker(end, dynamic, caplog):
    @workflow.defn(name="EndsEarly")
    class Dynamic(EndsEarly):
        @workflow.run
        async def run(self, end: str, waits: bool) -> str:
            return await super().run(end, waits)

        @workflow.update(dynamic=True)
        async def any(self, name: str, args: list[object]) -> str:
            return await slow()

        ask = None

    kind = Dynamic if dynamic else EndsEarly
    async with TestEnvironment(workflows=[kind]) as env:
        env.mock_activity(slow, returns="done", delay=10)
        handle = await env.spawn(kind, "sleep" if end == "cancel" else end, False)
        asked = asyncio.create_task(handle.execute_update("ask"))
        if end == "cancel":
            await env.sleep(1.5)
            await handle.cancel()
        with pytest.raises(UpdateCutError, match="before update 'ask' was done"):
            await asked
        if end in ("fail", "cancel"):
            with pytest.raises(WorkflowFailedError):
                await handle.result()
        else:
            assert await handle.result() == "end"
    assert "of its handlers were running" in caplog.text


@pytest.mark.parametrize("end", ["return", "continue", "fail"])
async def test_d08_one_call_waits_until_all_handlers_are_done(end, caplog):
    async with TestEnvironment(workflows=[EndsEarly]) as env:
        env.mock_activity(slow, returns="done", delay=10)
        handle = await env.spawn(EndsEarly, end, True)
        await handle.signal(EndsEarly.tell)
        assert await handle.execute_update(EndsEarly.ask) == "done"
        if end == "fail":
            with pytest.raises(WorkflowFailedError, match="on purpose"):
                await handle.result()
        else:
            assert await handle.result() == "end"
    assert "handlers were running" not in caplog.text


# --- D10


@pytest.mark.parametrize("between", ["nothing", "a restart", "a new run"])
async def test_d10_the_callers_id_counts_once_for_its_receiver_and_two_ids_count_twice(between):
    @workflow.defn
    class Takes:
        def __init__(self) -> None:
            self.goes_on = False
            self.taken: list[str] = []

        @workflow.run
        async def run(self, taken: list[str]) -> list[str]:
            self.taken = [*taken, *self.taken]
            await workflow.wait_condition(lambda: self.goes_on)
            workflow.continue_as_new(self.taken)

        @workflow.signal
        def take(self, what: str) -> None:
            self.taken.append(what)

        @workflow.signal
        def go_on(self) -> None:
            self.goes_on = True

        @workflow.query
        def look(self) -> list[str]:
            return self.taken

    async def again(handle):
        if between == "a restart":
            await env.restart()
        elif between == "a new run":
            await handle.signal(Takes.go_on)

    async with TestEnvironment(workflows=[Takes]) as env:
        for _ in range(2):
            handle = await signal_with_start(
                env, Takes, [], signal=Takes.take, payload="start", request_id="X"
            )
            await again(env.ref("x", Takes))
        handle = env.ref("x", Takes)
        assert await handle.query(Takes.look) == ["start"]
        for job in ("job 1", "job 2", "job 1"):
            await handle.signal(Takes.take, "bulk", request_id=job)
            await again(handle)
        assert await handle.query(Takes.look) == ["start", "bulk", "bulk"]
        other = await env.spawn(Takes, [], id="other")
        await other.signal(Takes.take, "bulk", request_id="job 1")  # another receiver
        assert await other.query(Takes.look) == ["bulk"]
        with pytest.raises(RequestIdReusedError):
            await handle.signal(Takes.take, "other bulk", request_id="job 1")


# --- D12


@pytest.mark.slow
async def test_d12_ten_thousand_messages_for_a_slow_run_are_handled_or_refused_to_the_sender():
    """In one process: the link is the journal, and no message is given up."""

    @activity.defn
    async def handle_one(number: int) -> int:
        raise NotImplementedError

    @workflow.defn
    class Slow:
        def __init__(self) -> None:
            self.waiting: list[int] = []
            self.done = 0

        @workflow.run
        async def run(self, count: int) -> int:
            while self.done < count:
                await workflow.wait_condition(lambda: self.waiting)
                batch, self.waiting = self.waiting, []
                await workflow.sleep(len(batch) / 100)
                self.done += len(batch)
            return self.done

        @workflow.signal
        def take(self, number: int) -> None:
            self.waiting.append(number)

    async with TestEnvironment(workflows=[Slow]) as env:
        handle = await env.spawn(Slow, 10_000)
        refused = 0

        async def send(number):
            nonlocal refused
            while True:
                try:
                    return await handle.signal(Slow.take, number, request_id=f"{number}")
                except WorkflowBacklogFullError:
                    refused += 1
                    await env.sleep(0.1)

        for begin in range(0, 10_000, 1000):
            await asyncio.gather(*map(send, range(begin, begin + 1000)))
            if begin == 5000:
                await env.restart()
        assert await handle.result() == 10_000
        assert (await handle.describe()).dead_letter_count == 0


# --- D13


@workflow.defn
class Child:
    @workflow.run
    async def run(self, how: str) -> None:
        if how == "fails":
            raise ApplicationError("failed on purpose")
        await workflow.sleep(3600)


@workflow.defn
class Parent:
    @workflow.run
    async def run(self, how: str) -> str:
        begun = workflow.time()
        try:
            await workflow.execute_child_workflow(Child, how, id="child")
        except ChildWorkflowError as error:
            assert workflow.time() - begun <= 1
            return f"{error.__cause__}"
        return "ended"


@pytest.mark.parametrize(("how", "notice"), [("terminated", "killed by hand"), ("fails", "on purpose")])
async def test_d13_a_parent_is_told_at_once_that_its_child_was_ended(how, notice):
    """The child is a run: activities in processes of their own are no part of this version."""
    async with TestEnvironment(workflows=[Parent, Child]) as env:
        handle = await env.spawn(Parent, how)
        if how == "terminated":
            await env.sleep(0.5)
            await env.ref("child").terminate("killed by hand")
        assert notice in await handle.result()

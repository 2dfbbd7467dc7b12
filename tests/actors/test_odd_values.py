"""Values that the journal cannot hold are refused where they are given: nobody hangs, no run stands still."""

import asyncio
from datetime import timedelta

import pytest
from support.hosting import hosted, settled

from everact import ActivityError, ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import EveractError, WorkflowFailedError
from everact.journal.memory_store import MemoryJournal

BAD = "\ud800"
ONCE = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=1))


@workflow.defn
class W:
    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def note(self, text: str) -> None:
        pass

    @workflow.update
    def ask(self, text: str) -> str:
        return text


CALLS = {
    "cancel": lambda h: h.cancel(BAD),
    "terminate": lambda h: h.terminate(BAD),
    "signal id": lambda h: h.signal(W.note, "x", request_id=BAD),
    "update id": lambda h: h.execute_update(W.ask, "x", request_id=BAD),
    "signal name": lambda h: h.signal(BAD, "x"),
    "signal": lambda h: h.signal(W.note, BAD),
    "cancel int": lambda h: h.cancel(7),
    "id int": lambda h: h.signal(W.note, "x", request_id=7),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("registered", [True, False])
async def test_a_call_with_text_that_cannot_be_stored_raises_and_harms_nothing(call, registered):
    journal = MemoryJournal()
    async with hosted(journal, W) as runtime:
        await runtime.spawn(W.run, id="a")
    async with hosted(journal, *([W] if registered else [])) as runtime:
        handle = runtime.ref("a")
        await settled(runtime)
        before = len(await handle.fetch_history())
        async with asyncio.timeout(3):
            with pytest.raises((ValueError, TypeError, EveractError)):
                await CALLS[call](handle)
        assert len(await handle.fetch_history()) == before
        assert (await handle.describe()).status == ("running" if registered else "held")


@pytest.mark.parametrize("request_id", [BAD, 7])
async def test_a_start_with_such_a_request_id_raises(request_id):
    async with hosted(MemoryJournal(), W) as runtime:
        async with asyncio.timeout(3):
            with pytest.raises((ValueError, TypeError)):
                await runtime.spawn(W.run, id="a", request_id=request_id)
        assert await runtime.count_workflows() == 0
        await runtime.spawn(W.run, id="a")


ERRORS = {
    "type": lambda: ApplicationError("x", type=BAD),
    "message": lambda: ApplicationError(BAD),
    "detail": lambda: ApplicationError("x", BAD, object()),
    "long": lambda: ApplicationError("x" * 100_000, type="y" * 100_000),
    "never": lambda: ApplicationError("x", next_retry_delay=timedelta.max),
    "before": lambda: ApplicationError("x", next_retry_delay=timedelta(days=-3)),
    "message number": lambda: ApplicationError(7),  # type: ignore[arg-type]
    "type number": lambda: ApplicationError("x", type=7),  # type: ignore[arg-type]
    "type class": lambda: ApplicationError("x", type=ValueError),  # type: ignore[arg-type]
    "delay number": lambda: ApplicationError("x", next_retry_delay=3600),
    "delay text": lambda: ApplicationError("x", next_retry_delay="soon"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("where", ["main", "activity", "thread", "update"])
async def test_an_odd_error_still_ends_what_raised_it(kind, where):
    def fail():
        error = ERRORS[kind]()
        raise error

    @activity.defn(retry_policy=ONCE)
    async def act() -> None:
        fail()

    @activity.defn(retry_policy=ONCE)
    def act_in_thread() -> None:
        fail()

    @workflow.defn(on_crash="fail")
    class Odd:
        @workflow.run
        async def run(self) -> None:
            if where == "main":
                fail()
            try:
                if where == "activity":
                    await act()
                if where == "thread":
                    await workflow.execute_activity(act_in_thread)
            except ActivityError as error:
                raise ApplicationError("seen") from error
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def ask(self) -> None:
            fail()

    async with hosted(MemoryJournal(), Odd, activities=[act, act_in_thread]) as runtime:
        handle = await runtime.spawn(Odd.run)
        async with asyncio.timeout(5):
            if where == "update":
                with pytest.raises(EveractError):
                    await handle.execute_update(Odd.ask)
                assert (await handle.describe()).status == "running"
            elif kind in ("never", "delay number") and where != "main":
                while not (await handle.describe()).pending_activities[0].next_attempt_at:
                    await asyncio.sleep(0.001)
            else:
                with pytest.raises(WorkflowFailedError):
                    await handle.result()
        assert (await handle.describe()).history_length > 1

"""What goes wrong is said where people look: in the log, in the error that is printed, in describe."""

import asyncio
import logging
import traceback
from datetime import timedelta

import pytest
from support.hosting import hosted, settled

from everact import ApplicationError, RetryPolicy, activity, workflow
from everact.exceptions import RegistrationError, WorkflowFailedError, WorkflowTypeError
from everact.journal.memory_store import MemoryJournal


@activity.defn(retry_policy=RetryPolicy(initial_interval=0.01, maximum_attempts=2))
async def breaks(key: str) -> str:
    return {}[key]


@workflow.defn
class Breaks:
    @workflow.run
    async def run(self) -> str:
        return await breaks("k")

    @workflow.signal
    def bad(self) -> None:
        raise ValueError("bad signal")


async def test_each_failed_attempt_is_logged_with_what_comes_next(caplog):
    async with hosted(MemoryJournal(), Breaks, activities=[breaks]) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(Breaks, id="b")
        failure = (await runtime.ref("b").describe()).failure
    attempts = [
        r for r in caplog.records if "attempt 1 of 2 failed, the next one starts in 0.0 s" in r.getMessage()
    ]
    assert [(r.name, r.levelno) for r in attempts] == [("everact.runtime", logging.WARNING)]
    assert "return {}[key]" in attempts[0].getMessage()
    (ended,) = [r for r in caplog.records if "'b' (run" in r.getMessage() and ") failed: " in r.getMessage()]
    printed = "".join(traceback.format_exception(caught.value))
    for text in (ended.getMessage(), failure, printed):
        assert "return {}[key]" in text, "the line of the activity"
        assert 'return await breaks("k")' in text, "the line of the workflow"
        assert "KeyError: 'k'" in text
    assert "activity_pool.py" not in ended.getMessage()


async def test_a_signal_that_fails_is_logged_with_its_trace(caplog):
    async with hosted(MemoryJournal(), Breaks, activities=[breaks]) as runtime:
        handle = await runtime.spawn(Breaks)
        await handle.signal(Breaks.bad)
    (record,) = [r for r in caplog.records if "the signal of event" in r.getMessage()]
    assert record.levelno == logging.ERROR
    assert 'raise ValueError("bad signal")' in record.getMessage()


async def test_every_member_of_a_group_comes_back():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(breaks("one"))
                group.create_task(workflow.execute_activity(breaks, "two"))

    async with hosted(MemoryJournal(), W, activities=[breaks]) as runtime:
        with pytest.raises(WorkflowFailedError) as caught:
            await runtime.execute(W)
    assert caught.value.__cause__.caused_by(KeyError)
    assert "KeyError: '" in "".join(traceback.format_exception(caught.value))


async def test_a_timeout_without_a_text_says_where():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(
            WorkflowFailedError, match=r"TimeoutError: raised at .*test_reports.py:\d+ in run"
        ):
            await runtime.execute(W)


async def test_attach_and_ref_refuse_a_workflow_of_another_type():
    @workflow.defn
    class Other:
        @workflow.run
        async def run(self) -> int:
            return 1

    text = "workflow 'x' is a Breaks, not a Other: check the id and the class"
    async with hosted(MemoryJournal(), Breaks, Other, activities=[breaks]) as runtime:
        await runtime.spawn(Breaks, id="x")
        with pytest.raises(WorkflowTypeError, match=text):
            await runtime.spawn(Other, id="x", if_running="attach")
        with pytest.raises(WorkflowTypeError, match=text):
            await runtime.ref("x", Other).result()
        await settled(runtime)


async def test_a_call_that_was_made_too_early_is_recognised():
    @workflow.defn(on_crash="fail")
    class W:
        @workflow.run
        async def run(self) -> None:
            await workflow.execute_activity(breaks("k"))

    async with hosted(MemoryJournal(), W, activities=[breaks]) as runtime:
        with pytest.raises(RegistrationError, match="was called: pass the workflow class and its arguments"):
            await runtime.spawn(W().run())
        with pytest.raises(
            WorkflowFailedError, match="is the result of a call: pass the activity and its arguments"
        ):
            await runtime.execute(W)


@pytest.mark.parametrize(
    "options", [{"initial_interval": 1}, {"initial_interval": 0.5}, {"maximum_interval": 10}]
)
def test_numbers_of_seconds_are_durations_everywhere(options):
    assert RetryPolicy(**options).to_record() is not RetryPolicy(maximum_attempts=3).to_record()


async def test_leaving_says_what_it_waits_for(caplog, monkeypatch):
    monkeypatch.setattr("everact.actors.activity_pool.QUIET_GRACE", 0.01)
    started = asyncio.Event()

    @activity.defn
    async def slow() -> None:
        started.set()
        await asyncio.sleep(60)

    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            await slow()

    async with hosted(MemoryJournal(), W, activities=[slow], grace=0.05) as runtime:
        await runtime.spawn(W)
        await started.wait()
    assert "leaving: waiting up to 0.05 s for activities that run: slow" in caplog.text


async def test_a_failure_without_a_cause_reads_as_one_line():
    @workflow.defn
    class W:
        @workflow.run
        async def run(self) -> None:
            raise ApplicationError("no stock", next_retry_delay=timedelta(seconds=1))

    async with hosted(MemoryJournal(), W) as runtime:
        with pytest.raises(WorkflowFailedError, match="failed: ApplicationError: no stock"):
            await runtime.execute(W)

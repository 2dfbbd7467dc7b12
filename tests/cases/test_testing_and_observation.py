"""Chapter J: an environment's own time; each log line, number and span once, however often code is replayed."""

import logging
from collections import Counter
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.hosting import hosted

from everact import activity, workflow
from everact.interceptors import (
    ActivityInboundInterceptor,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)
from everact.journal.memory_store import MemoryJournal
from everact.payloads import Payload, PayloadConverter
from everact.testing import TestEnvironment

MONTH = timedelta(days=30)


@activity.defn(start_to_close_timeout=timedelta(days=365))
async def pending() -> None:
    raise NotImplementedError


@activity.defn(start_to_close_timeout=timedelta(days=365))
async def outside() -> None:
    activity.raise_complete_async()


@workflow.defn
class Sleeps:
    @workflow.run
    async def run(self) -> str:
        await workflow.sleep(MONTH)
        return "slept"


@workflow.defn
class Left:
    @workflow.run
    async def run(self, on: str) -> None:
        match on:
            case "activity" | "paused":
                await workflow.execute_activity(pending)
            case "outside":
                await workflow.execute_activity(outside)
            case "signal":
                await workflow.wait_for_signal("never")
            case "child":
                await workflow.execute_child_workflow(Left, "signal")
            case "quarantined":
                raise ValueError("bug")


@pytest.mark.parametrize("on", ["activity", "paused", "outside", "signal", "child", "quarantined"])
async def test_j01_a_run_that_an_earlier_test_has_left_does_not_hold_time(on):
    async with TestEnvironment(workflows=[Sleeps, Left], activities=[outside]) as env:
        env.mock_activity(pending, delay=timedelta(days=90))
        left = await env.spawn(Left, on, id="left")
        if on == "paused":
            await left.pause()
        begun = env.now()
        assert await env.execute(Sleeps) == "slept"
        assert env.now() - begun == MONTH
        report = env.report()
        assert "time is held" not in report
        assert "workflow 'left'" in report


async def test_j01_environments_of_one_process_have_times_of_their_own():
    async with TestEnvironment(workflows=[Sleeps]) as one, TestEnvironment(workflows=[Sleeps]) as other:
        begun = one.now()
        with other.time_held():
            assert await one.execute(Sleeps) == "slept"
            assert "time is held by env.time_held()" in other.report()
        assert (one.now() - begun, other.now() - begun) == (MONTH, timedelta())
        assert await other.execute(Sleeps) == "slept"


# --- each once

converter = PayloadConverter()
span: ContextVar[str] = ContextVar("span", default="")


class Traces(Interceptor):
    """Spans of activities, with the span of the workflow as their parent; its id comes from the run."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str]] = []

    def intercept_workflow(self, next: WorkflowInboundInterceptor) -> WorkflowInboundInterceptor:
        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                self.next.init(Outbound(outbound))

            async def execute_workflow(self, input: Any) -> Any:
                span.set(str(workflow.uuid4()))
                workflow.logger.info("span %s", span.get())
                return await self.next.execute_workflow(input)

        return Inbound(next)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        spans = self.spans

        class Attempt(ActivityInboundInterceptor):
            async def execute_activity(self, input: Any) -> Any:
                name = f"{activity.info().workflow_id}/{input.args[0]}"
                spans.append((converter.decode(input.headers["span"], str), name))
                return await self.next.execute_activity(input)

        return Attempt(next)


class Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> Any:
        headers: dict[str, Payload] = {"span": converter.encode(span.get())}
        return self.next.start_activity(replace(input, headers=headers))


@activity.defn
async def counts(number: int) -> int:
    return number


@workflow.defn
class TenSteps:
    @workflow.run
    async def run(self) -> int:
        for number in range(10):
            workflow.logger.info("step %d", number)
            await counts(number)
            workflow.side_effect(lambda number=number: measured.append(number))
            await workflow.wait_for_signal("next")
        workflow.logger.info("over")
        return 10

    @workflow.query
    def look(self) -> int:
        return 0


measured: list[int] = []


@pytest.mark.parametrize("again", ["restart", "crash", "query"])
async def test_j03_lines_numbers_and_spans_come_once_and_parents_are_right(again, caplog):
    caplog.set_level(logging.INFO, "everact.workflow")
    measured.clear()
    traces = Traces()
    async with TestEnvironment(
        workflows=[TenSteps], activities=[counts], interceptors=[traces], max_cached_workflows=1
    ) as env:
        handle = await env.spawn(TenSteps, id="ten")
        other = await env.spawn(TenSteps, id="other")  # it drives the first one out of the cache
        for _ in range(10):
            await env.sleep(1)  # no attempt is under way: that one would run again
            match again:
                case "restart":
                    await env.restart()
                case "crash":
                    await env.crash()
                case "query":
                    await handle.query(TenSteps.look)
            for one in (handle, other):
                await one.signal("next")
                await one.query(TenSteps.look)
        assert await handle.result() == 10
        await handle.query(TenSteps.look)
        assert await other.result() == 10
    lines = Counter(
        (record.workflow_id, record.getMessage())
        for record in caplog.records
        if record.name == "everact.workflow"
    )
    assert set(lines.values()) == {1}
    assert len(lines) == 2 * 12
    assert Counter(measured) == dict.fromkeys(range(10), 2)
    assert Counter(name for _parent, name in traces.spans) == {
        f"{run}/{number}": 1 for run in ("ten", "other") for number in range(10)
    }
    parents = {(name.split("/")[0], parent) for parent, name in traces.spans}
    logged = {(run, text.removeprefix("span ")) for run, text in lines if text.startswith("span ")}
    assert parents == logged and len(parents) == 2


async def test_j03_a_turn_that_is_done_again_logs_what_counts_only(caplog):
    """Lines leave behind the commit: a turn that failed has none, and the mended code says them once."""
    caplog.set_level(logging.INFO, "everact.workflow")
    journal = MemoryJournal()

    def version(is_broken: bool) -> Any:
        @workflow.defn(name="Breaks")
        class Breaks:
            @workflow.run
            async def run(self) -> None:
                workflow.logger.info("before")
                await workflow.sleep(0)
                workflow.logger.info("behind")
                if is_broken:
                    raise ValueError("bug")

        return Breaks

    async with hosted(journal, version(True)) as runtime:
        with pytest.raises(Exception, match="bug"):
            await runtime.execute("Breaks", id="b")
    async with hosted(journal, version(False)) as runtime:
        await runtime.ref("b").release()
        await runtime.ref("b").result()
    said = [record.getMessage() for record in caplog.records if record.name == "everact.workflow"]
    assert said == ["before", "behind"]

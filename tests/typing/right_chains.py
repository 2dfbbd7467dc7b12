"""Calls about runs that follow each other that both type checkers accept, and the types that they give."""

from datetime import timedelta
from typing import Any, assert_type

from everact import RetryPolicy, Runtime, workflow


@workflow.defn
class Other:
    @workflow.run
    async def run(self, count: int, text: str) -> str:
        return text * count


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, left: int) -> str:
        info = workflow.info()
        assert_type(info.attempt, int)
        assert_type(info.first_execution_run_id, str)
        assert_type(info.continued_run_id, str | None)
        assert_type(info.run_timeout, timedelta | None)
        assert_type(info.continue_as_new_suggested, bool)
        assert_type(workflow.last_completion_result(int), int | None)
        assert_type(workflow.has_last_completion_result(), bool)
        assert_type(workflow.last_failure(), Exception | None)
        if left > 2:
            workflow.continue_as_new(left - 1, memo={"left": left}, run_timeout=timedelta(minutes=1))
        if left > 1:
            workflow.continue_as_new(left, "text", workflow=Other, retry_policy=RetryPolicy())
        if left > 0:
            workflow.continue_as_new(left, "text", workflow=Other.run)
        if left > 3:
            workflow.continue_as_new(1, 2, workflow="Whatever", backoff_start_interval=5)
        return "the end"

    @workflow.signal
    def again(self) -> None:
        workflow.continue_as_new(3)


async def starts(runtime: Runtime) -> None:
    handle = await runtime.spawn(
        Chain,
        3,
        run_timeout=timedelta(minutes=1),
        execution_timeout=3600,
        retry_policy=RetryPolicy(maximum_attempts=3),
        start_delay=timedelta(seconds=5),
    )
    assert_type(await handle.result(follow_runs=False), str)
    scheduled = await runtime.spawn(Chain, 3, cron_schedule="0 6 * * *", time_zone="Europe/Berlin")
    seen = await scheduled.describe()
    assert_type(seen.continued_to, str | None)
    value: Any = await runtime.ref("x").result(follow_runs=True)
    assert value is not None

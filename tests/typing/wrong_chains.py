"""Wrong calls about runs that follow each other: each marked line is an error under mypy and under pyright."""

from everact import Runtime, workflow


@workflow.defn
class Other:
    @workflow.run
    async def run(self, count: int, text: str) -> str:
        return text * count


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, left: int) -> str:
        if left > 3:
            workflow.continue_as_new("text", 1, workflow=Other)  # type: ignore[arg-type, call-arg]
        if left > 2:
            workflow.continue_as_new(1, workflow=Other)  # type: ignore[arg-type]
        if left > 1:
            workflow.continue_as_new(left, run_timeout="1m")  # type: ignore[call-overload]
        if left > 0:
            workflow.continue_as_new(left, task_queue="x")  # type: ignore[call-overload]
        return "the end"


async def starts(runtime: Runtime) -> None:
    await runtime.spawn(Chain, 3, run_timeout="1m")  # type: ignore[call-overload]
    await runtime.spawn(Chain, 3, retry_policy=3)  # type: ignore[call-overload]
    await runtime.spawn(Chain, 3, cron="0 6 * * *")  # type: ignore[call-overload]
    await runtime.ref("x").result(follow_runs=1)  # type: ignore[arg-type]

"""Chapter E: one id, one run; what has ended is kept for as long as was said, from its end."""

import asyncio
from datetime import timedelta

import pytest

from everact import workflow
from everact.exceptions import WorkflowAlreadyStartedError, WorkflowNotFoundError
from everact.testing import TestEnvironment

begun: list[int] = []


@workflow.defn(retention=timedelta(hours=1))
class Long:
    @workflow.run
    async def run(self, seconds: float) -> str:
        begun.append(1)
        await workflow.sleep(seconds)
        return "done"


@pytest.mark.parametrize("rule", ["fail", "attach"])
async def test_e02_twenty_starts_of_one_id_at_the_same_moment_are_one_run(rule):
    begun.clear()
    async with TestEnvironment(workflows=[Long], replay=False, guard="off") as env:
        starts = [env.spawn(Long, 5.0, id="x", if_running=rule) for _ in range(20)]
        answers = await asyncio.gather(*starts, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, WorkflowAlreadyStartedError)]
        assert len(refused) == (19 if rule == "fail" else 0)
        handles = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert await asyncio.gather(*(handle.result() for handle in handles)) == ["done"] * len(handles)
        assert len(begun) == 1
        assert await env.runtime.count_workflows() == 1


async def test_e06_retention_is_counted_from_the_end():
    async with TestEnvironment(workflows=[Long], guard="off") as env:
        handle = await env.spawn(Long, 7200.0, id="long")
        assert await handle.result() == "done"
        await env.advance(60)
        assert await handle.result() == "done"
        await env.advance(3000)
        assert await handle.result() == "done"
        await env.advance(2 * 3600)
        with pytest.raises(WorkflowNotFoundError):
            await handle.result()

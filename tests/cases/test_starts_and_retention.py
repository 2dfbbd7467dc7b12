"""Chapter E: one id is one run, one entry has one owner, and what has ended stays as long as was said."""

import asyncio
import subprocess
import sys
from collections import Counter
from datetime import timedelta

import pytest
from support.crashes import read_journal

from everact import activity, workflow
from everact.exceptions import (
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    WorkflowNotFoundError,
    WorkflowTerminatedError,
)
from everact.journal import events as ev
from everact.testing import TestEnvironment

# --- E02


@activity.defn
async def body() -> None:
    raise NotImplementedError


@workflow.defn
class TakesFiveSeconds:
    @workflow.run
    async def run(self, number: int) -> int:
        await body()
        await workflow.sleep(5)
        return number


@workflow.defn
class StartsChild:
    @workflow.run
    async def run(self, number: int) -> str:
        try:
            return str(await workflow.execute_child_workflow(TakesFiveSeconds, number, id="X"))
        except ChildWorkflowError as error:
            assert error.caused_by(WorkflowAlreadyStartedError)
            return "already started"


@pytest.mark.parametrize("store", ["memory", "lmdb"])
@pytest.mark.parametrize("policy", ["fail", "attach", "replace"])
async def test_e02_twenty_starts_of_one_id_at_the_same_moment(policy, store):
    """In one process; between processes a journal has one writer (E03)."""
    async with TestEnvironment(workflows=[TakesFiveSeconds], store=store) as env:
        bodies = env.mock_activity(body)
        starts = [env.spawn(TakesFiveSeconds, n, id="X", if_running=policy) for n in range(20)]
        handles = await asyncio.gather(*starts, return_exceptions=True)
        begun = [handle for handle in handles if not isinstance(handle, Exception)]
        refused = [error for error in handles if isinstance(error, Exception)]
        assert all(isinstance(error, WorkflowAlreadyStartedError) for error in refused)
        outcomes = await asyncio.gather(*(handle.result() for handle in begun), return_exceptions=True)
        match policy:
            case "fail":
                assert (len(begun), len(refused)) == (1, 19)
                assert outcomes == [0]
                assert bodies.call_count == 1
            case "attach":
                assert outcomes == [0] * 20
                assert len({handle.run_id for handle in begun}) == 1
                assert bodies.call_count == 1
            case "replace":
                ended = [one for one in outcomes if isinstance(one, WorkflowTerminatedError)]
                assert len(ended) == 19
                assert [one for one in outcomes if isinstance(one, int)] == [19]
                assert await env.runtime.count_workflows(status="completed") == 1


@pytest.mark.parametrize("closed", ["allow", "allow_if_failed", "refuse", "attach"])
async def test_e02_twenty_starts_after_the_end_go_by_the_other_policy(closed):
    async with TestEnvironment(workflows=[TakesFiveSeconds]) as env:
        bodies = env.mock_activity(body)
        assert await env.execute(TakesFiveSeconds, 100, id="X") == 100
        starts = [
            env.spawn(TakesFiveSeconds, n, id="X", if_running="attach", if_closed=closed) for n in range(20)
        ]
        handles = await asyncio.gather(*starts, return_exceptions=True)
        begun = [handle for handle in handles if not isinstance(handle, Exception)]
        results = await asyncio.gather(*(handle.result() for handle in begun))
        assert results == {"allow": [0] * 20, "attach": [100] * 20}.get(closed, [])
        assert bodies.call_count == (2 if closed == "allow" else 1)


@pytest.mark.parametrize("request_ids", ["one", "own"])
async def test_e02_repeats_of_one_request_find_one_run_also_across_a_start(request_ids):
    async with TestEnvironment(workflows=[TakesFiveSeconds]) as env:
        bodies = env.mock_activity(body)
        handles = []
        for _ in range(2):
            starts = [
                env.spawn(TakesFiveSeconds, 7, id="X", request_id="r" if request_ids == "one" else f"r{n}")
                for n in range(20)
            ]
            handles += await asyncio.gather(*starts, return_exceptions=True)
            await env.restart()
        begun = [handle for handle in handles if not isinstance(handle, Exception)]
        assert len({handle.run_id for handle in begun}) == 1
        assert len(begun) == (40 if request_ids == "one" else 2)
        assert await env.ref("X").result() == 7
        assert bodies.call_count == 1


async def test_e02_parents_that_start_a_child_of_one_id_at_once_get_one_child():
    async with TestEnvironment(workflows=[TakesFiveSeconds, StartsChild]) as env:
        bodies = env.mock_activity(body)
        parents = [await env.spawn(StartsChild, n) for n in range(20)]
        results = await asyncio.gather(*(parent.result() for parent in parents))
        assert Counter(results)["already started"] == 19
        assert bodies.call_count == 1
        assert await env.runtime.count_workflows(workflow_type="TakesFiveSeconds") == 1


# --- E03

E03_PROGRAM = """
import asyncio, os, sys
from everact import Runtime, activity, workflow
from everact.exceptions import JournalLockedError

@activity.defn
async def work(number: int) -> int:
    os.write(1, f"ran {number}\\n".encode())
    return number

@workflow.defn
class Entry:
    @workflow.run
    async def run(self, number: int) -> int:
        return await work(number)

async def main():
    while True:
        try:
            async with Runtime(
                sys.argv[1], workflows=[Entry], activities=[work], durability="os", guard="off", door=False
            ) as runtime:
                starts = [
                    runtime.spawn(Entry, n, id=f"{n}", if_running="attach", if_closed="attach")
                    for n in range(1000)
                ]
                for handle in await asyncio.gather(*starts):
                    await handle.result()
                return
        except JournalLockedError as error:
            os.write(1, f"locked by {error.pid}\\n".encode())
            await asyncio.sleep(0.01)

os.write(1, b"up\\n")
sys.stdin.readline()
asyncio.run(main())
"""


@pytest.mark.slow
def test_e03_a_thousand_entries_and_two_processes_on_one_journal(tmp_path):
    """Only one of them has it at a time; the other is told whose it is, and finds all done later."""
    program = tmp_path / "takes.py"
    program.write_text(E03_PROGRAM)
    journal = tmp_path / "journal"
    workers = [
        subprocess.Popen(
            [sys.executable, program, journal],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "up\n"
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        said = [worker.communicate(timeout=40) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], said
    lines = Counter(line for out, _err in said for line in out.splitlines())
    ran = {line: times for line, times in lines.items() if line.startswith("ran ")}
    assert ran == {f"ran {number}": 1 for number in range(1000)}
    pids = {f"locked by {worker.pid}" for worker in workers}
    assert {line for line in lines if line.startswith("locked")} <= {*pids, "locked by None"}
    runs = read_journal(journal)
    assert len(runs) == 1000
    assert all(
        sum(isinstance(event, ev.ActivityCompleted) for event in run.events) == 1 for run in runs.values()
    )


# --- E06


@workflow.defn(retention=timedelta(hours=1))
class KeptAnHour:
    @workflow.run
    async def run(self, hours: float) -> str:
        await workflow.sleep(hours * 3600)
        return "result"

    @workflow.query
    def look(self) -> str:
        return "seen"


@pytest.mark.parametrize("hours", [0, 2, 48])
@pytest.mark.parametrize("restarts", [False, True])
async def test_e06_retention_counts_from_the_end(hours, restarts):
    async with TestEnvironment(workflows=[KeptAnHour]) as env:
        handle = await env.spawn(KeptAnHour, hours, id="kept")
        await env.sleep(hours * 3600)
        for minutes in (1, 58):
            await env.sleep(minutes * 60)
            if restarts:
                await env.restart()
            assert await handle.result() == "result"
            assert await handle.query(KeptAnHour.look) == "seen"
            assert (await handle.describe()).status == "completed"
            assert [event.kind for event in await handle.fetch_history()][-1] == "WorkflowCompleted"
        await env.advance(5 * 60)
        with pytest.raises(WorkflowNotFoundError):
            await handle.result()
        assert await env.runtime.count_workflows() == 0


async def test_e06_who_waits_since_long_gets_the_result():
    async with TestEnvironment(workflows=[KeptAnHour]) as env:
        handles = [await env.spawn(KeptAnHour, hours) for hours in range(5)]
        waiting = [asyncio.create_task(handle.result()) for handle in handles]
        assert await asyncio.gather(*waiting) == ["result"] * 5


async def test_e06_a_chain_and_open_runs_outlive_the_retention_of_what_went_before():
    @workflow.defn(retention=timedelta(hours=1))
    class Chain:
        @workflow.run
        async def run(self, left: int) -> str:
            await workflow.sleep(2 * 3600)
            if left:
                workflow.continue_as_new(left - 1)
            return "end"

    async with TestEnvironment(workflows=[Chain]) as env:
        handle = await env.spawn(Chain, 3, id="chain")
        await env.sleep(5 * 3600 + 1)
        assert (await env.ref("chain").describe()).status == "running"
        assert await handle.result() == "end"
        await env.advance(59 * 60)
        assert await env.ref("chain").result() == "end"
        await env.advance(5 * 60)
        assert await env.runtime.count_workflows() == 0


async def test_e06_many_runs_go_in_small_batches_while_others_work():
    async with TestEnvironment(workflows=[KeptAnHour]) as env:
        await asyncio.gather(*(env.spawn(KeptAnHour, 0) for _ in range(500)))
        late = await env.spawn(KeptAnHour, 3, id="late")
        await env.advance(2 * 3600)
        assert await env.runtime.count_workflows() == 1
        assert await late.result() == "result"

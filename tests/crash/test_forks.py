"""K01 with a whole Runtime: whatever a forked child does, its parent goes on, and nothing is done twice."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from everact import Runtime, activity, workflow
from everact.exceptions import EveractError

path, loop, way = sys.argv[1:]
PARENT = os.getpid()

def wrote(line):
    with open(path + ".ran", "a") as file:
        print(line, file=file)

@activity.defn
async def add_one(number: int) -> int:
    wrote(f"{activity.info().idempotency_key} {os.getpid() == PARENT}")
    return number + 1

@activity.defn
def fork_in_thread(number: int) -> int:
    pid = os.fork()
    if not pid:
        os._exit(0)
    return os.waitpid(pid, 0)[1]

@activity.defn
def pool(number: int) -> list[int]:
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as processes:
        return list(processes.map(abs, [-1, -2]))

@workflow.defn
class Adds:
    @workflow.run
    async def run(self, number: int) -> int:
        return await add_one(await add_one(number))

@workflow.defn
class Forks:
    @workflow.run
    async def run(self, kind: str) -> list[int]:
        if kind == "pool":
            return await workflow.execute_activity(pool, 0)
        return [await workflow.execute_activity(fork_in_thread, 0)]

async def said(call):
    try:
        return repr(await call())
    except EveractError as error:
        return f"{type(error).__name__}: {error}"

async def child(runtime, handle):
    if way == "uses":
        calls = [
            handle.result, handle.describe, handle.cancel, lambda: runtime.spawn(Adds, 1), runtime.list_workflows,
            runtime.__aenter__,
        ]
        with open(path + ".said", "w") as file:
            json.dump([await said(call) for call in calls], file)
        os._exit(0)
    if way == "leaves":
        os._exit(0)
    if way == "exits":
        sys.exit(0)
    if way == "raises":
        raise SystemExit("the child") from ValueError("child")
    if way == "awaits":
        try:
            await asyncio.sleep(0.01)
        except RuntimeError:  # CPython: the inherited loop does not run here
            raise SystemExit(0)

async def own():
    async with Runtime(path + ".own", workflows=[Adds], activities=[add_one], durability="os") as runtime:
        assert await runtime.execute(Adds, 100) == 102

async def main():
    options = dict(workflows=[Adds, Forks], activities=[add_one, fork_in_thread, pool], durability="os")
    async with asyncio.timeout(20), Runtime(path, **options) as runtime:
        first = await runtime.spawn(Adds, 10)
        await first.result()
        if way in ("pool", "thread"):
            others = [asyncio.create_task(runtime.execute(Adds, n)) for n in range(20, 30)]
            assert await runtime.execute(Forks, way) == ([1, 2] if way == "pool" else [0])
            assert await asyncio.gather(*others) == list(range(22, 32))
            return
        others = [asyncio.create_task(runtime.execute(Adds, n)) for n in range(20, 30)]
        for steps in range(12):
            pid = os.fork()  # in the middle of commits and of effects that are to come
            if not pid:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                return await child(runtime, first)
            ended = asyncio.create_task(asyncio.to_thread(os.waitpid, pid, 0))
            for _ in range(steps % 3):
                await asyncio.sleep(0)
            assert (await ended)[1] == (256 if way == "raises" else 0)
        assert await asyncio.gather(*others) == list(range(22, 32))
        assert await runtime.execute(Adds, 40) == 42

if loop == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
if os.getpid() != PARENT and way == "begins":
    asyncio.run(own())
"""


def fork(path, loop, way):
    """Run the program; what it wrote of the activities that ran, in any process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, os.fspath(path), loop, way],
        capture_output=True,
        text=True,
        check=False,
        timeout=40,
        env={**os.environ, "PYTHONWARNINGS": "ignore::DeprecationWarning"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return (path.parent / f"{path.name}.ran").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("way", ["leaves", "exits", "raises", "returns", "awaits", "pool", "thread"])
def test_a_forked_child_does_its_parent_no_harm_and_does_nothing_twice(tmp_journal, loop, way):
    ran = fork(tmp_journal, loop, way)
    assert len(ran) == len(set(ran))
    assert {line.partition(" ")[2] for line in ran} == {"True"}
    assert len(ran) == (22 if way in ("pool", "thread") else 24)


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_forked_child_that_uses_the_runtime_is_told_what_to_do(tmp_journal, tmp_path, loop):
    fork(tmp_journal, loop, "uses")
    texts = json.loads((tmp_path / "journal.said").read_text())
    assert len(texts) == 6
    for text in texts:
        assert text.startswith("RuntimeClosedError: this Runtime was entered in process ")
        assert " is a forked child: enter a Runtime of its own on another journal after the fork" in text
        assert "with the spawn or forkserver method" in text


@pytest.mark.slow
def test_a_forked_child_has_a_runtime_of_its_own_on_another_journal(tmp_journal):
    program_ran = fork(tmp_journal, "asyncio", "begins")
    assert sum(line.endswith("False") for line in program_ran) == 2 * 12
    assert sum(line.endswith("True") for line in program_ran) == 24

"""R5: after a failed sync the runtime stops, everybody is told, and the next start goes on from the disk."""

import json
import os
import subprocess
import sys

import pytest
from support.faulty_disk import compiled

from everact.journal.lmdb_store import LmdbStore

PROGRAM = """
import asyncio, json, logging, os, sys
from everact import Runtime, workflow
from everact.exceptions import EveractError

path, fault = sys.argv[1:]
logging.basicConfig(level="ERROR", format="%(levelname)s %(name)s %(message)s")

@workflow.defn
class Adds:
    def __init__(self) -> None:
        self.numbers = []
    @workflow.run
    async def run(self) -> list[int]:
        await workflow.wait_condition(lambda: 0 in self.numbers)
        return self.numbers
    @workflow.signal
    def add(self, number: int) -> None:
        self.numbers.append(number)
    @workflow.query
    def so_far(self) -> list[int]:
        return self.numbers

async def outcome(call):
    try:
        return repr(await call)
    except EveractError as error:
        return f"{type(error).__name__}: {error}"

async def main():
    async with asyncio.timeout(20):
        async with Runtime(path, workflows=[Adds]) as runtime:
            adds = await runtime.spawn(Adds, id="adds", if_running="attach")
            if not fault:
                await adds.signal(Adds.add, 2, request_id="two")
                return [await outcome(adds.query(Adds.so_far))]
            await adds.signal(Adds.add, 1)
            waiting = asyncio.create_task(outcome(adds.result()))
            await asyncio.sleep(0)
            os.environ["FAULTY_DISK"] = fault
            told = [await outcome(adds.signal(Adds.add, 2, request_id="two"))]
            os.environ["FAULTY_DISK"] = ""
            for call in (
                lambda: adds.signal(Adds.add, 2, request_id="two"),
                lambda: adds.query(Adds.so_far),
                lambda: adds.describe(),
                lambda: runtime.spawn(Adds),
                lambda: runtime.list_workflows(),
            ):
                told.append(await outcome(call()))
            if told[0].startswith("JournalDiskError"):
                told.append(await waiting)
            return told

print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("faulty"))


@pytest.fixture
def program(library, tmp_journal):
    """Run the program with a fault in the commit of its second signal; what its calls gave, and its log."""

    def play(fault=""):
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PROGRAM, os.fspath(tmp_journal), fault],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr.splitlines()

    return play


@pytest.mark.parametrize("fault", ["sync:1:5", "sync:0:5", "meta:1:5", "sync:0:28 room:0:28"])
def test_the_runtime_stops_and_says_what_to_do(program, tmp_journal, fault):
    told, log = program(fault)
    start = f"JournalDiskError: the disk of the journal '{tmp_journal}' failed: "
    assert [text for text in told if not text.startswith(start)] == []
    assert all(
        "start this program again and repeat the call with the same request_id" in text for text in told
    )
    assert len(log) == 1
    assert log[0].startswith(f"CRITICAL everact.runtime stopping: {start.partition(': ')[2]}")
    store = LmdbStore(tmp_journal, read_only=True)
    assert store.position.epoch == 1  # no second incarnation was begun
    store.close()
    again, log = program()
    assert again == ["[1, 2]"]
    assert log == []


def test_a_full_disk_does_not_stop_it(program):
    told, log = program("write:1:28 room:1:28")
    assert told[0].startswith("CommitUnknownError: the journal could not confirm a commit")
    assert told[1:3] == ["None", "[1, 2]"]  # the repeated signal, and a query
    assert len(log) == 1
    assert log[0].startswith("ERROR everact.runtime a commit failed, rebuilding")

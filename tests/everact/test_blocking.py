"""``everact.blocking``: the verbs without await, from many threads, with Ctrl-C, and not inside an event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.door_workflows import WORKFLOWS, Asks, Order, Waits, asks

import everact
from everact import activity, blocking, workflow
from everact.exceptions import (
    ActivityCancelledError,
    ActivityNotPendingError,
    ForbiddenInWorkflowError,
    NotAJournalError,
    ResultTimeoutError,
    RuntimeClosedError,
    RuntimeUnreachableError,
    UpdateFailedError,
    WorkflowAlreadyStartedError,
    WorkflowTerminatedError,
)
from everact.journal.memory_store import MemoryJournal, MemoryStore


@activity.defn
async def loop_of() -> str:
    return f"{type(asyncio.get_running_loop()).__module__} {threading.current_thread().name}"


@activity.defn
def starts_another() -> str:
    return RUNTIME[0].execute("Free", "inner")[0]


@workflow.defn
class Calls:
    @workflow.run
    async def run(self) -> list[str]:
        return [await loop_of(), await workflow.execute_activity(starts_another)]


@workflow.defn
class Misuses:
    @workflow.run
    async def run(self) -> str:
        try:
            RUNTIME[0].list_workflows()
        except ForbiddenInWorkflowError as error:
            return str(error)
        return "no error"


RUNTIME: list[blocking.Runtime] = []


@pytest.fixture
def runtime(tmp_journal):
    with blocking.Runtime(
        tmp_journal,
        workflows=[*WORKFLOWS, Calls, Misuses],
        activities=[loop_of, starts_another, asks],
        name="shop",
        grace=0.1,
    ) as entered:
        RUNTIME[:] = [entered]
        yield entered
        RUNTIME.clear()


@pytest.fixture(params=["runtime", "client"])
def side(request, runtime, tmp_journal):
    """The runtime itself, and a client of it."""
    if request.param == "runtime":
        yield runtime
        return
    with blocking.Client.connect(f"unix:{tmp_journal}") as client:
        yield client


def test_the_verbs_are_the_same_without_await(side):
    assert side.name == "shop"
    handle = side.spawn(Waits, Order("tea", 2), id="w")
    assert (handle.workflow_id, handle.address) == ("w", f"everact://shop/w/{handle.run_id}")
    assert repr(handle) == f"<BlockingHandle {handle.address}>"
    handle.signal(Waits.hear, "one")
    handle.tell("hear", "two")
    assert handle.query(Waits.words) == handle.query("words", timeout=5) == ["one", "two"]
    assert handle.execute_update(Waits.add, Order("three")) == 3
    assert side.ref("w", Waits).ask(Waits.add, Order("four"), request_id="r") == 4
    assert side.ref(handle.address, Waits).ask(Waits.add, Order("four"), request_id="r") == 4
    with pytest.raises(ResultTimeoutError, match="workflow 'w' had no result within 0.01 s"):
        handle.result(timeout=0.01)
    handle.signal(Waits.finish, "end")
    assert handle.result() == Order("one,two,three,four,end", 2)
    assert handle.describe().status == "completed"
    assert len(handle.fetch_history()) == handle.describe().history_length
    assert side.execute("Free", 1, 2) == [1, 2]
    with pytest.raises(WorkflowAlreadyStartedError):
        side.spawn(Waits, id="w", if_closed="refuse")
    other = side.spawn(Waits)
    other.cancel("late")
    third = side.spawn(Waits)
    third.terminate("now")
    with pytest.raises(WorkflowTerminatedError):
        third.result()
    assert side.count_workflows(status="completed") == 2
    assert [run.workflow_type for run in side.list_workflows(limit=4)] == ["Waits", "Waits", "Free", "Waits"]


def test_updates_are_started_and_asked_for_later(side):
    handle = side.spawn(Waits, id="w")
    update = handle.start_update(Waits.until, "now")
    assert repr(update) == "<BlockingUpdateHandle 'until' of 'w'>"
    assert (update.workflow_id, update.run_id, update.name) == ("w", handle.run_id, "until")
    assert not update.done()
    handle.signal(Waits.hear, "now")
    assert update.result() == update.result() == 0
    assert update.done()
    failed = handle.start_update("add", Order(""), wait_for_stage="completed", request_id="r")
    assert (failed.done(), failed.request_id) == (True, "r")
    with pytest.raises(UpdateFailedError, match="no item"):
        failed.result()


def test_attempts_are_completed_from_outside(side):
    handle = side.spawn(Asks, id="a")
    outside = side.activity_handle(workflow_id="a", command=1)
    assert repr(outside) == "<BlockingActivityHandle of command 1 of workflow 'a'>"

    def is_left(attempt):
        return any(p.completed_outside and p.attempt == attempt for p in handle.describe().pending_activities)

    while not is_left(1):
        pass
    outside.heartbeat("half way")
    outside.fail(ValueError("again"))
    while not is_left(2):
        pass
    handle.cancel()
    with pytest.raises(ActivityCancelledError):
        outside.heartbeat()
    outside.report_cancelled()
    with pytest.raises(ActivityNotPendingError):
        outside.complete(Order("tea"))
    with pytest.raises(TypeError, match="needs a task token, or workflow_id and command"):
        side.activity_handle()


def test_a_list_is_read_page_by_page(side):
    for number in range(5):
        side.spawn(Waits, id=f"w-{number}")
    listing = side.list_workflows(limit=3, page_size=2)
    ids = [run.workflow_id for run in listing]
    rest = side.list_workflows(page_size=2, next_page_token=listing.next_page_token)
    assert [*ids, *(run.workflow_id for run in rest)] == [f"w-{number}" for number in reversed(range(5))]
    assert rest.next_page_token is None
    with pytest.raises(ValueError, match="page_size must be at most"):
        side.list_workflows(page_size=2000)


def test_many_threads_use_one(side):
    with ThreadPoolExecutor(16) as threads:
        handles = list(threads.map(lambda n: side.spawn(Waits, id=f"w-{n}"), range(60)))
        waiting = [threads.submit(handle.result) for handle in handles[:8]]
        list(threads.map(lambda handle: handle.signal(Waits.finish, handle.workflow_id), handles))
        assert [future.result().item for future in waiting] == [f"w-{n}" for n in range(8)]
    assert {handle.result().item for handle in handles} == {f"w-{n}" for n in range(60)}


def test_activities_run_on_the_loop_in_its_thread_and_in_threads_that_may_call(runtime):
    uvloop = pytest.importorskip("uvloop")
    where, inner = runtime.execute(Calls)
    assert where.partition(" ")[0] == uvloop.Loop.__module__
    assert where.endswith("everact loop")
    assert inner == "inner"
    assert runtime.purge(older_than=0) == 2
    assert runtime.compact_journal().bytes_after > 0


def test_workflow_code_may_not_use_it(runtime):
    text = runtime.execute(Misuses)
    assert "a blocking Runtime" in text
    assert "use it in an activity" in text


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_without_uvloop_it_is_asyncios_loop(tmp_journal, monkeypatch, has_uvloop):
    if not has_uvloop:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with blocking.Runtime(tmp_journal) as runtime:
        assert type(runtime._thread._loop).__module__.startswith("uvloop") == has_uvloop


# --- where it does not work


async def test_inside_an_event_loop_it_says_what_to_use(tmp_journal):
    says = "here an event loop runs, which would stop: use everact.Runtime or everact.Client here, with 'async with'"
    runtime = blocking.Runtime(tmp_journal)
    with pytest.raises(RuntimeError, match=says):
        runtime.__enter__()
    with pytest.raises(RuntimeError, match=says):
        blocking.Client.connect(f"unix:{tmp_journal}")
    await asyncio.to_thread(runtime.__enter__)
    with pytest.raises(RuntimeError, match="a blocking Runtime waits in the thread that calls it"):
        runtime.count_workflows()
    handle = runtime.ref("w")
    with pytest.raises(RuntimeError, match=says):
        handle.describe()
    await asyncio.to_thread(runtime.__exit__, None, None, None)


def test_outside_its_block_it_is_closed(tmp_journal):
    runtime = blocking.Runtime(tmp_journal, workflows=WORKFLOWS)
    with pytest.raises(
        RuntimeClosedError, match="a blocking Runtime is not open: use it inside its 'with' block"
    ):
        runtime.spawn(Waits)
    with runtime:
        handle = runtime.spawn(Waits)
        with pytest.raises(RuntimeError, match="this Runtime is already entered; make another one"):
            runtime.__enter__()
        client = blocking.Client.connect(f"unix:{tmp_journal}")
    with pytest.raises(RuntimeClosedError, match="is not open"):
        handle.result()
    client.close()
    client.close()
    with pytest.raises(RuntimeClosedError, match="a blocking Client is not open"):
        client.count_workflows()
    with pytest.raises(RuntimeError, match="this Runtime is already entered; make another one"):
        runtime.__enter__()


def loops():
    return [thread for thread in threading.enumerate() if thread.name == "everact loop"]


def test_what_cannot_be_entered_leaves_no_thread(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAJournalError), blocking.Runtime(tmp_path):
        pass
    with pytest.raises(RuntimeUnreachableError):
        blocking.Client.connect(f"unix:{tmp_path}")
    with pytest.raises(TypeError, match="journal must be a path or a store, not 5"):
        blocking.Runtime(5)
    assert not loops()


def test_leaving_by_an_error_leaves_as_always(tmp_journal):
    with pytest.raises(KeyError, match="mine"), blocking.Runtime(tmp_journal, workflows=WORKFLOWS) as runtime:
        handle = runtime.spawn(Waits, id="w")
        waiting = []
        thread = threading.Thread(
            target=lambda: waiting.append(pytest.raises(RuntimeClosedError, handle.result))
        )
        thread.start()
        while not runtime._inner._shard.find("w").result_waiters:
            pass
        raise KeyError("mine")
    thread.join()
    assert "the run is durable and goes on at the next start" in str(waiting[0].value)
    assert not loops()
    with blocking.Runtime(tmp_journal, workflows=WORKFLOWS) as runtime:
        assert runtime.ref("w").describe().status == "running"


def test_a_journal_in_memory_will_do():
    with blocking.Runtime(MemoryStore(MemoryJournal()), workflows=WORKFLOWS) as runtime:
        assert runtime.execute("Free") == []


def test_its_constructor_takes_what_the_other_takes():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        blocking.Runtime("x", colour="red")
    assert set(blocking.__all__) <= set(dir(blocking))
    assert everact.blocking is blocking


# --- Ctrl-C

PROGRAM = """
import sys, threading, time
from support.door_workflows import WORKFLOWS, Waits
from everact import activity, blocking, workflow

@activity.defn
async def slow() -> None:
    import asyncio
    print("slow", flush=True)
    await asyncio.sleep(60)

@workflow.defn
class Slow:
    @workflow.run
    async def run(self) -> None:
        await slow()

way = sys.argv[2]
try:
    with blocking.Runtime(sys.argv[1], workflows=[*WORKFLOWS, Slow], activities=[slow], grace=30) as runtime:
        if way == "once":
            handle = runtime.spawn(Waits, id="w")
            print("waits", flush=True)
            handle.result()
        else:
            runtime.execute(Slow)
except KeyboardInterrupt:
    print("interrupted", [t.name for t in threading.enumerate() if t is not threading.main_thread()], flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["once", "twice"])
def test_ctrl_c_ends_the_waiting_and_a_second_one_the_grace(tmp_journal, way):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_journal), way],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert process.stdout.readline() in ("waits\n", "slow\n")
        process.send_signal(signal.SIGINT)
        if way == "twice":
            # Leaving has begun once its door answers so.
            from everact.cluster.connection import Connection
            from everact.journal.payloads import PayloadConverter

            async def until_it_leaves():
                connection = Connection(str(tmp_journal), 20.0, PayloadConverter())
                try:
                    while True:
                        await connection.call("GET", "workflow-count", again=False)
                except RuntimeUnreachableError as error:
                    return error.reason
                finally:
                    await connection.close()

            assert asyncio.run(until_it_leaves()) == "the program is leaving its Runtime"
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)
        assert out == "interrupted []\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    with blocking.Runtime(tmp_journal, workflows=WORKFLOWS) as runtime:
        assert runtime.count_workflows() == 1
